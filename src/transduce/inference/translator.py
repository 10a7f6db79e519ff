"""The Translator: text in, text out."""

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Final, final

import torch

from transduce.bundle import Bundle, load_bundle
from transduce.config import BadInputError, GenerationConfig, Precision
from transduce.config.run import MAX_LENGTH_PENALTY
from transduce.inference.engine import Engine
from transduce.inference.paragraphs import check_options, translate_paragraphs
from transduce.inference.translation import EMPTY, Translation, warn_of_limits
from transduce.search import Hypothesis, LengthPenalty, SearchSettings
from transduce.search.settings import PenaltyKind
from transduce.text import Tokenizer

# Of a text that an error shows, so many characters.
_SHOWN: Final = 40


@final
class Translator:
    """A loaded model that writes one output for every input, in the order of the input, empty for empty."""

    def __init__(self, bundle: Bundle, precision: Precision = "auto", device: torch.device | None = None) -> None:
        self._source, self._target = bundle.tokenizers.source, bundle.tokenizers.target
        self._defaults = bundle.generation
        self._engine = Engine(bundle.model, bundle.tokenizers.special, precision, device)

    def translate(
        self,
        texts: list[str],
        beam_size: int | None = None,
        length_penalty: float | None = None,
        n_best: int = 1,
        return_attention: bool = False,
        *,
        length_penalty_kind: PenaltyKind | None = None,
        paragraphs: bool = False,
        language: str | None = None,
        first_number: int | None = 1,
    ) -> list[Translation]:
        """Translate texts, one sentence each. None means what the model's ``generation_config.json`` says.

        Text of nothing but white space is empty. No text is cut. An output that reached the length limit may lack its
        end: a warning names the numbers of such texts.

        Args:
            texts: The sources.
            beam_size: Open hypotheses; 1 is greedy search.
            length_penalty: Alpha.
            n_best: Outputs for each text, the best one first.
            return_attention: Whether to give the attention weights of each output.
            length_penalty_kind: The formula that alpha stands in.
            paragraphs: Whether texts may have several sentences: each is translated on its own, and what stood between
                them stands between their translations. Needs the extra ``paragraphs``.
            language: The language of the sources, for splitting paragraphs: a code such as ``de``. None means ``en``.
            first_number: The number that a warning gives the first text; None leaves the warning out.

        Raises:
            BadInputError: A number is out of range, options exclude each other, or a text is longer than the positions
                that the model has learned.
        """
        if isinstance(texts, str):
            raise BadInputError("translate takes a list of texts, not one string: put it in brackets")
        settings = self._settings(beam_size, length_penalty, length_penalty_kind, n_best)
        if paragraphs:
            check_options(n_best, return_attention)
            results = translate_paragraphs(
                texts, language or "en", lambda each: self._translate(each, settings, first_number=None)
            )
        elif language is not None:
            raise BadInputError(f"language {language!r}: is for splitting paragraphs, and none are to be split")
        else:
            results = self._translate(texts, settings, return_attention, first_number)
        if first_number is not None:
            warn_of_limits(results, first_number, self._engine.longest)
        return results

    def score(self, sources: Sequence[str], targets: Sequence[str], *, first_number: int = 1) -> list[float]:
        """The natural log-probability of each target given its source, end symbol counted.

        Raises:
            BadInputError: A side of a pair, the first being number ``first_number``, is longer than the positions that
                the model has learned.
        """
        remedy = "leave the pair out"
        return self._engine.score(
            self._encode(self._source, sources, first_number, "source", remedy),
            self._encode(self._target, targets, first_number, "target", remedy),
        )

    def count_tokens(self, texts: Sequence[str]) -> int:
        """How many symbols the texts have as targets, end symbols counted."""
        return sum(len(ids) + 1 for ids in self._target.encode(texts))

    def _encode(
        self, tokenizer: Tokenizer, texts: Sequence[str], first_number: int | None, name: str, remedy: str
    ) -> list[list[int]]:
        encoded, longest = tokenizer.encode(texts), self._engine.longest
        for index, ids in enumerate(encoded):
            if longest is not None and len(ids) >= longest:
                # A sentence of a paragraph has no number that its reader would know.
                place = repr(texts[index][:_SHOWN]) if first_number is None else f"{name} {first_number + index:,}"
                raise BadInputError(
                    f"{place}: {len(ids) + 1:,} symbols with the end symbol, but the model has learned {longest:,} "
                    f"positions (max_positions): {remedy}"
                )
        return encoded

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
        special = self._target.special
        return SearchSettings(
            begin_id=special.begin,
            end_id=special.end,
            forbidden=(special.pad, special.begin, special.unknown),
            beam_size=beam_size,
            n_best=n_best,
            penalty=LengthPenalty(kind or defaults.length_penalty_kind, alpha),
        )

    def _translate(
        self,
        texts: Sequence[str],
        settings: SearchSettings,
        return_attention: bool = False,
        first_number: int | None = 1,
    ) -> list[Translation]:
        full = [index for index, text in enumerate(texts) if text.strip()]
        # White space alone is never read, and so never too long.
        read = [text if text.strip() else "" for text in texts]
        remedy = "split it (--paragraphs, or paragraphs=True)"
        sources = self._encode(self._source, read, first_number, "text", remedy)
        found = self._engine.search([sources[index] for index in full], settings, self._defaults.max_extra_length)
        results = [EMPTY] * len(texts)
        for index, hypotheses in zip(full, found, strict=True):
            results[index] = self._translation(hypotheses, sources[index], return_attention)
        return results

    def _translation(self, hypotheses: list[Hypothesis], source: list[int], return_attention: bool) -> Translation:
        texts = self._target.decode([hypothesis.ids for hypothesis in hypotheses])
        longest = len(source) + self._defaults.max_extra_length
        if self._engine.longest is not None:
            longest = min(longest, self._engine.longest - 1)
        first, *others = (
            Translation(
                text,
                hypothesis.log_probability,
                hypothesis.score,
                tuple(self._target.tokens(hypothesis.ids)),
                self._engine.attention(source, list(hypothesis.ids)).cpu().numpy() if return_attention else None,
                at_limit=len(hypothesis.ids) >= longest,
            )
            for text, hypothesis in zip(texts, hypotheses, strict=True)
        )
        return replace(first, alternatives=tuple(others))


def load(path: str | PathLike[str], precision: Precision = "auto", device: str | None = None) -> Translator:
    """Load a model or run directory.

    Raises:
        BadInputError: It is no model directory, or a file in it is missing or damaged.
    """
    return Translator(load_bundle(Path(path)), precision, torch.device(device) if device else None)
