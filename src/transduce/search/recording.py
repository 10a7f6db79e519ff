"""What a search writes down of its rounds, for a caller who wants to see how it went."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

# A continuation: its log-probability, the index of its hypothesis in the beam, and the new symbol.
Candidate = tuple[float, int, int]

# For each place of the beam, the most probable next symbols of its hypothesis, the most probable one first, and their
# probabilities: before anything is forbidden or forced. None at all where the place is empty.
Following = tuple[tuple[tuple[int, float], ...], ...]


@final
@dataclass(frozen=True)
class Round:
    """One round of a sentence, whose open hypotheses have written ``written`` symbols each before it.

    ``considered`` are the best continuations, best first, twice as many as the beam is wide at most; of samples, one
    each. ``kept`` are those that stay open, one for each place of the beam, its log-probability minus infinity where
    there is none. ``ended`` are those that have ended, with their scores.
    """

    written: int
    following: Following
    considered: tuple[Candidate, ...]
    kept: tuple[Candidate, ...]
    ended: tuple[tuple[Candidate, float], ...]


@final
@dataclass(eq=False)
class Recorder:
    """Writes down the rounds of the sentences whose settings name it: ``rounds``, by the sentences' numbers.

    Of the next symbols of a hypothesis it keeps the ``top`` most probable ones.
    """

    top: int = 10
    rounds: dict[int, list[Round]] = field(default_factory=dict)

    def add(self, number: int, round_: Round) -> None:
        """The next round of a sentence; the first one once more where memory was too small and it begins anew."""
        if round_.written == 0:
            self.rounds[number] = []
        self.rounds[number].append(round_)


def most_probable(logits: Float[Tensor, "beam vocabulary"], log_probability: Sequence[float], top: int) -> Following:
    """What may follow each hypothesis of a sentence, by its logits and the hypotheses' log-probabilities so far."""
    found = torch.softmax(logits.float(), dim=-1).topk(min(top, logits.shape[1]), dim=-1)
    rows = zip(log_probability, found.indices.tolist(), found.values.tolist(), strict=True)
    return tuple(
        tuple(each for each in zip(symbols, values, strict=True) if each[1] > 0) if so_far > -math.inf else ()
        for so_far, symbols, values in rows
    )
