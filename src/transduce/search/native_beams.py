"""Plain beam and greedy search: a round of all sentences is one call of C++, over flat arrays."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import final

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from transduce.kernels import READS_NOTHING, Asked, FlatBeams
from transduce.models import NO_ATTENTION, AttentionRequest, State, Step
from transduce.search.constraint import ConstraintState, Restriction
from transduce.search.orders import no_finite_scores
from transduce.search.restricting import choices
from transduce.search.settings import Hypothesis, Outcome, Request, outcome


@final
@dataclass
class NativeBeams:
    """The hypotheses of sentences that are searched for plainly, and forbid and end with the same symbols.

    They are written as ``PythonBeams`` would write them, to the last bit. ``states`` are what bounds each row's
    hypothesis, None for a free one; there are none where nothing bounds any.
    """

    requests: list[Request]
    flat: FlatBeams
    states: list[ConstraintState | None]

    @classmethod
    def begin(cls, requests: Sequence[Request], newest: Int[Tensor, " rows"]) -> "NativeBeams":
        """Nothing has been written yet; ``newest`` is what its rows read first."""
        settings = requests[0].settings
        asked = [_ask(request) for request in requests]
        flat = FlatBeams.begin(asked, settings.beam_size, newest, settings.forbidden, settings.end_id)
        states = [state for request in requests for state in _start(request)]
        return cls(list(requests), flat, states if any(state is not None for state in states) else [])

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
        """
        few = choices([*self._restrictions()], step.vocabulary) if self.states else None
        if not self.flat.advance(step.logits, step.columns, few):
            raise no_finite_scores()
        if self.states:
            self.states = [*self._follow()]
        return self.flat.rows if self.flat.moved else None

    def leave(self) -> tuple[Bool[Tensor, " sentences"] | None, list[tuple[Request, Outcome]]]:
        """Let the sentences go whose outcome is certain, and those that nobody waits for; which those are, if any."""
        cancelled = [request.cancelled for request in self.requests]
        if not (self.flat.done or any(cancelled)):
            return None, []
        done = self.flat.certain | torch.tensor(cancelled)
        gone, staying = (np.flatnonzero(each).tolist() for each in (done.numpy(), ~done.numpy()))
        outcomes = [(self.requests[index], self._outcome(index)) for index in gone]
        beam = self.flat.beam
        self.requests = [self.requests[index] for index in staying]
        self.states = [state for index in staying for state in self.states[index * beam : (index + 1) * beam]]
        if staying:
            self.flat.keep(np.array(staying, np.int64))
        return done, outcomes

    def admit(self, other: "NativeBeams") -> "NativeBeams":
        """The other's sentences come in behind these."""
        if not self.requests:
            return other
        states: list[ConstraintState | None] = []
        if self.states or other.states:
            for each in (self, other):
                states += each.states or [None] * len(each.newest)
        self.flat.admit(other.flat)
        return NativeBeams(self.requests + other.requests, self.flat, states)

    def _restrictions(self) -> Iterator[Restriction | None]:
        """What each row may be continued with."""
        states = iter(self.states)
        for room in self.flat.rooms:
            for state in islice(states, self.flat.beam):
                yield None if state is None else state.restrict((), room)

    def _follow(self) -> Iterator[ConstraintState | None]:
        """What bounds each row, now that another symbol is written."""
        for parent, symbol in zip(self.flat.rows.tolist(), self.flat.newest.tolist(), strict=True):
            state = self.states[parent]
            yield None if state is None or symbol == READS_NOTHING else state.advance(symbol)

    def _outcome(self, index: int) -> Outcome:
        return outcome(self.requests[index], [Hypothesis(*each) for each in self.flat.outputs(index)])


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
