"""In which order continuations come: by probability, diversely, in banks, or as chance draws them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transduce.config import TransduceError
from transduce.search.constraint import Proposals
from transduce.search.recording import Candidate
from transduce.search.sampling import draw, uniform
from transduce.search.settings import Sampling

Scores = Float[Tensor, "sentences beam vocabulary"]


@final
@dataclass(frozen=True)
class Ranked:
    """Continuations of each sentence, best first: log-probability, index of the hypothesis in the beam, new symbol."""

    log_probability: Float[Tensor, "sentences candidates"]
    beam: Int[Tensor, "sentences candidates"]
    symbol: Int[Tensor, "sentences candidates"]

    @classmethod
    def at(cls, total: Scores, index: Int[Tensor, "sentences candidates"]) -> "Ranked":
        """Those at these indices of the flattened scores."""
        vocabulary = total.shape[2]
        return cls(total.flatten(1).gather(1, index), index // vocabulary, index % vocabulary)

    def candidates(self) -> Iterator[list[Candidate]]:
        """The same as numbers, sentence by sentence.

        Not all at once, and from flat lists: so many small objects would have Python look for garbage in every step.

        Raises:
            TransduceError: A log-probability is NaN.
        """
        if self.log_probability.isnan().any():
            raise no_finite_scores()
        count = self.symbol.shape[1]
        parts = [each.flatten().tolist() for each in (self.log_probability, self.beam, self.symbol)]
        for first in range(0, len(parts[0]), count):
            yield list(zip(*(part[first : first + count] for part in parts), strict=True))


def no_finite_scores() -> TransduceError:
    """What a search ends with where a log-probability is NaN."""
    return TransduceError("the model gives no finite scores: its weights are damaged or its training diverged")


def rank_by_probability(total: Scores) -> Ranked:
    """The most probable ones, twice as many as the beam is wide.

    Even if every open hypothesis ends at its best, a full beam of others is left.
    """
    vocabulary = total.shape[2]
    best, index = total.flatten(1).topk(_candidates(total), dim=1)
    return Ranked(best, index // vocabulary, index % vocabulary)


def rank_diversely(total: Scores, gamma: float) -> Ranked:
    """As if the k-th best continuation of each hypothesis were ``gamma (k - 1)`` less probable than it is."""
    beam, vocabulary = total.shape[1:]
    best, symbol = total.topk(min(2 * beam, vocabulary), dim=2)
    lowered = best - gamma * torch.arange(best.shape[2], device=total.device)
    chosen = lowered.flatten(1).topk(min(2 * beam, beam * best.shape[2]), dim=1).indices
    return Ranked(best.flatten(1).gather(1, chosen), chosen // best.shape[2], symbol.flatten(1).gather(1, chosen))


@final
@dataclass(frozen=True)
class Banks:
    """The symbols that are proposed in each row, the bank that each leads to, and the bank of all other symbols.

    Rows with fewer proposals than others repeat one.
    """

    symbol: Int[Tensor, "rows proposals"]
    bank: Int[Tensor, "rows proposals"]
    otherwise: Int[Tensor, " rows"]

    @classmethod
    def of(cls, rows: Sequence[Sequence[Proposals]], end_id: int, device: torch.device) -> "Banks":
        """Those of all constraints together: of several, a symbol's banks add up."""
        otherwise = [sum(each.otherwise for each in row) for row in rows]
        banks = [
            {
                symbol: sum(each.banks.get(symbol, each.otherwise) for each in row)
                for part in row
                for symbol in part.banks
            }
            or {end_id: other}
            for row, other in zip(rows, otherwise, strict=True)
        ]
        width = max(map(len, banks))
        symbols = [[*row, *[next(iter(row))] * (width - len(row))] for row in banks]
        values = [[row[symbol] for symbol in some] for row, some in zip(banks, symbols, strict=True)]
        return cls(*(torch.tensor(each, device=device) for each in (symbols, values, otherwise)))


