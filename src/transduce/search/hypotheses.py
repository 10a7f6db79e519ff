"""A sentence under way: its open hypotheses, and the best of those that have ended."""

import math
from dataclasses import dataclass, field
from typing import Final, final

from transduce.search.settings import Hypothesis, SearchSettings

# A continuation: its log-probability, whose it is, and the new symbol.
Candidate = tuple[float, int, int]
_NOTHING: Final = (-math.inf, 0, 0)


@final
@dataclass
class Sentence:
    """Its hypotheses have written ``length`` symbols each. At ``limit``, the end symbol counted, they must end.

    ``log_probability`` is minus infinity where a place of the beam is empty. ``ended`` is sorted, the best one first.
    """

    number: int
    limit: int
    written: list[tuple[int, ...]]
    log_probability: list[float]
    ended: list[Hypothesis] = field(default_factory=list)
    length: int = 0

    @classmethod
    def begin(cls, number: int, limit: int, settings: SearchSettings) -> "Sentence":
        """Nothing has been written."""
        # At first all hypotheses are alike: only one of them counts. Samples do not compete.
        others = -math.inf if settings.sampling is None else 0.0
        log_probability = [0.0] + [others] * (settings.beam_size - 1)
        return cls(number, max(limit, 1), [()] * settings.beam_size, log_probability)

    @property
    def must_end(self) -> bool:
        """Whether nothing but the end symbol may come next."""
        return self.length + 1 >= self.limit

    def write(
        self, candidates: list[Candidate], shortfall: list[float] | None, settings: SearchSettings
    ) -> list[Candidate]:
        """Go on with some of the candidates, which come best first, and say with which: one for each place of the beam.

        What ends among the best ``beam_size`` has ended; the best that do not end stay open. A sample stays in its
        place. ``shortfall`` is what each hypothesis has not looked at, where that counts.
        """
        beam, end = settings.beam_size, settings.end_id
        # Where it is too early, no end has a rank.
        if settings.sampling or self.length >= settings.min_length:
            for log_probability, parent, symbol in candidates[:beam]:
                if symbol == end and log_probability > -math.inf:
                    self._end(log_probability, parent, 0.0 if shortfall is None else shortfall[parent], settings)
        if settings.sampling:
            chosen = [_NOTHING if each[2] == end else each for each in candidates]
        else:
            chosen = [each for each in candidates if each[2] != end][:beam]
            chosen += [_NOTHING] * (beam - len(chosen))
        self.written = [(*self.written[parent], symbol) for _, parent, symbol in chosen]
        self.log_probability = [log_probability for log_probability, _, _ in chosen]
        self.length += 1
        return chosen

    def _end(self, log_probability: float, parent: int, shortfall: float, settings: SearchSettings) -> None:
        score = log_probability / settings.penalty(self.length + 1) + settings.coverage * shortfall
        self.ended.append(Hypothesis(self.written[parent], log_probability, score))
        self.ended.sort(key=lambda hypothesis: -hypothesis.score)
        del self.ended[max(settings.n_best, settings.beam_size) :]

    def is_certain(self, settings: SearchSettings) -> bool:
        """Whether the ``n_best`` ended hypotheses are final.

        A longer output never gains probability, so the best that an open hypothesis can still reach is its
        log-probability divided by the largest penalty ahead of it: the nearest end's or the limit's, as the penalty is
        monotonic in length. What it still leaves uncovered costs it more, or nothing.
        """
        best_open = max(self.log_probability)
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
        reachable = best_open / max(settings.penalty(self.length + 1), settings.penalty(self.limit))
        return self.ended[settings.n_best - 1].score >= reachable
