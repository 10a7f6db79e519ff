"""CTranslate2 as what an export is compared with."""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from transduce.interop.reference import Ids, Reference
from transduce.text import TokenizerPair
from transduce.text.tokenizer import BEGIN, PAD


def open_ctranslate2(folder: Path) -> Reference:
    """A model directory that ``export_ctranslate2`` wrote, in its own runtime."""
    return _CTranslate2(folder)


@final
class _CTranslate2:
    """It computes in float32, on the processor."""

    name = "CTranslate2"

    def __init__(self, folder: Path) -> None:
        import ctranslate2  # noqa: PLC0415 - an extra, which the export has already found

        self.versions = {"ctranslate2": version("ctranslate2")}
        self.weights = [folder / "model.bin"]
        self._tokenizers = TokenizerPair.load(folder)
        self._translator = ctranslate2.Translator(
            str(folder), "cpu", compute_type="float32", inter_threads=1, intra_threads=torch.get_num_threads()
        )

    def logits(self, source: Ids, target: Ids) -> Float[Tensor, "positions vocabulary"]:
        """Those of a greedy search that the target is forced on: it has no other way to show them."""
        (found,) = self._translator.translate_batch(
            [self._tokenizers.source.tokens(source)],
            [self._tokenizers.target.tokens(target)],
            beam_size=1,
            min_decoding_length=0,  # else it shows the end's first logit as forbidden
            max_decoding_length=len(target) + 1,
            return_logits_vocab=True,
        )
        return torch.from_numpy(np.stack([np.array(each) for each in found.logits[0]]))

    def translate(self, lines: Sequence[str], beam: int, longest: int) -> list[str]:
        """As ``Reference`` says: without a penalty, its search ends as ours does."""
        tokenizers = self._tokenizers
        found = self._translator.translate_batch(
            [tokenizers.source.tokens(ids) for ids in tokenizers.source.encode(lines)],
            beam_size=beam,
            length_penalty=0,
            max_decoding_length=longest,
            disable_unk=True,
            suppress_sequences=[[PAD], [BEGIN]],
            max_batch_size=32,
        )
        ids = tokenizers.target.vocabulary
        return tokenizers.target.decode([[ids[token] for token in each.hypotheses[0]] for each in found])

    def layers(self, source: Ids, target: Ids) -> Mapping[str, Float[Tensor, "positions model"]]:
        """None: it shows no layer."""
        return {}
