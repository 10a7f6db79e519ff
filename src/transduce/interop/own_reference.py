"""What an export wrote, read anew by our own readers, as what it is compared with: what was written is what is read."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from transduce.bundle import Bundle, load_bundle, weights_file
from transduce.config import GenerationConfig
from transduce.inference import Translator
from transduce.interop.layer_walk import layer_outputs
from transduce.interop.logits import as_tokens, known_logits
from transduce.interop.marian_npz import read_marian
from transduce.interop.reference import Ids, Reference
from transduce.models import Transformer


def open_safetensors(folder: Path) -> Reference:
    """A model directory, read anew."""
    return _Written(load_bundle(folder), [weights_file(folder)])


def open_written_marian(folder: Path) -> Reference:
    """A folder that ``export_marian`` wrote, read anew, where there is no Marian to read it."""
    path = folder / "model.npz"
    return _Written(read_marian(path), [path])


@final
class _Written:
    """It computes in float32, on the processor."""

    name = "the written folder"

    def __init__(self, bundle: Bundle, weights: Sequence[Path]) -> None:
        self.versions: Mapping[str, str] = {}
        self.weights = weights
        self._bundle = bundle
        self._translators: dict[tuple[int, int], Translator] = {}  # that are ready, by beam and length

    def logits(self, source: Ids, target: Ids) -> Float[Tensor, "positions vocabulary"]:
        """As ours are computed."""
        return known_logits(self._bundle.model, *as_tokens((source, target), self._bundle.tokenizers.special))

    def translate(self, lines: Sequence[str], beam: int, longest: int) -> list[str]:
        """By our own search."""
        translator = self._translators.get((beam, longest))
        if translator is None:
            generation = GenerationConfig(beam_size=beam, length_penalty_kind="none", max_length=longest - 1)
            bundle = Bundle(self._bundle.model, self._bundle.tokenizers, generation)
            translator = self._translators[beam, longest] = Translator(bundle, "float32", torch.device("cpu"))
        return [each.text for each in translator.translate(list(lines), first_number=None)]

    def layers(self, source: Ids, target: Ids) -> Mapping[str, Float[Tensor, "positions model"]]:
        """Those of a Transformer."""
        if not isinstance(self._bundle.model, Transformer):
            return {}
        return layer_outputs(self._bundle.model, *as_tokens((source, target), self._bundle.tokenizers.special))
