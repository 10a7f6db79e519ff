"""The engine: a model made ready to run, over batches of ids."""

import copy
from collections.abc import Iterator, Sequence
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from transduce.config import Precision
from transduce.data import pad
from transduce.kernels import resolve_precision
from transduce.models import Tokens, Transformer
from transduce.search import Hypothesis, SearchSettings, beam_search, score_targets
from transduce.text import SpecialIds

Ids = list[int]


@final
class Engine:
    """A private copy of a model in one precision on one device.

    Sequences are batched by length; a batch holds at most ``batch_tokens`` source symbols, padding and the rows of the
    beam included, or one sequence.
    """

    def __init__(
        self,
        model: Transformer,
        special: SpecialIds,
        precision: Precision = "auto",
        device: torch.device | None = None,
        batch_tokens: int = 4096,
    ) -> None:
        self.device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.dtype = resolve_precision(precision, self.device)
        self._model = copy.deepcopy(model).to(self.device, self.dtype).eval().requires_grad_(requires_grad=False)
        self._special = special
        self._batch_tokens = batch_tokens

    @property
    def longest(self) -> int | None:
        """The most symbols, end symbol counted, that the model reads or writes, where there is such a limit."""
        return self._model.config.longest

    def search(self, sources: Sequence[Ids], settings: SearchSettings, max_extra_length: int) -> list[list[Hypothesis]]:
        """The best outputs of each source (ids without end symbol), in the order of the sources."""
        results: list[list[Hypothesis]] = [[] for _ in sources]
        for rows in self._batches([len(source) + 1 for source in sources], settings.beam_size):
            source = self._source([sources[row] for row in rows])
            limits = source.lengths + max_extra_length
            limits = limits if self.longest is None else limits.clamp(max=self.longest)
            found = beam_search(self._model, source, limits, settings)
            for row, hypotheses in zip(rows, found, strict=True):
                results[row] = hypotheses
        return results

    def score(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[float]:
        """The natural log-probability of each target given its source, end symbol counted."""
        results = [0.0] * len(sources)
        lengths = [max(len(s), len(t)) + 1 for s, t in zip(sources, targets, strict=True)]
        for rows in self._batches(lengths, 1):
            source = self._source([sources[row] for row in rows])
            target = self._tokens([[self._special.begin, *targets[row]] for row in rows])
            labels = self._tokens([[*targets[row], self._special.end] for row in rows])
            scores = score_targets(self._model, source, target, labels.ids)
            for row, score in zip(rows, scores.tolist(), strict=True):
                results[row] = score
        return results

    @torch.inference_mode()
    def attention(self, source: Ids, target: Ids) -> Float[Tensor, "heads target source"]:
        """How each target symbol, the end symbol last, weighs the source's, the end symbol last.

        The weights are the last decoder layer's encoder-decoder attention, from one forced pass over the output.
        """
        memory = self._model.encode(self._source([source]))
        target_tokens = self._tokens([[self._special.begin, *target]])
        return self._model.decode(memory, target_tokens, want_attention=True).attention[-1][0].float()

    def _batches(self, lengths: list[int], rows_each: int) -> Iterator[list[int]]:
        """Indices in batches of similar length, longest first, so that a batch too large for memory shows at once."""
        order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
        start = 0
        while start < len(order):
            size = max(1, self._batch_tokens // (lengths[order[start]] * rows_each))
            yield order[start : start + size]
            start += size

    def _source(self, sources: Sequence[Ids]) -> Tokens:
        return self._tokens([[*source, self._special.end] for source in sources])

    def _tokens(self, sequences: Sequence[Ids]) -> Tokens:
        ids, lengths = pad(sequences, self._special.pad)
        return Tokens(torch.from_numpy(ids).to(self.device), torch.from_numpy(lengths).to(self.device))
