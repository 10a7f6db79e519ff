"""A model by PyTorch's own functions, as what an import is compared with where its library is not run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, Protocol, assert_never, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transduce.config import BadInputError
from transduce.interop.eole import load_eole
from transduce.interop.fairseq import load_fairseq
from transduce.interop.joeynmt import load_joeynmt
from transduce.interop.opennmt import load_opennmt
from transduce.interop.plain_layouts import plain_eole, plain_fairseq, plain_joeynmt, plain_opennmt, plain_sockeye
from transduce.interop.plain_search import NextLogits, beam_search
from transduce.interop.reference import Ids, Reference, library_errors
from transduce.interop.sockeye import load_sockeye
from transduce.interop.vocabularies import Sides

PlainFormat = Literal["fairseq", "opennmt", "eole", "joeynmt", "sockeye"]
_PAD, _BEGIN, _END, _UNKNOWN = range(4)  # ours
_NONE: Final = -1


class Computation(Protocol):
    """A model that knows the other library's ids alone."""

    def encode(
        self, source: Int[Tensor, " positions"], outputs: dict[str, Tensor] | None = None
    ) -> Float[Tensor, "one positions model"]:
        """What the decoder reads; ``outputs`` is given what each layer hands on."""
        ...

    def decode(
        self,
        memory: Float[Tensor, "one memory model"],
        targets: Int[Tensor, "hypotheses positions"],
        outputs: dict[str, Tensor] | None = None,
    ) -> Float[Tensor, "hypotheses positions vocabulary"]:
        """The logits behind every symbol of several targets of one source."""
        ...


def open_plain(path: Path, format_: PlainFormat, codes: Path | None = None) -> Reference:
    """A model's weights in plain functions of PyTorch, which the reader of its format can read.

    Raises:
        BadInputError: A file is missing or damaged.
        TransduceError: An extra is not installed, or PyTorch's functions cannot compute it.
    """
    source_end = True
    match format_:
        case "fairseq":
            library, stored, layout = "fairseq", load_fairseq(path, codes), plain_fairseq
        case "opennmt":
            library, stored, layout, source_end = "OpenNMT-py", load_opennmt(path, codes), plain_opennmt, False
        case "eole":
            library, stored, layout, source_end = "eole", load_eole(path, codes), plain_eole, False
        case "joeynmt":
            library, stored, layout = "JoeyNMT", load_joeynmt(path, codes), plain_joeynmt
        case "sockeye":
            library, stored, layout = "Sockeye", load_sockeye(path, codes), plain_sockeye
        case _:
            assert_never(format_)
    name = f"{library}'s weights in PyTorch's functions"
    with library_errors(name, stored.path):
        computation = layout(stored)
    return ComputedReference(name, computation, stored.sides, stored.paths, source_end=source_end)


@final
class ComputedReference:
    """A computation in float32, on the processor, with a plain search; text is cut as our tokenizers do it.

    Raises:
        BadInputError: The target's vocabulary has no symbol with which a decoder could begin.
    """

    def __init__(
        self, name: str, computation: Computation, sides: Sides, weights: Sequence[Path], *, source_end: bool
    ) -> None:
        if sides.target.rows[_BEGIN] == _NONE:
            raise BadInputError(f"{weights[0]}: the target's vocabulary lacks the symbol that the decoder begins with")
        self.name = name
        self.versions: Mapping[str, str] = {}
        self.weights = weights
        self._computation = computation
        self._sides = sides
        self._source_end = source_end

    @torch.inference_mode()
    def logits(self, source: Ids, target: Ids) -> Float[Tensor, "positions vocabulary"]:
        """As ``Reference`` says."""
        memory = self._computation.encode(self._read(source))
        found = self._computation.decode(memory, self._written(target))[0]
        absent = ~torch.tensor(self._sides.target.owners)
        return self._sides.target.permute(found.T).T.masked_fill(absent, float("nan"))

    @torch.inference_mode()
    def translate(self, lines: Sequence[str], beam: int, longest: int) -> list[str]:
        """As ``Reference`` says."""
        tokenizers, numbers = self._sides.tokenizers, self._sides.target
        never = {row for place in (_PAD, _BEGIN, _UNKNOWN) if (row := numbers.rows[place]) != _NONE}
        ours, outputs = numbers.ours.tolist(), []
        end = numbers.rows[_END]
        for source in tokenizers.source.encode(lines):
            # What it begins with may be what it ends with.
            found = beam_search(self._decoder_of(source), numbers.rows[_BEGIN], end, never - {end}, beam, longest)
            outputs.append([ours[each] for each in found])
        return tokenizers.target.decode(outputs)

    def _decoder_of(self, source: Ids) -> NextLogits:
        memory = self._computation.encode(self._read(source))
        return lambda prefixes, _: self._computation.decode(memory, prefixes)[:, -1]

    @torch.inference_mode()
    def layers(self, source: Ids, target: Ids) -> Mapping[str, Float[Tensor, "positions model"]]:
        """What every layer hands on."""
        outputs: dict[str, Tensor] = {}
        memory = self._computation.encode(self._read(source), outputs)
        self._computation.decode(memory, self._written(target), outputs)
        return outputs

    def _read(self, source: Ids) -> Tensor:
        rows = self._sides.source.rows
        return torch.tensor([*(rows[each] for each in source), *([rows[_END]] if self._source_end else [])])

    def _written(self, target: Ids) -> Tensor:
        rows = self._sides.target.rows
        return torch.tensor([[rows[_BEGIN], *(rows[each] for each in target)]])
