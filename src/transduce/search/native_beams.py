"""Plain beam and greedy search: a round of all sentences is one call of C++, over flat arrays."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Final, TypeVar, final

import numpy as np
import torch
from jaxtyping import Bool, Int, Int64
from torch import Tensor

from transduce.kernels import READS_NOTHING, Asked, Choices, FlatBeams, Output
from transduce.models import NO_ATTENTION, AttentionRequest, SearchingModel, State, Step
from transduce.search.constraint import ConstraintState, Restriction
from transduce.search.orders import no_finite_scores
from transduce.search.restricting import choices
from transduce.search.settings import Hypothesis, Outcome, Request, outcome

M = TypeVar("M")
S = TypeVar("S", bound=State)

# The rows of sentences that are gone leave once they are one of so many.
_MANY: Final = 8


@final
@dataclass
class NativeBeams:
    """The hypotheses of sentences that are searched for plainly, and forbid and end with the same symbols.

    They are written as ``PythonBeams`` would write them, to the last bit. ``states`` are what bounds each row's
    hypothesis, None for a free one; there are none where nothing bounds any. Sentences that are ``gone`` keep their
    rows, which read nothing, until so many are that it pays to close ranks.
    """

    searched: list[Request]
    flat: FlatBeams
    states: list[ConstraintState | None]
    gone: Bool[np.ndarray, " sentences"]

    @classmethod
    def begin(cls, requests: Sequence[Request], newest: Int[Tensor, " rows"]) -> "NativeBeams":
        """Nothing has been written yet; ``newest`` is what its rows read first."""
        settings = requests[0].settings
        asked = [_ask(request) for request in requests]
        flat = FlatBeams.begin(asked, settings.beam_size, newest, settings.forbidden, settings.end_id)
        states = [state for request in requests for state in _start(request)]
        states = states if any(state is not None for state in states) else []
        return cls(list(requests), flat, states, np.zeros(len(requests), np.bool_))

    @property
    def requests(self) -> list[Request]:
        """Of each sentence that has not gone."""
        return [request for request, gone in zip(self.searched, self.gone.tolist(), strict=True) if not gone]

    @property
    def newest(self) -> Int[Tensor, " rows"]:
        """The symbol that each row reads next."""
        return self.flat.newest

    @property
    def wanted(self) -> AttentionRequest:
        """No attention is looked at."""
        return NO_ATTENTION

    def advance(self, step: Step[State]) -> Int[Tensor, " rows"] | None:
        """Each sentence goes on with its best continuations; the rows that they continue, unless each its own.

        Raises:
            TransduceError: A log-probability is NaN.
            BadInputError: What bounds a hypothesis names a symbol that the vocabulary has not.
        """
        self.flat.advance(step.logits, step.columns, self._choices(step.vocabulary))
        self._see()
        return self.flat.rows if self.flat.moved else None

    def go_on(self, model: SearchingModel[M, S], state: S, seconds: float) -> S:
        """The model makes rounds by itself for so long, one after the other where anything bounds them; its state then.

        Raises:
            TransduceError, BadInputError: As ``advance``.
        """
        end = time.perf_counter() + seconds
        while True:
            state = model.search(state, self.flat, seconds, self._choices(model.vocabulary))
            self._see()
            if not self.states or self.flat.done == len(self.searched) or not self.flat.room:
                return state
            if time.perf_counter() >= end:
                return state

    def leave(self) -> tuple[Bool[Tensor, " sentences"] | None, list[tuple[Request, Outcome]]]:
        """Let the sentences go whose outcome is certain, and those that nobody waits for; whose rows leave, if any."""
        cancelled = [request.cancelled for request in self.searched]
        before = np.count_nonzero(self.gone)
        outcomes = []
        if self.flat.done > before or any(cancelled):
            leaving = np.flatnonzero((self.flat.certain.numpy() | cancelled) & ~self.gone)
            outputs = zip(leaving.tolist(), self.flat.outputs(leaving), strict=True)
            outcomes = [(self.searched[index], self._outcome(index, found)) for index, found in outputs]
            self._stop(leaving)
        count = before + len(outcomes)
        # Positions end with the longest output that anybody may write: nobody's rows stay for longer than that.
        if count and (count * _MANY >= len(self.gone) or self.flat.is_full(self.gone)):
            return self.settle(), outcomes
        return None, outcomes

    def settle(self) -> Bool[Tensor, " sentences"] | None:
        """The rows of all sentences that have gone leave; which those are, if any."""
        if not self.gone.any():
            return None
        done, staying, beam = torch.from_numpy(self.gone), np.flatnonzero(~self.gone), self.flat.beam
        kept = staying.tolist()
        self.searched = [self.searched[index] for index in kept]
        states = [state for index in kept for state in self.states[index * beam : (index + 1) * beam]]
        self.states = states if any(state is not None for state in states) else []
        self.gone = np.zeros(len(kept), np.bool_)
        if kept:
            self.flat.keep(staying)
        return done

    def admit(self, other: "NativeBeams") -> "NativeBeams":
        """The other's sentences come in behind these."""
        if not self.searched:
            return other
        states: list[ConstraintState | None] = []
        if self.states or other.states:
            for each in (self, other):
                states += each.states or [None] * len(each.newest)
        self.flat.admit(other.flat)
        gone = np.concatenate([self.gone, other.gone])
        return NativeBeams(self.searched + other.searched, self.flat, states, gone)

    def _stop(self, leaving: Int64[np.ndarray, " leaving"]) -> None:
        """These have gone: nothing is asked of their rows any more."""
        self.gone[leaving] = True
        self.flat.stop(leaving)
        if self.states:
            beam = self.flat.beam
            for index in leaving.tolist():
                self.states[index * beam : (index + 1) * beam] = [None] * beam

    def _choices(self, vocabulary: int) -> Choices | None:
        """What each row may be continued with in the next round; None where nothing bounds any."""
        return choices(self._restrictions(), vocabulary) if self.states else None

    def _see(self) -> None:
        """What a round has come to."""
        if self.flat.failed:
            raise no_finite_scores()
        if self.states:
            self.states = self._follow()

    def _restrictions(self) -> list[Restriction | None]:
        rooms = chain.from_iterable(repeat(room, self.flat.beam) for room in self.flat.rooms)
        return [
            None if state is None else state.restrict((), room) for state, room in zip(self.states, rooms, strict=True)
        ]

    def _follow(self) -> list[ConstraintState | None]:
        """What bounds each row, now that another symbol is written."""
        states = self.states
        return [
            None if (state := states[parent]) is None or symbol == READS_NOTHING else state.advance(symbol)
            for parent, symbol in zip(self.flat.rows.tolist(), self.flat.newest.tolist(), strict=True)
        ]

    def _outcome(self, index: int, found: list[Output]) -> Outcome:
        return outcome(self.searched[index], [Hypothesis(*each) for each in found])


def _start(request: Request) -> list[ConstraintState | None]:
    """What bounds each row of a sentence at first: only one of them has a hypothesis."""
    started = [each.start(request.number) for each in request.settings.constraints] or [None]
    return started + [None] * (request.settings.beam_size - 1)


def _ask(request: Request) -> Asked:
    settings = request.settings
    return Asked(
        limit=request.longest,
        min_length=settings.min_length,
        n_best=settings.n_best,
        full_beam=settings.stopping == "full_beam",
        penalty=settings.penalty.kind,
        alpha=settings.penalty.alpha,
    )
