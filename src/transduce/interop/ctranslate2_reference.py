"""CTranslate2 as what an import or an export is compared with."""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final, final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from transduce.interop.ctranslate2_reader import is_end_of_text, read_ctranslate2_sides
from transduce.interop.reference import Ids, Reference, library_errors

_PAD, _BEGIN, _END, _UNKNOWN = range(4)  # ours
_NONE: Final = -1


def open_ctranslate2(folder: Path, codes: Path | None = None) -> Reference:
    """A model directory in its own runtime, which ``read_ctranslate2`` can read.

    Raises:
        BadInputError: A file is missing or damaged.
        TransduceError: CTranslate2 cannot open it.
    """
    with library_errors(_CTranslate2.name, folder):
        return _CTranslate2(folder, codes)


@final
class _CTranslate2:
    """It computes in float32, on the processor; text is cut as our tokenizers do it, as it has none."""

    name = "CTranslate2"

    def __init__(self, folder: Path, codes: Path | None) -> None:
        import ctranslate2  # noqa: PLC0415 - an extra, which was found already

        self.versions = {"ctranslate2": version("ctranslate2")}
        self.weights = [folder / "model.bin"]
        self._sides, (self._source_names, self._target_names) = read_ctranslate2_sides(folder, codes)
        self._behind = [self._source_names[self._sides.source.rows[_END]]] if is_end_of_text(folder) else []
        self._translator = ctranslate2.Translator(
            str(folder), "cpu", compute_type="float32", inter_threads=1, intra_threads=torch.get_num_threads()
        )

    def logits(self, source: Ids, target: Ids) -> Float[Tensor, "positions vocabulary"]:
        """Those of a greedy search that the target is forced on: it has no other way to show them."""
        numbers = self._sides.target
        (found,) = self._translator.translate_batch(
            [self._read(source)],
            [[self._target_names[numbers.rows[each]] for each in target]],
            beam_size=1,
            min_decoding_length=0,  # else it shows the end's first logit as forbidden
            max_decoding_length=len(target) + 1,
            return_logits_vocab=True,
        )
        theirs = torch.from_numpy(np.stack([np.array(each) for each in found.logits[0]]))
        absent = ~torch.tensor(numbers.owners)
        return numbers.permute(theirs[:, : numbers.size].T).T.masked_fill(absent, float("nan"))

    def translate(self, lines: Sequence[str], beam: int, longest: int) -> list[str]:
        """As ``Reference`` says: without a penalty, its search ends as ours does."""
        tokenizers, numbers = self._sides.tokenizers, self._sides.target
        # What it begins with may be what it ends with.
        never = {numbers.rows[place] for place in (_PAD, _BEGIN)} - {_NONE, numbers.rows[_END], numbers.rows[_UNKNOWN]}
        found = self._translator.translate_batch(
            [self._read(ids) for ids in tokenizers.source.encode(lines)],
            beam_size=beam,
            length_penalty=0,
            min_decoding_length=0,  # a best output may be empty, as ours may
            max_decoding_length=longest,
            disable_unk=True,
            suppress_sequences=[[self._target_names[row]] for row in sorted(never)],
            max_batch_size=32,
        )
        ours = dict(zip(self._target_names, numbers.ours.tolist(), strict=True))
        return tokenizers.target.decode([[ours[name] for name in each.hypotheses[0]] for each in found])

    def layers(self, source: Ids, target: Ids) -> Mapping[str, Float[Tensor, "positions model"]]:
        """None: it shows no layer."""
        return {}

    def _read(self, source: Ids) -> list[str]:
        return [*(self._source_names[self._sides.source.rows[each]] for each in source), *self._behind]
