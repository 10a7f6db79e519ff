"""The Translator: text in, text out."""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray

from transduce.bundle import Bundle, load_bundle
from transduce.config import BadInputError, GenerationConfig, Precision
from transduce.config.run import MAX_LENGTH_PENALTY
from transduce.inference.engine import Engine
from transduce.search import Hypothesis, LengthPenalty, SearchSettings
from transduce.search.settings import PenaltyKind


@final
@dataclass(frozen=True)
class Translation:
    """An output for one input.

    ``log_probability`` is natural and counts the end symbol; ``score`` is that divided by the length penalty, whose
    |y| counts it too. ``tokens`` has no end symbol. ``attention``, where it was asked for, has the shape (heads, target
    tokens + 1, source tokens + 1), the last of each being the end symbol. ``alternatives`` are the next best outputs.
    """

    text: str
    log_probability: float
    score: float
    tokens: tuple[str, ...]
    attention: NDArray[np.float32] | None = None
    alternatives: tuple["Translation", ...] = ()


_EMPTY = Translation("", 0.0, 0.0, ())


@final
class Translator:
    """A loaded model that writes one output for every input, in the order of the input, empty for empty."""

    def __init__(self, bundle: Bundle, precision: Precision = "auto", device: torch.device | None = None) -> None:
        self._tokenizer = bundle.tokenizer
        self._defaults = bundle.generation
        self._engine = Engine(bundle.model, bundle.tokenizer.special, precision, device)

    def translate(
        self,
        texts: list[str],
        beam_size: int | None = None,
        length_penalty: float | None = None,
        n_best: int = 1,
        return_attention: bool = False,
        *,
        length_penalty_kind: PenaltyKind | None = None,
    ) -> list[Translation]:
        """Translate texts, one sentence each. None means what the model's ``generation_config.json`` says.

        Text of nothing but white space is empty.

        Raises:
            BadInputError: ``beam_size``, ``n_best`` or ``length_penalty`` is out of range.
        """
        if isinstance(texts, str):
            raise BadInputError("translate takes a list of texts, not one string: put it in brackets")
        settings = self._settings(beam_size, length_penalty, length_penalty_kind, n_best)
        sources = self._tokenizer.encode(texts)
        full = [index for index, text in enumerate(texts) if text.strip()]
        found = self._engine.search([sources[index] for index in full], settings, self._defaults.max_extra_length)
        results = [_EMPTY] * len(texts)
        for index, hypotheses in zip(full, found, strict=True):
            results[index] = self._translation(hypotheses, sources[index] if return_attention else None)
        return results

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[float]:
        """The natural log-probability of each target given its source, end symbol counted."""
        return self._engine.score(self._tokenizer.encode(sources), self._tokenizer.encode(targets))

    def count_tokens(self, texts: Sequence[str]) -> int:
        """How many symbols the texts have as targets, end symbols counted."""
        return sum(len(ids) + 1 for ids in self._tokenizer.encode(texts))

    def _settings(
        self, beam_size: int | None, length_penalty: float | None, kind: PenaltyKind | None, n_best: int
    ) -> SearchSettings:
        defaults: GenerationConfig = self._defaults
        beam_size = defaults.beam_size if beam_size is None else beam_size
        if beam_size < 1:
            raise BadInputError(f"beam size {beam_size}: must be 1 (greedy) or more")
        if not 1 <= n_best <= beam_size:
            raise BadInputError(f"n-best {n_best}: must be between 1 and the beam size, {beam_size}")
        alpha = defaults.length_penalty if length_penalty is None else length_penalty
        if not -MAX_LENGTH_PENALTY <= alpha <= MAX_LENGTH_PENALTY:
            raise BadInputError(
                f"length penalty {alpha}: must be between -{MAX_LENGTH_PENALTY} and {MAX_LENGTH_PENALTY}"
            )
        special = self._tokenizer.special
        return SearchSettings(
            begin_id=special.begin,
            end_id=special.end,
            forbidden=(special.pad, special.begin, special.unknown),
            beam_size=beam_size,
            n_best=n_best,
            penalty=LengthPenalty(kind or defaults.length_penalty_kind, alpha),
        )

    def _translation(self, hypotheses: list[Hypothesis], attended: list[int] | None) -> Translation:
        texts = self._tokenizer.decode([hypothesis.ids for hypothesis in hypotheses])
        first, *others = (
            Translation(
                text,
                hypothesis.log_probability,
                hypothesis.score,
                tuple(self._tokenizer.tokens(hypothesis.ids)),
                None if attended is None else self._engine.attention(attended, list(hypothesis.ids)).cpu().numpy(),
            )
            for text, hypothesis in zip(texts, hypotheses, strict=True)
        )
        return Translation(first.text, first.log_probability, first.score, first.tokens, first.attention, tuple(others))


def load(path: str | PathLike[str], precision: Precision = "auto", device: str | None = None) -> Translator:
    """Load a model or run directory.

    Raises:
        BadInputError: It is no model directory, or a file in it is missing or damaged.
    """
    return Translator(load_bundle(Path(path)), precision, torch.device(device) if device else None)
