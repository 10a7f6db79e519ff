"""Beam search over the contract (section 6.1); with a beam of one it is greedy search.

Each round reads one symbol in every open hypothesis and ranks all continuations of a sentence together. A hypothesis
that ends among the best ``beam`` continuations has ended; the best ``beam`` that do not end stay open. A sentence is
done when the stopping rule says so: it leaves at once, and others that wait take its place. So the sentences of one
round may have written differently much. Sampling is the same loop, with hypotheses that do not compete: each has one
continuation, which is drawn.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Generic, TypeVar, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transduce.kernels import rank_continuations
from transduce.models import Model, State, Step, Tokens
from transduce.search.constraint import Following
from transduce.search.coverage import Coverage
from transduce.search.hypotheses import Candidate, Sentence
from transduce.search.ranking import Ranked, draw_samples, rank_by_probability, rank_diversely, rank_in_banks
from transduce.search.settings import Hypothesis, NothingFoundError, SearchSettings

M = TypeVar("M")
S = TypeVar("S", bound=State)


@final
@dataclass(frozen=True)
class Newcomers:
    """Sentences that a search takes in together, and the numbers that their caller knows them by, each its own.

    ``limits`` are the longest outputs allowed, end symbol included: at its limit a hypothesis must end. Constraints are
    told the numbers, and samples follow from them.
    """

    source: Tokens
    limits: Sequence[int]
    numbers: Sequence[int]


# What a search asks for sentences: it says the numbers of those that it still has, and gets more, or for now nothing.
# Nothing is the end where it has none.
Take = Callable[[Sequence[int]], Newcomers | None]


@final
@dataclass(frozen=True)
class _Open(Generic[S]):
    """The sentences under way. Row by row: what the model remembers, what it reads next, and what follows along."""

    state: S
    sentences: list[Sentence]
    newest: Int[Tensor, " rows"]
    following: tuple[Following, ...]
    coverage: Coverage | None


@torch.inference_mode()
def beam_search(model: Model[M, S], take: Take, settings: SearchSettings) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Each sentence's number and its ``n_best`` best outputs, best first, as soon as they are certain.

    There are fewer outputs where the constraints leave no more.

    Raises:
        NothingFoundError: A sentence has no output that the constraints allow.
        TransduceError: The model's scores are no numbers.
    """
    newcomers = take(())
    if newcomers is None:
        return
    open_ = _begin(model, newcomers, settings)
    while open_.sentences:
        open_, done = _leave(_advance(model, open_, settings), settings)
        for sentence in done:
            if not sentence.ended:
                raise NothingFoundError(sentence.number, sentence.limit)
            yield sentence.number, sentence.ended[: settings.n_best]
        if done and (newcomers := take([sentence.number for sentence in open_.sentences])) is not None:
            open_ = _admit(open_, _begin(model, newcomers, settings))


def _begin(model: Model[M, S], newcomers: Newcomers, settings: SearchSettings) -> _Open[S]:
    source, beam, device = newcomers.source, settings.beam_size, newcomers.source.ids.device
    pairs = zip(newcomers.numbers, newcomers.limits, strict=True)
    return _Open(
        model.start(model.encode(source), beam, writable=settings.writable(source, newcomers.numbers)),
        [Sentence.begin(number, limit, settings) for number, limit in pairs],
        torch.full((len(newcomers.numbers) * beam,), settings.begin_id, device=device),
        tuple(each.start(newcomers.numbers, beam, device) for each in settings.constraints),
        Coverage.empty(source.lengths, beam, device) if settings.coverage else None,
    )


def _admit(open_: _Open[S], other: _Open[S]) -> _Open[S]:
    """The sentences of the other come in behind these."""
    both = open_.coverage, other.coverage
    return _Open(
        open_.state.admit(other.state),
        open_.sentences + other.sentences,
        torch.cat([open_.newest, other.newest]),
        tuple(a.admit(b) for a, b in zip(open_.following, other.following, strict=True)),
        None if both[0] is None or both[1] is None else both[0].admit(both[1]),
    )


def _advance(model: Model[M, S], open_: _Open[S], settings: SearchSettings) -> _Open[S]:
    """Every hypothesis reads its newest symbol; those that the next symbols leave open take the places of the beam."""
    step = model.step(open_.state, open_.newest, want_attention=open_.coverage is not None)
    coverage, beam, device = open_.coverage, settings.beam_size, open_.newest.device
    if coverage is not None and step.attention is not None:
        coverage = coverage.add(step.attention)
    shortfalls = None if coverage is None else coverage.shortfall().view(-1, beam).tolist()
    parents, symbols = [], []
    for index, (sentence, candidates) in enumerate(zip(open_.sentences, _rank(step, open_, settings), strict=True)):
        chosen = sentence.write(candidates, None if shortfalls is None else shortfalls[index], settings)
        parents += [index * beam + parent for _, parent, _ in chosen]
        symbols += [symbol for _, _, symbol in chosen]
    newest = torch.tensor(symbols, device=device)
    open_ = replace(open_, state=step.state, coverage=coverage, newest=newest)
    if beam > 1 and settings.sampling is None:
        open_ = _reorder(open_, torch.tensor(parents, device=device))
    return replace(open_, following=tuple(each.advance(newest) for each in open_.following))


