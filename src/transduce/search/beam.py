"""Beam search over the contract (section 6.1); with a beam of one it is greedy search.

Each round reads one symbol in every open hypothesis and ranks all continuations of a sentence together. A hypothesis
that ends among the best ``beam`` continuations is finished; the best ``beam`` that do not end stay open. A sentence is
done when the stopping rule says so, and then leaves the batch. Sampling is the same loop, with hypotheses that do not
compete: each has one continuation, which is drawn.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transduce.config import TransduceError
from transduce.kernels import rank_continuations
from transduce.models import Model, State, Tokens
from transduce.search.constraint import Following
from transduce.search.coverage import Coverage
from transduce.search.ranking import Ranked, draw_samples, rank_by_probability, rank_diversely, rank_in_banks
from transduce.search.settings import Hypothesis, NothingFoundError, SearchSettings

M = TypeVar("M")
S = TypeVar("S", bound=State)


@dataclass(frozen=True)
class _Open(Generic[S]):
    """The open hypotheses of the sentences still in the batch."""

    state: S
    written: Int[Tensor, "sentences beam time"]
    log_probability: Float[Tensor, "sentences beam"]
    sentence: Int[Tensor, " sentences"]
    limit: Int[Tensor, " sentences"]
    following: tuple[Following, ...] = ()
    coverage: Coverage | None = None


@torch.inference_mode()
def beam_search(
    model: Model[M, S],
    source: Tokens,
    limits: Int[Tensor, " batch"],
    settings: SearchSettings,
    numbers: Sequence[int] | None = None,
) -> list[list[Hypothesis]]:
    """The ``n_best`` best outputs of each source, best first; fewer where the constraints leave no more.

    ``limits`` are the longest outputs allowed, end symbol included: at its limit a hypothesis must end. ``numbers`` are
    what the caller knows the sentences by, from 0 if nothing is said: constraints are told them, and samples follow
    from them.

    Raises:
        NothingFoundError: A sentence has no output that the constraints allow.
        TransduceError: The model's scores are no numbers.
    """
    numbers = range(len(limits)) if numbers is None else numbers
    finished: list[list[Hypothesis]] = [[] for _ in range(len(limits))]
    open_ = _begin(model, source, limits, settings, numbers)
    while len(open_.sentence):
        step = model.step(open_.state, _last_symbols(open_, settings), want_attention=open_.coverage is not None)
        if open_.coverage is not None and step.attention is not None:
            open_ = replace(open_, coverage=open_.coverage.add(step.attention))
        ranked = _rank(step.logits, open_, settings, numbers)
        _collect(ranked, open_, finished, settings)
        open_ = _leave(_continue(replace(open_, state=step.state), ranked, settings), finished, settings)
    for found, number, limit in zip(finished, numbers, limits.tolist(), strict=True):
        if not found:
            raise NothingFoundError(number, limit)
    return [best[: settings.n_best] for best in finished]


def _begin(
    model: Model[M, S], source: Tokens, limits: Int[Tensor, " batch"], settings: SearchSettings, numbers: Sequence[int]
) -> _Open[S]:
    sentences, beam, device = len(limits), settings.beam_size, source.ids.device
    log_probability = torch.zeros((sentences, beam), device=device)
    if settings.sampling is None:
        log_probability[:, 1:] = -math.inf  # at first all rows of a sentence are alike: only one of them counts
    return _Open(
        state=model.start(model.encode(source), beam),
        written=torch.empty(sentences, beam, 0, dtype=torch.long, device=device),
        log_probability=log_probability,
        sentence=torch.arange(sentences, device=device),
        limit=limits.clamp(min=1),
        following=tuple(each.start(numbers, beam, device) for each in settings.constraints),
        coverage=Coverage.empty(source.lengths, beam, device) if settings.coverage else None,
    )


def _last_symbols(open_: _Open[S], settings: SearchSettings) -> Int[Tensor, " rows"]:
    sentences, beam, time = open_.written.shape
    if time == 0:
        return torch.full((sentences * beam,), settings.begin_id, device=open_.written.device)
    return open_.written[:, :, -1].flatten()


def _rank(
    logits: Float[Tensor, "rows vocabulary"], open_: _Open[S], settings: SearchSettings, numbers: Sequence[int]
) -> Ranked:
    """The continuations that the settings ask for, best first."""
    if settings.sampling is None and not open_.following and not settings.diversity:
        return _rank_freely(logits, open_, settings)
    scores = _scores(logits, open_, settings)
    if settings.sampling is not None:
        here = [numbers[sentence] for sentence in open_.sentence.tolist()]
        return draw_samples(scores, open_.log_probability, settings.sampling, here, open_.written.shape[2])
    total = scores + open_.log_probability.unsqueeze(-1)
    proposals = [proposed for each in open_.following if (proposed := each.propose()) is not None]
    if proposals:
        return rank_in_banks(total, proposals)
    return rank_diversely(total, settings.diversity) if settings.diversity else rank_by_probability(total)


def _rank_freely(logits: Float[Tensor, "rows vocabulary"], open_: _Open[S], settings: SearchSettings) -> Ranked:
    """The most probable continuations, where nothing else has a say."""
    beam, time = open_.written.shape[1:]
    banned = (*settings.forbidden, settings.end_id) if time < settings.min_length else settings.forbidden
    must_end = open_.limit <= time + 1
    count = min(2 * beam, beam * logits.shape[1])
    values, places = rank_continuations(logits, open_.log_probability, banned, must_end, settings.end_id, count)
    return Ranked(values, places // logits.shape[1], places % logits.shape[1])


def _scores(
    logits: Float[Tensor, "rows vocabulary"], open_: _Open[S], settings: SearchSettings
) -> Float[Tensor, "sentences beam vocabulary"]:
    """The log-probability of every symbol as the next one, minus infinity where it may not come."""
    sentences, beam, time = open_.written.shape
    scores = torch.log_softmax(logits.float(), dim=-1)
    scores[:, list(settings.forbidden)] = -math.inf
    if time < settings.min_length:
        scores[:, settings.end_id] = -math.inf
    must_end = open_.limit <= time + 1
    if must_end.any():
        others = torch.arange(scores.shape[1], device=logits.device) != settings.end_id
        scores.masked_fill_(must_end.repeat_interleave(beam).unsqueeze(1) & others, -math.inf)
    if open_.following:
        written, room = open_.written.flatten(0, 1), (open_.limit - time).repeat_interleave(beam)
        for each in open_.following:
            each.mask(scores, written, room)
    return scores.view(sentences, beam, -1)


def _collect(ranked: Ranked, open_: _Open[S], finished: list[list[Hypothesis]], settings: SearchSettings) -> None:
    """Move what ends among the best ``beam`` continuations to the finished hypotheses of its sentence."""
    beam, length = open_.written.shape[1], open_.written.shape[2] + 1
    ends = (ranked.symbol[:, :beam] == settings.end_id) & ranked.log_probability[:, :beam].isfinite()
    shortfall = None if open_.coverage is None else open_.coverage.shortfall().view(-1, beam)
    for row, rank in ends.nonzero().tolist():
        log_probability = float(ranked.log_probability[row, rank])
        parent = ranked.beam[row, rank]
        score = log_probability / settings.penalty(length)
        if shortfall is not None:
            score += settings.coverage * float(shortfall[row, parent])
        hypotheses = finished[int(open_.sentence[row])]
        hypotheses.append(Hypothesis(tuple(open_.written[row, parent].tolist()), log_probability, score))
        hypotheses.sort(key=lambda hypothesis: -hypothesis.score)
        del hypotheses[max(settings.n_best, settings.beam_size) :]


def _continue(open_: _Open[S], ranked: Ranked, settings: SearchSettings) -> _Open[S]:
    """Keep the best ``beam`` continuations that do not end; of samples, each stays in its row."""
    sentences, beam, _ = open_.written.shape
    ended = ranked.symbol == settings.end_id
    log_probability = ranked.log_probability.masked_fill(ended, -math.inf)
    parent, symbol = ranked.beam, ranked.symbol
    if settings.sampling is None:
        chosen = ended.byte().argsort(dim=1, stable=True)[:, :beam]
        log_probability, parent, symbol = (each.gather(1, chosen) for each in (log_probability, parent, symbol))
        if beam > 1:
            rows = (torch.arange(sentences, device=parent.device).unsqueeze(1) * beam + parent).flatten()
            open_ = _reorder(open_, rows)
    return replace(
        open_,
        log_probability=log_probability,
        written=torch.cat([open_.written, symbol.unsqueeze(-1)], dim=-1),
        following=tuple(each.advance(symbol.flatten()) for each in open_.following),
    )


def _reorder(open_: _Open[S], rows: Int[Tensor, " rows"]) -> _Open[S]:
    """What every row remembers, from the row that it goes on from."""
    return replace(
        open_,
        state=open_.state.reorder(rows),
        written=open_.written.flatten(0, 1)[rows].view_as(open_.written),
        following=tuple(each.reorder(rows) for each in open_.following),
        coverage=None if open_.coverage is None else open_.coverage.reorder(rows),
    )


def _leave(open_: _Open[S], finished: list[list[Hypothesis]], settings: SearchSettings) -> _Open[S]:
    """Let the sentences go whose outcome is certain."""
    beam, written = open_.written.shape[1:]
    best_open = open_.log_probability.amax(dim=1)
    done = torch.tensor(
        [
            _is_certain(finished[sentence], best, written, limit, settings)
            for sentence, best, limit in zip(
                open_.sentence.tolist(), best_open.tolist(), open_.limit.tolist(), strict=True
            )
        ],
        dtype=torch.bool,
        device=open_.sentence.device,
    )
    if not done.any():
        return open_
    rows = (~done).repeat_interleave(beam).nonzero().squeeze(1)
    return _Open(
        state=open_.state.release(done),
        written=open_.written[~done],
        log_probability=open_.log_probability[~done],
        sentence=open_.sentence[~done],
        limit=open_.limit[~done],
        following=tuple(each.reorder(rows) for each in open_.following),
        coverage=None if open_.coverage is None else open_.coverage.reorder(rows),
    )


def _is_certain(
    finished: list[Hypothesis], best_open: float, written: int, limit: int, settings: SearchSettings
) -> bool:
    """Whether the ``n_best`` finished hypotheses are final.

    A longer output never gains probability, so the best that an open hypothesis can still reach is its log-probability
    divided by the largest penalty ahead of it: the nearest end's or the limit's, as the penalty is monotonic in length.
    What it still leaves uncovered costs it more, or nothing.
    """
    if math.isnan(best_open):
        raise TransduceError("the model gives no finite scores: its weights are damaged or its training diverged")
    if best_open == -math.inf or written >= limit:
        return True
    if settings.sampling is not None:
        return False  # every sample comes to its own end
    if settings.beam_size == 1:
        return bool(finished)  # greedy search takes the first end it meets
    if settings.stopping == "full_beam":
        return len(finished) >= settings.beam_size
    if len(finished) < settings.n_best:
        return False
    reachable = best_open / max(settings.penalty(written + 1), settings.penalty(limit))
    return finished[settings.n_best - 1].score >= reachable
