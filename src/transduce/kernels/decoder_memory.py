"""What a decoder keeps in buffers that the C++ kernels read and write: of its sources, and of what it has read."""

from dataclasses import dataclass, field
from typing import Final, final

import torch
from jaxtyping import Float32, Int64, Shaped
from torch import Tensor

from transduce.kernels.interface import MemoryAddress, PastAddress
from transduce.kernels.native import address

# How many numbers the kernels take together: sources, and the values of a head, are padded to whole vectors.
_VECTOR: Final = 16
# Past::kSums of stack.h: how many sums average attention keeps of a row.
SUMS: Final = 2


def whole_vectors(numbers: int) -> int:
    """How many there are with the padding behind them."""
    return numbers + -numbers % _VECTOR


@final
@dataclass(frozen=True)
class NativeMemory:
    """The keys and values of cross-attention in a decoder's layers, once for each sentence.

    In its slot, a sentence's are contiguous and padded to whole vectors of its own length: (heads, d_k, own columns)
    and (heads, own columns, wide). So they are the same in any slot.
    """

    keys: Shaped[Tensor, "layers slots columns keys"]
    values: Shaped[Tensor, "layers slots columns wide"]
    lengths: Int64[Tensor, " slots"]
    sizes: tuple[torch.dtype, int, int, int] = field(init=False, repr=False, compare=False)
    address: MemoryAddress = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Look where it lies, once for all steps."""
        (layers, slots, columns, keys), dtype = self.keys.shape, self.keys.dtype
        values = self.values.shape[3]
        found = MemoryAddress(
            address(self.keys, dtype, layers, slots, columns, keys),
            address(self.values, dtype, layers, slots, columns, values),
            *(address(self.lengths, torch.long, slots), slots, columns),
        )
        object.__setattr__(self, "sizes", (dtype, layers, keys, values))
        object.__setattr__(self, "address", found)


@final
@dataclass(frozen=True)
class NativeKeyValues:
    """The keys and values of what has been read: row b of a slot's beam holds what row b of its sentence wrote.

    Those of a column lie together, so that columns that nothing is written to take no memory, but for a page's rest.
    """

    keys: Shaped[Tensor, "layers slots beam columns heads d_k"]
    values: Shaped[Tensor, "layers slots beam columns heads d_v"]
    sizes: tuple[torch.dtype, int, int, int, int, int] = field(init=False, repr=False, compare=False)
    address: PastAddress = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Look where it lies, once for all steps."""
        shape, dtype = self.keys.shape, self.keys.dtype
        layers, slots, beam, columns, heads, d_k = shape
        d_v = self.values.shape[5]
        keys = address(self.keys, dtype, *shape)
        values = address(self.values, dtype, *shape[:5], d_v)
        object.__setattr__(self, "sizes", (dtype, layers, beam, heads, d_k, d_v))
        object.__setattr__(self, "address", PastAddress(keys, values, None, slots, columns))

    @property
    def capacity(self) -> int:
        """How many symbols there is room for."""
        return int(self.address.capacity)

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """All that it keeps."""
        return self.keys, self.values

    def resized(self, slots: int, capacity: int) -> "NativeKeyValues":
        """Room for so many symbols in so many slots, in which nothing is written yet."""
        return NativeKeyValues(*(_resized(part, slots, capacity) for part in self.parts))


@final
@dataclass(frozen=True)
class NativeSums:
    """What average attention keeps of what has been read, laid as keys are: the sums of the vectors up to a column.

    They are float32 in every number format. The newest is made of the one before: two columns are taken by turns,
    whatever the ``capacity``, which is how many symbols rows may read.
    """

    sums: Float32[Tensor, "layers slots beam 2 model"]
    capacity: int
    sizes: tuple[torch.dtype, int, int, int] = field(init=False, repr=False, compare=False)
    address: PastAddress = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Look where it lies, once for all steps."""
        layers, slots, beam, _, width = self.sums.shape
        sums = address(self.sums, torch.float32, layers, slots, beam, SUMS, width)
        object.__setattr__(self, "sizes", (torch.float32, layers, beam, width))
        object.__setattr__(self, "address", PastAddress(None, None, sums, slots, self.capacity))

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """All that it keeps."""
        return (self.sums,)

    def resized(self, slots: int, capacity: int) -> "NativeSums":
        """Room for so many symbols in so many slots, in which nothing is written yet."""
        return NativeSums(_resized(self.sums, slots, SUMS), capacity)


NativePast = NativeKeyValues | NativeSums


def _resized(part: Tensor, slots: int, columns: int) -> Tensor:
    layers, _, beam, _, *widths = part.shape
    return part.new_empty(layers, slots, beam, columns, *widths)
