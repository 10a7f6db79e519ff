"""Plain beam and greedy search: a round of all sentences is one call of C++, over flat arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from transduce.kernels import Asked, FlatBeams
from transduce.models import NO_ATTENTION, AttentionRequest, State, Step
from transduce.search.ranking import no_finite_scores
from transduce.search.settings import Hypothesis, Outcome, Request, outcome


@final
@dataclass
class NativeBeams:
    """The hypotheses of sentences that are searched for plainly, and forbid and end with the same symbols.

    They are written as ``PythonBeams`` would write them, to the last bit.
    """

    requests: list[Request]
    flat: FlatBeams

    @classmethod
    def begin(cls, requests: Sequence[Request], newest: Int[Tensor, " rows"]) -> "NativeBeams":
        """Nothing has been written yet; ``newest`` is what its rows read first."""
        settings = requests[0].settings
        asked = [_ask(request) for request in requests]
        flat = FlatBeams.begin(asked, settings.beam_size, newest, settings.forbidden, settings.end_id)
        return cls(list(requests), flat)

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
        if not self.flat.advance(step.logits, step.columns):
            raise no_finite_scores()
        return self.flat.rows if self.flat.moved else None

    def leave(self) -> tuple[Bool[Tensor, " sentences"] | None, list[tuple[Request, Outcome]]]:
        """Let the sentences go whose outcome is certain, and those that nobody waits for; which those are, if any."""
        cancelled = [request.cancelled for request in self.requests]
        if not (self.flat.done or any(cancelled)):
            return None, []
        done = self.flat.certain | torch.tensor(cancelled)
        gone, staying = (np.flatnonzero(each).tolist() for each in (done.numpy(), ~done.numpy()))
        outcomes = [(self.requests[index], self._outcome(index)) for index in gone]
        self.requests = [self.requests[index] for index in staying]
        if staying:
            self.flat.keep(np.array(staying, np.int64))
        return done, outcomes

    def admit(self, other: "NativeBeams") -> "NativeBeams":
        """The other's sentences come in behind these."""
        if not self.requests:
            return other
        self.flat.admit(other.flat)
        return NativeBeams(self.requests + other.requests, self.flat)

    def _outcome(self, index: int) -> Outcome:
        return outcome(self.requests[index], [Hypothesis(*each) for each in self.flat.outputs(index)])


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
