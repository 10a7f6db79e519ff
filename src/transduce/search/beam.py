"""Beam search over the contract (section 6.1); with a beam of one it is greedy search.

Each round reads one symbol in every open hypothesis and ranks all continuations of a sentence together. A hypothesis
that ends among the best ``beam`` continuations has ended; the best ``beam`` that do not end stay open. A sentence is
done when the stopping rule says so: it leaves at once, and others that wait take its place. So the sentences of one
round may have written differently much. Sampling is the same loop, with hypotheses that do not compete: each has one
continuation, which is drawn. Where memory is too small for the sentences of a round, they begin anew in smaller groups.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Generic, TypeVar, final

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from transduce.kernels import is_out_of_memory, rank_continuations
from transduce.models import Model, State, Step, Tokens
from transduce.search.constraint import ConstraintState
from transduce.search.coverage import Coverage
from transduce.search.hypotheses import Candidate, Sentence
from transduce.search.ranking import Ranked, draw_samples, rank_by_probability, rank_diversely, rank_in_banks
from transduce.search.settings import Failure, Hypothesis, NothingFound, SearchSettings, TooLittleMemory

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

    def alone(self, row: int) -> "Newcomers":
        """One of them as if it came alone."""
        lengths = self.source.lengths[row : row + 1]
        source = Tokens(self.source.ids[row : row + 1, : int(lengths)], lengths)
        return Newcomers(source, [self.limits[row]], [self.numbers[row]])

    @classmethod
    def together(cls, each: Sequence["Newcomers"]) -> "Newcomers":
        """Several as if they came at once."""
        longest = max(one.source.ids.shape[1] for one in each)
        ids = [F.pad(one.source.ids, (0, longest - one.source.ids.shape[1])) for one in each]
        source = Tokens(torch.cat(ids), torch.cat([one.source.lengths for one in each]))
        return cls(source, [x for one in each for x in one.limits], [x for one in each for x in one.numbers])


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
    constraint_states: tuple[ConstraintState, ...]
    coverage: Coverage | None


# A sentence's outputs, best first, or why it has none.
Outcome = list[Hypothesis] | Failure


@final
@dataclass
class _Roster:
    """What a search has taken and not yet finished, so that nothing is lost where memory is too small for all of it.

    ``begun`` are the sentences under way: with whom each came, and its row there. ``waiting`` are those that begin
    anew. No more than ``room`` are under way at a time, where there is such a limit.
    """

    source: Take
    begun: dict[int, tuple[Newcomers, int]] = field(default_factory=dict)
    waiting: list[Newcomers] = field(default_factory=list)
    room: int | None = None

    def take(self, held: Sequence[int]) -> Newcomers | None:
        """The next sentences beside those that are held: what has to begin anew comes first."""
        free = None if self.room is None else max(self.room - len(held), 0)
        if free == 0:
            return None
        newcomers = None
        if not self.waiting:
            newcomers = self.source(held)
            if newcomers is not None and free is not None:
                self.waiting = [newcomers.alone(row) for row in range(len(newcomers.numbers))]
        if self.waiting:
            newcomers = Newcomers.together(self.waiting[:free])
            del self.waiting[:free]
        if newcomers is not None:
            self.begun |= {number: (newcomers, row) for row, number in enumerate(newcomers.numbers)}
        return newcomers

    def begin_anew(self) -> int | None:
        """All that is under way, in groups half as large; the number of a sentence that was alone and cannot."""
        begun, self.begun = self.begun, {}
        if len(begun) == 1:
            self.room = None  # it was this one's fault: the others need not suffer
            return next(iter(begun))
        self.waiting = [newcomers.alone(row) for newcomers, row in begun.values()] + self.waiting
        self.room = len(begun) // 2
        return None


@torch.inference_mode()
def beam_search(model: Model[M, S], take: Take, settings: SearchSettings) -> Iterator[tuple[int, Outcome]]:
    """Each sentence's number and its ``n_best`` best outputs, best first, as soon as they are certain.

    There are fewer outputs where the constraints leave no more, and where they leave none, or memory is too small for
    the sentence even alone, its failure comes in their place: the others go on.

    Raises:
        TransduceError: The model's scores are no numbers.
    """
    roster = _Roster(take)
    while True:
        try:
            for number, outcome in _search(model, roster.take, settings):
                roster.begun.pop(number)
                yield number, outcome
            break
        except (RuntimeError, MemoryError) as error:
            if not (is_out_of_memory(error) and roster.begun):
                raise
            reason = str(error) or type(error).__name__
        # Only here have the failed search's tensors gone with its error.
        if (failed := roster.begin_anew()) is not None:
            yield failed, TooLittleMemory(reason)


def _search(model: Model[M, S], take: Take, settings: SearchSettings) -> Iterator[tuple[int, Outcome]]:
    """``beam_search`` where memory is enough."""
    newcomers = take(())
    if newcomers is None:
        return
    open_ = _begin(model, newcomers, settings)
    while open_.sentences:
        open_, done = _leave(_advance(model, open_, settings), settings)
        for sentence in done:
            yield sentence.number, sentence.ended[: settings.n_best] or NothingFound(sentence.limit)
        if done and (newcomers := take([sentence.number for sentence in open_.sentences])) is not None:
            open_ = _admit(open_, _begin(model, newcomers, settings))


def _begin(model: Model[M, S], newcomers: Newcomers, settings: SearchSettings) -> _Open[S]:
    source, beam, device = newcomers.source, settings.beam_size, newcomers.source.ids.device
    pairs = zip(newcomers.numbers, newcomers.limits, strict=True)
    return _Open(
        model.start(model.encode(source), beam, allowed=settings.allowed(source, newcomers.numbers)),
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
        tuple(a.admit(b) for a, b in zip(open_.constraint_states, other.constraint_states, strict=True)),
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
    return replace(open_, constraint_states=tuple(each.advance(newest) for each in open_.constraint_states))


def _reorder(open_: _Open[S], rows: Int[Tensor, " rows"]) -> _Open[S]:
    """What every row remembers, from the row that it goes on from."""
    return replace(
        open_,
        state=open_.state.reorder(rows),
        constraint_states=tuple(each.reorder(rows) for each in open_.constraint_states),
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
        constraint_states=tuple(each.reorder(rows) for each in open_.constraint_states),
        coverage=None if open_.coverage is None else open_.coverage.reorder(rows),
    )
    return staying, [sentence for sentence, gone in zip(open_.sentences, certain, strict=True) if gone]


def _rank(step: Step[S], open_: _Open[S], settings: SearchSettings) -> Iterator[list[Candidate]]:
    """The continuations of each sentence that the settings ask for, best first."""
    so_far = torch.tensor([sentence.log_probability for sentence in open_.sentences], device=step.logits.device)
    if settings.sampling is None and not open_.constraint_states and not settings.diversity:
        return _rank_freely(step, so_far, open_.sentences, settings).candidates()
    scores = _scores(step.over_vocabulary(), open_, settings)
    if settings.sampling is not None:
        places = ([getattr(each, name) for each in open_.sentences] for name in ("number", "length"))
        return draw_samples(scores, so_far, settings.sampling, *places).candidates()
    total = scores + so_far.unsqueeze(-1)
    proposals = [proposed for each in open_.constraint_states if (proposed := each.propose()) is not None]
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
    if open_.constraint_states:
        written, room = _written(open_.sentences, logits.device), [each.limit - each.length for each in open_.sentences]
        rooms = torch.tensor(room, device=logits.device).repeat_interleave(settings.beam_size)
        for each in open_.constraint_states:
            each.mask(scores, written, rooms)
    return by_sentence


def _written(sentences: Sequence[Sentence], device: torch.device) -> Int[Tensor, "rows time"]:
    """What every row has written, behind -1 where it is shorter than others."""
    longest = max(sentence.length for sentence in sentences)
    rows = chain.from_iterable(sentence.written for sentence in sentences)
    return torch.tensor([[-1] * (longest - len(ids)) + [*ids] for ids in rows], dtype=torch.long, device=device)
