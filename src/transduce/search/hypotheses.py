"""A sentence in a search: its open hypotheses, and the best of those that have ended."""

import math
from bisect import insort
from dataclasses import dataclass, field
from typing import Final, final

from transduce.search.constraint import ConstraintState, Proposals, Restriction
from transduce.search.recording import Candidate, Following, Round
from transduce.search.settings import Hypothesis, Request

_NOTHING: Final = (-math.inf, 0, 0)


@final
@dataclass
class Sentence:
    """Its hypotheses have written ``length`` symbols each. At ``limit``, the end symbol counted, they must end.

    ``log_probability`` is minus infinity where a place of the beam is empty. ``constraints`` are the states of each
    hypothesis. ``ended`` is sorted, the best one first.
    """

    request: Request
    limit: int
    written: list[tuple[int, ...]]
    log_probability: list[float]
    constraints: list[tuple[ConstraintState, ...]]
    ended: list[Hypothesis] = field(default_factory=list)
    length: int = 0

    @classmethod
    def begin(cls, request: Request) -> "Sentence":
        """Nothing has been written."""
        settings, beam = request.settings, request.settings.beam_size
        # At first all hypotheses are alike: only one of them counts. Samples do not compete.
        others = -math.inf if settings.sampling is None else 0.0
        started = (constraint.start(request.number) for constraint in settings.constraints)
        states = tuple(state for state in started if state is not None)
        return cls(request, request.longest, [()] * beam, [0.0] + [others] * (beam - 1), [states] * beam)

    @property
    def must_end(self) -> bool:
        """Whether nothing but the end symbol may come next."""
        return self.length + 1 >= self.limit

    @property
    def may_end(self) -> bool:
        """Whether the end symbol may come next."""
        return self.length >= self.request.settings.min_length

    @property
    def outputs(self) -> list[Hypothesis]:
        """What has been found so far, of the ``n_best`` that are asked for."""
        return self.ended[: self.request.settings.n_best]

    def restrictions(self) -> list[list[Restriction]]:
        """What the constraints say of each hypothesis; nothing at all where there is none."""
        if not self.constraints[0]:
            return []
        room = self.limit - self.length
        return [
            [each for state in states if (each := state.restrict(written, room)) is not None]
            if log_probability > -math.inf
            else []
            for written, states, log_probability in zip(
                self.written, self.constraints, self.log_probability, strict=True
            )
        ]

    def proposals(self) -> list[list[Proposals]]:
        """What the constraints propose for each hypothesis; nothing at all where there is no proposal."""
        if not self._propose():
            return []
        proposals = [
            [each for state in states if log_probability > -math.inf and (each := state.propose()) is not None]
            for states, log_probability in zip(self.constraints, self.log_probability, strict=True)
        ]
        return proposals if any(proposals) else []

    def _propose(self) -> bool:
        """Whether any constraint does. Most never do, and this is asked in every round: without a list or generator."""
        for states in self.constraints:
            for state in states:
                if state.propose() is not None:
                    return True
        return False

    def write(
        self, candidates: list[Candidate], shortfall: list[float] | None, following: Following | None = None
    ) -> list[Candidate]:
        """Go on with some of the candidates, which come best first, and say with which: one for each hypothesis.

        What ends among the best ``beam_size`` has ended; the best that do not end stay open. A sample stays where it
        is. ``shortfall`` is what each hypothesis's attention has left out, where that counts; ``following`` is what may
        come next, where the round is recorded.
        """
        settings = self.request.settings
        beam, end, ended = settings.beam_size, settings.end_id, []
        if settings.sampling or self.may_end:
            for candidate in candidates[:beam]:
                log_probability, parent, symbol = candidate
                if symbol == end and log_probability > -math.inf:
                    score = self._end(log_probability, parent, 0.0 if shortfall is None else shortfall[parent])
                    ended.append((candidate, score))
        if settings.sampling:
            chosen = [_NOTHING if each[2] == end else each for each in candidates]
        else:
            chosen = [each for each in candidates if each[2] != end][:beam]
            chosen += [_NOTHING] * (beam - len(chosen))
        if settings.recorder is not None and following is not None:
            considered = tuple(candidates[: 2 * beam])
            round_ = Round(self.length, following, considered, tuple(chosen), tuple(ended))
            settings.recorder.add(self.request.number, round_)
        self.written = [(*self.written[parent], symbol) for _, parent, symbol in chosen]
        if self.constraints[0]:
            self.constraints = [
                tuple([state.advance(symbol) for state in self.constraints[parent]])  # sooner than of a generator
                if log_probability > -math.inf
                else self.constraints[parent]
                for log_probability, parent, symbol in chosen
            ]
        self.length += 1
        if settings.is_plain:
            chosen = self._drop_hopeless(chosen)
        self.log_probability = [log_probability for log_probability, _, _ in chosen]
        return chosen

    def _drop_hopeless(self, chosen: list[Candidate]) -> list[Candidate]:
        """Empty the places of hypotheses that cannot come among the outputs any more.

        What will take their places in the beam is less probable at the same length, and so cannot either: outputs are
        the same, to the last bit. Where more than probability decides on places, this is not so.
        """
        settings = self.request.settings
        if settings.beam_size == 1 or settings.stopping == "full_beam" or len(self.ended) < settings.n_best:
            return chosen
        worst, largest = self.ended[settings.n_best - 1].score, self._largest_penalty()
        return [each if each[0] / largest > worst else _NOTHING for each in chosen]

    def _largest_penalty(self) -> float:
        """What the best score that an open hypothesis may still come to is its log-probability divided by.

        A longer output never gains probability, and the penalty is monotonic in length: it is the largest at the
        nearest end or at the limit.
        """
        penalty = self.request.settings.penalty
        return max(penalty(self.length + 1), penalty(self.limit))

    def _end(self, log_probability: float, parent: int, shortfall: float) -> float:
        settings = self.request.settings
        score = log_probability / settings.penalty(self.length + 1) + settings.coverage * shortfall
        insort(self.ended, Hypothesis(self.written[parent], log_probability, score), key=lambda each: -each.score)
        del self.ended[max(settings.n_best, settings.beam_size) :]
        return score

    def is_certain(self) -> bool:
        """Whether the ``n_best`` ended hypotheses are final.

        None that is open can come to a better score than theirs; what it leaves uncovered can only make it worse.
        """
        settings, best_open = self.request.settings, max(self.log_probability)
        if best_open == -math.inf or self.length >= self.limit:
            return True
        if settings.sampling is not None:
            return False  # every sample comes to its own end
        if settings.beam_size == 1:
            return bool(self.ended)  # greedy search takes the first end it meets
        if settings.stopping == "full_beam":
            return len(self.ended) >= settings.beam_size
        if len(self.ended) < settings.n_best:
            return False
        return self.ended[settings.n_best - 1].score >= best_open / self._largest_penalty()
