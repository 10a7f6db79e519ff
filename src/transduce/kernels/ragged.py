"""Sequences of different lengths in one ragged batch, without padding."""

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from transduce.kernels.device import send
from transduce.kernels.seeds import derive


@final
@dataclass(frozen=True)
class RaggedLayout:
    """Where the symbols of a ragged batch are: those of row b, then those of row b + 1, without padding.

    ``lengths`` and ``offsets`` (where each row begins, and at last where all end) are on the CPU; ``indices``, on the
    device of the symbols, are each symbol's index in the flattened padded batch of ``longest`` columns.
    ``row_seeds`` is what the random numbers of each row follow from, where that is given; ``counted`` are the symbols
    that count in a training, where not all do.
    """

    lengths: Int[Tensor, " batch"]
    offsets: Int[Tensor, " ends"]
    indices: Int[Tensor, " tokens"]
    longest: int
    row_seeds: Int[Tensor, " batch"] | None = None
    padded: bool = True  # whether there is such a batch
    counted: Bool[Tensor, " tokens"] | None = None

    @classmethod
    def of(
        cls,
        lengths: Int[Tensor, " batch"],
        longest: int,
        device: torch.device,
        seeds: Int[Tensor, " batch"] | None = None,
    ) -> "RaggedLayout":
        """The layout of rows of so many symbols each, padded to ``longest``.

        Raises:
            ValueError: A row has more symbols than that, or fewer than none.
        """
        lengths = lengths.cpu()
        # Worked out on the processor, whatever the device: there, to count symbols is to wait for all work before it.
        counts = lengths.numpy()
        # Kernels index by them.
        if len(counts) and not (counts.min() >= 0 and counts.max() <= longest):
            raise ValueError(f"lengths from {counts.min():,} to {counts.max():,} in {longest:,} columns")
        offsets = np.zeros(len(counts) + 1, np.int64)
        counts.cumsum(out=offsets[1:])
        indices = np.flatnonzero(np.arange(longest) < counts[:, np.newaxis])
        seeds = None if seeds is None else send(seeds, device)
        return cls(lengths, torch.from_numpy(offsets), send(torch.from_numpy(indices), device), longest, seeds)

    @classmethod
    def flat(
        cls,
        offsets: Int[Tensor, " ends"],
        longest: int,
        boundaries: Int[Tensor, " ends"],
        columns: Int[Tensor, " tokens"],
        seeds: Int[Tensor, " tokens"] | None,
    ) -> "RaggedLayout":
        """The layout of symbols that lie in one row without padding already, of which all is known on their device.

        ``longest`` may be more than the longest row has. Such a layout knows no padded batch.
        """
        indices = torch.arange(len(columns), device=columns.device)
        layout = cls(offsets.diff(), offsets, indices, longest, padded=False)
        layout.__dict__.update(
            boundaries=boundaries, columns=columns, seeds=seeds
        )  # what is else worked out when asked for
        return layout

    @property
    def tokens(self) -> int:
        """How many symbols there are."""
        return self.indices.shape[0]

    @cached_property
    def boundaries(self) -> Int[Tensor, " ends"]:
        """``offsets`` where the symbols are, as CUDA's kernels read them."""
        return send(self.offsets.int(), self.indices.device)

    @cached_property
    def columns(self) -> Int[Tensor, " tokens"]:
        """Each symbol's position in its row."""
        return self.indices % self.longest

    @cached_property
    def seeds(self) -> Int[Tensor, " tokens"] | None:
        """What each symbol's random numbers follow from: its row's seed and its column, and nothing else."""
        if self.row_seeds is None:
            return None
        return derive(self.row_seeds.index_select(0, self.indices // self.longest), self.columns)

    @cached_property
    def real(self) -> Bool[Tensor, "batch longest"]:
        """Which elements of the padded batch hold symbols."""
        self._require_padded()
        flat = torch.zeros(len(self.lengths) * self.longest, dtype=torch.bool, device=self.indices.device)
        return flat.index_fill(0, self.indices, True).view(-1, self.longest)

    def flatten(self, padded: Shaped[Tensor, "batch longest *rest"]) -> Shaped[Tensor, "tokens *rest"]:
        """The symbols of a padded batch, without the padding."""
        return padded.flatten(0, 1).index_select(0, self.indices)

    def pad(self, ragged: Shaped[Tensor, "tokens *rest"]) -> Shaped[Tensor, "batch longest *rest"]:
        """The padded batch, zeros where there is no symbol.

        Raises:
            RuntimeError: The layout is a flat one.
        """
        self._require_padded()
        flat = ragged.new_zeros(len(self.lengths) * self.longest, *ragged.shape[1:])
        return flat.index_copy(0, self.indices, ragged).view(-1, self.longest, *ragged.shape[1:])

    def _require_padded(self) -> None:
        if not self.padded:
            raise RuntimeError("a flat layout knows no padded batch")
