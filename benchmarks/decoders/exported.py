"""A model that was exported to CTranslate2, in its own runtime: ids in, ids and scores out."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import final

from transduce.text import TokenizerPair

Ids = list[int]


@final
@dataclass(frozen=True)
class Found:
    """Its best output, without the end symbol, and that one's score; NaN where none was asked for."""

    ids: Ids
    score: float


@final
class ExportedModel:
    """A directory that ``interop.export_ctranslate2`` wrote, with our tokenizers beside it."""

    def __init__(self, path: Path, precision: str, workers: int, threads: int, device: str = "cpu") -> None:
        self.tokenizers = TokenizerPair.load(path)
        self._ids = self.tokenizers.target.vocabulary
        self._translator = import_module("ctranslate2").Translator(
            str(path), device, compute_type=precision, inter_threads=workers, intra_threads=threads
        )

    def search(
        self,
        sources: Sequence[Ids],
        beam: int,
        limit: int,
        batch: int,
        length_penalty: float = 0.0,
        *,
        scores: bool = False,
    ) -> list[Found]:
        """The best output of each source: at most ``limit`` symbols, end symbol counted, whatever the source's length.

        ``length_penalty`` is the alpha of |y|^alpha; with 0, the search ends when nothing open can still win, else as
        soon as ``beam`` hypotheses have ended.
        """
        results = self._translator.translate_batch(
            [self.tokenizers.source.tokens(each) for each in sources],
            beam_size=beam,
            length_penalty=length_penalty,
            max_batch_size=batch,
            min_decoding_length=0,  # its default is 1: it would never write nothing
            max_decoding_length=limit,
            return_scores=scores,
        )
        return [
            Found([self._ids[token] for token in each.hypotheses[0]], each.scores[0] if scores else float("nan"))
            for each in results
        ]

    def score(self, source: Ids, target: Ids) -> float:
        """The natural log-probability of a target, end symbol counted."""
        tokenizers = self.tokenizers
        (scored,) = self._translator.score_batch([tokenizers.source.tokens(source)], [tokenizers.target.tokens(target)])
        return float(sum(scored.log_probs))