def _reorder(open_: _Open[S], rows: Int[Tensor, " rows"]) -> _Open[S]:
    """What every row remembers, from the row that it goes on from."""
    return replace(
        open_,
        state=open_.state.reorder(rows),
        following=tuple(each.reorder(rows) for each in open_.following),
        coverage=None if open_.coverage is None else open_.coverage.reorder(rows),
    )


def _leave(open_: _Open[S], settings: SearchSettings) -> tuple[_Open[S], list[Sentence]]:
    """Let the sentences go whose outcome is certain."""
    certain = [sentence.is_certain(settings) for sentence in open_.sentences]
    if not any(certain):
        return open_, []
    done = torch.tensor(certain, device=open_.newest.device)
    rows = (~done).repeat_interleave(settings.beam_size).nonzero().squeeze(1)
    staying = _Open(
        state=open_.state.release(done),
        sentences=[sentence for sentence, gone in zip(open_.sentences, certain, strict=True) if not gone],
        newest=open_.newest[rows],
        following=tuple(each.reorder(rows) for each in open_.following),
        coverage=None if open_.coverage is None else open_.coverage.reorder(rows),
    )
    return staying, [sentence for sentence, gone in zip(open_.sentences, certain, strict=True) if gone]


def _rank(step: Step[S], open_: _Open[S], settings: SearchSettings) -> Iterator[list[Candidate]]:
    """The continuations of each sentence that the settings ask for, best first."""
    so_far = torch.tensor([sentence.log_probability for sentence in open_.sentences], device=step.logits.device)
    if settings.sampling is None and not open_.following and not settings.diversity:
        return _rank_freely(step, so_far, open_.sentences, settings).candidates()
    scores = _scores(step.over_vocabulary(), open_, settings)
    if settings.sampling is not None:
        places = ([getattr(each, name) for each in open_.sentences] for name in ("number", "length"))
        return draw_samples(scores, so_far, settings.sampling, *places).candidates()
    total = scores + so_far.unsqueeze(-1)
    proposals = [proposed for each in open_.following if (proposed := each.propose()) is not None]
    if proposals:
        return rank_in_banks(total, proposals).candidates()
    ranked = rank_diversely(total, settings.diversity) if settings.diversity else rank_by_probability(total)
    return ranked.candidates()


def _rank_freely(
    step: Step[S],
    so_far: Float[Tensor, "sentences beam"],
    sentences: Sequence[Sentence],
    settings: SearchSettings,
) -> Ranked:
    """The most probable continuations, where nothing else has a say."""
    beam, vocabulary = settings.beam_size, step.vocabulary
    # As many ends as hypotheses stand before the others where it is too early to end.
    early = settings.min_length > 0 and any(sentence.length < settings.min_length for sentence in sentences)
    must_end = torch.tensor([sentence.must_end for sentence in sentences], device=step.logits.device)
    count = min((3 if early else 2) * beam, beam * vocabulary)
    limits = settings.forbidden, must_end, settings.end_id, count
    values, places = rank_continuations(step.logits, so_far, *limits, step.columns)
    return Ranked(values, places // vocabulary, places % vocabulary)


def _scores(
    logits: Float[Tensor, "rows vocabulary"], open_: _Open[S], settings: SearchSettings
) -> Float[Tensor, "sentences beam vocabulary"]:
    """The log-probability of every symbol as the next one, minus infinity where it may not come."""
    scores = torch.log_softmax(logits.float(), dim=-1)
    scores[:, list(settings.forbidden)] = -torch.inf
    by_sentence = scores.view(len(open_.sentences), settings.beam_size, -1)
    for index, sentence in enumerate(open_.sentences):
        if sentence.length < settings.min_length:
            by_sentence[index, :, settings.end_id] = -torch.inf
        if sentence.must_end:
            end = by_sentence[index, :, settings.end_id].clone()
            by_sentence[index] = -torch.inf
            by_sentence[index, :, settings.end_id] = end
    if open_.following:
        written, room = _written(open_.sentences, logits.device), [each.limit - each.length for each in open_.sentences]
        rooms = torch.tensor(room, device=logits.device).repeat_interleave(settings.beam_size)
        for each in open_.following:
            each.mask(scores, written, rooms)
    return by_sentence


def _written(sentences: Sequence[Sentence], device: torch.device) -> Int[Tensor, "rows time"]:
    """What every row has written, behind -1 where it is shorter than others."""
    longest = max(sentence.length for sentence in sentences)
    rows = chain.from_iterable(sentence.written for sentence in sentences)
    return torch.tensor([[-1] * (longest - len(ids)) + [*ids] for ids in rows], dtype=torch.long, device=device)
