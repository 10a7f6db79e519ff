"""Every way of searching, sentence by sentence in Python: what constraints, samples and coverage ask for, too."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from transduce.config import BadInputError
from transduce.kernels import READS_NOTHING
from transduce.models import LAST_CROSS, NO_ATTENTION, AttentionRequest, State, Step
from transduce.search.coverage import Coverage
from transduce.search.hypotheses import Sentence
from transduce.search.ranking import rank, to_tensor
from transduce.search.recording import Following, most_probable
from transduce.search.settings import Outcome, Request, outcome


@final
@dataclass
class PythonBeams:
    """The hypotheses of sentences with the same beam, whatever else each asks for; coverage is of all or of none."""

    sentences: list[Sentence]
    newest: Int[Tensor, " rows"]
    coverage: Coverage | None

    @classmethod
    def begin(cls, requests: Sequence[Request], newest: Int[Tensor, " rows"]) -> "PythonBeams":
        """Nothing has been written yet; ``newest`` is what its rows read first."""
        settings, coverage = requests[0].settings, None
        if settings.coverage:
            lengths = torch.tensor([len(each.source) - each.unread for each in requests])
            coverage = Coverage.empty(lengths, settings.beam_size, newest.device)
        return cls([Sentence.begin(each) for each in requests], newest, coverage)

    @property
    def requests(self) -> list[Request]:
        """Of each sentence."""
        return [sentence.request for sentence in self.sentences]

    @property
    def wanted(self) -> AttentionRequest:
        """The attention that a round needs to know."""
        return NO_ATTENTION if self.coverage is None else LAST_CROSS

    def advance(self, step: Step[State]) -> Int[Tensor, " rows"] | None:
        """Each sentence goes on with its best continuations; the rows that they continue, unless each its own.

        Raises:
            BadInputError: Coverage is asked for, of a model without attention.
            TransduceError: A log-probability is NaN.
        """
        if self.coverage is not None:
            if not step.attention:
                raise BadInputError("coverage_penalty: the model has no encoder-decoder attention: leave it at 0")
            (weights,) = step.attention.values()
            self.coverage = self.coverage.add(weights)
        beam, device = len(self.newest) // len(self.sentences), self.newest.device
        shortfalls = None if self.coverage is None else self.coverage.shortfall().view(-1, beam).tolist()
        following = _look_further(step, self.sentences)
        parents, symbols = [], []
        for index, (sentence, candidates) in enumerate(zip(self.sentences, rank(step, self.sentences), strict=True)):
            chosen = sentence.write(candidates, None if shortfalls is None else shortfalls[index], following.get(index))
            parents += [index * beam + parent for _, parent, _ in chosen]
            symbols += [symbol if total > -math.inf else READS_NOTHING for total, _, symbol in chosen]
        self.newest = to_tensor(symbols, np.int64, device)
        if beam == 1 or all(sentence.request.settings.sampling is not None for sentence in self.sentences):
            return None
        rows = to_tensor(parents, np.int64, device)
        self.coverage = None if self.coverage is None else self.coverage.reorder(rows)
        return rows

    def leave(self) -> tuple[Bool[Tensor, " sentences"] | None, list[tuple[Request, Outcome]]]:
        """Let the sentences go whose outcome is certain, and those that nobody waits for; which those are, if any."""
        leaving = [sentence.is_certain() or sentence.request.cancelled for sentence in self.sentences]
        if not any(leaving):
            return None, []
        done = to_tensor(leaving, np.bool_, self.newest.device)
        beam = len(self.newest) // len(self.sentences)
        rows = (~done).repeat_interleave(beam).nonzero().squeeze(1)
        gone = [sentence for sentence, leaves in zip(self.sentences, leaving, strict=True) if leaves]
        self.sentences = [sentence for sentence, leaves in zip(self.sentences, leaving, strict=True) if not leaves]
        self.newest = self.newest[rows]
        self.coverage = None if self.coverage is None else self.coverage.reorder(rows)
        return done, [(sentence.request, outcome(sentence.request, sentence.outputs)) for sentence in gone]

    def settle(self) -> None:
        """Nobody's rows stay behind."""
        return

    def admit(self, other: "PythonBeams") -> "PythonBeams":
        """The other's sentences come in behind these."""
        both = self.coverage, other.coverage
        return PythonBeams(
            self.sentences + other.sentences,
            torch.cat([self.newest, other.newest]),
            None if both[0] is None or both[1] is None else both[0].admit(both[1]),
        )


def _look_further(step: Step[State], sentences: Sequence[Sentence]) -> dict[int, Following]:
    """What may follow the hypotheses of sentences that are recorded, by their indices; ranking uses the logits up."""
    recorders = {
        index: recorder
        for index, sentence in enumerate(sentences)
        if (recorder := sentence.request.settings.recorder) is not None
    }
    if not recorders:
        return {}
    logits = step.over_vocabulary().reshape(len(sentences), -1, step.vocabulary)
    return {
        index: most_probable(logits[index], sentences[index].log_probability, recorder.top)
        for index, recorder in recorders.items()
    }