def rank_in_banks(total: Scores, banks: Banks, gamma: float = 0.0) -> Ranked:
    """The best of every bank, the fullest bank's first, then the second best of every bank, and so on.

    The idea is that of dynamic beam allocation (Post and Vilar 2018): hypotheses that have fulfilled much compete with
    their like, and not with those that put it off. With ``gamma``, what is best in a bank is found as in
    ``rank_diversely``.
    """
    sentences, beam, vocabulary = total.shape
    by = _lower_siblings(total, gamma) if gamma else total
    first = torch.arange(beam, device=total.device).unsqueeze(1) * vocabulary
    proposed = (banks.symbol.view(sentences, beam, -1) + first).flatten(1)
    best = by.flatten(1).topk(_candidates(total), dim=1).indices
    index = torch.cat([best, total.argmax(dim=2) + first.squeeze(1), proposed], dim=1)
    index = index.gather(1, by.flatten(1).gather(1, index).argsort(dim=1, descending=True, stable=True))
    candidates = Ranked.at(total, index)
    bank = _bank(candidates, banks, beam)
    usable = ~candidates.log_probability.isneginf() & ~_earlier(index).any(dim=2)
    better = _earlier(bank) & usable.unsqueeze(1)
    place = better.sum(dim=2) * (bank.amax() + 1) + bank.amax() - bank
    order = place.masked_fill(~usable, torch.iinfo(place.dtype).max).argsort(dim=1, stable=True)[:, : 2 * beam]
    chosen = usable.gather(1, order)
    ranked = Ranked.at(total, index.gather(1, order))
    return Ranked(ranked.log_probability.masked_fill(~chosen, -torch.inf), ranked.beam, ranked.symbol)


def draw_samples(
    scores: Scores,
    so_far: Float[Tensor, "sentences beam"],
    sampling: Sampling,
    numbers: Sequence[int],
    positions: Sequence[int],
) -> Ranked:
    """One continuation of every hypothesis, in the hypotheses' order; ``scores`` are the new symbols' own.

    ``positions`` are the indices of the new symbols in the outputs.
    """
    sentences, beam, _ = scores.shape
    chances = torch.from_numpy(uniform(sampling.seed, numbers, beam, positions)).to(scores.device)
    symbol = draw(scores.flatten(0, 1), chances, sampling).view(sentences, beam)
    log_probability = so_far + scores.gather(2, symbol.unsqueeze(2)).squeeze(2)
    return Ranked(log_probability, torch.arange(beam, device=scores.device).expand(sentences, beam), symbol)


def _lower_siblings(total: Scores, gamma: float) -> Scores:
    """Each hypothesis' k-th best continuation by gamma (k - 1); from a number on that no beam takes, all by as much."""
    best, symbol = total.topk(min(2 * total.shape[1], total.shape[2]), dim=2)
    places = torch.arange(best.shape[2], device=total.device)
    return (total - gamma * best.shape[2]).scatter(2, symbol, best - gamma * places)


def _candidates(total: Scores) -> int:
    return min(2 * total.shape[1], total.shape[1] * total.shape[2])


def _bank(candidates: Ranked, banks: Banks, beam: int) -> Int[Tensor, "sentences candidates"]:
    """What each candidate would have fulfilled."""
    sentences = candidates.beam.shape[0]
    row = candidates.beam + beam * torch.arange(sentences, device=candidates.beam.device).unsqueeze(1)
    meant = banks.symbol[row] == candidates.symbol.unsqueeze(2)
    which = meant.to(torch.uint8).argmax(dim=2, keepdim=True)
    proposed = banks.bank[row].gather(2, which).squeeze(2)
    return torch.where(meant.any(dim=2), proposed, banks.otherwise[row])


def _earlier(values: Int[Tensor, "sentences candidates"]) -> Bool[Tensor, "sentences candidates candidates"]:
    """[b, i, j]: whether j comes before i and has the same value."""
    return (values.unsqueeze(2) == values.unsqueeze(1)).tril(diagonal=-1)
