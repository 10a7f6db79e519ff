"""The products of training's linear maps, shape by shape: our kernels, other builds of them, and PyTorch's.

    python -m benchmarks.map_speed [--sizes base,recipe,tiny] [--rounds N] [--library NAME=FILE ...] [--quick]

Of each map of a model: forward with its bias, all gradients, and those of weights and biases alone, in bfloat16, of as
many rows as a step has. All take turns, every call with other tensors than the one before, as in a step. PyTorch
multiplies weights that are in bfloat16 already, and rounds their gradients; ours round them on the way, and do not.
--library adds a build of the kernels (a native_*.so) of the same kind, to compare a change with what was before.
Medians in TFLOP/s; prints a Markdown table and writes nothing. --quick shows in seconds that all of it works.
"""

import argparse
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import CDLL
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Final, final
from unittest.mock import patch

import torch

from benchmarks.page import circumstances, table
from benchmarks.peers.sizes import make_config, parse_sizes
from benchmarks.rounds import alternate
from transduce.config import TransformerConfig
from transduce.kernels import native
from transduce.kernels.linear_maps import has_map_rows, lay_down, map_rows, map_rows_backward

VOCABULARY: Final = 8_000
SETS: Final = 3  # of tensors, which the caches do not hold together
KINDS: Final = {"forward": 1, "all gradients": 2, "weights' gradients": 1}  # and how many products each is
OURS, TORCH = "ours", "PyTorch"


@final
@dataclass(frozen=True)
class Shape:
    """Maps of the same rows, done as one product."""

    name: str
    rows: int
    inputs: int
    outputs: tuple[int, ...]

    @property
    def operations(self) -> int:
        """Of one product, a multiplication and an addition each."""
        return 2 * self.rows * self.inputs * sum(self.outputs)

    def __str__(self) -> str:
        return f"{self.name}: {self.rows:,} x {self.inputs:,} to {' + '.join(map(str, self.outputs))}"


def shapes_of(config: TransformerConfig, rows: int) -> list[Shape]:
    """The maps of a Transformer's layers and of the symbols' projection, each once."""
    d, hidden, keys, values = config.d_model, config.d_ff, config.heads * config.d_k, config.heads * config.d_v
    return [
        Shape("queries, keys and values", rows, d, (keys, keys, values)),
        Shape("heads' output", rows, values, (d,)),
        Shape("feed-forward, first", rows, d, (hidden,)),
        Shape("feed-forward, second", rows, hidden, (d,)),
        Shape("projection", rows, d, (config.vocab_size,)),
    ]


@final
class Tensors:
    """What the products of a shape read and write."""

    def __init__(self, shape: Shape) -> None:
        width = sum(shape.outputs)
        self.x = torch.randn(shape.rows, shape.inputs).bfloat16()
        self.gradient = torch.randn(shape.rows, width).bfloat16()
        self.of_x = torch.empty_like(self.x)
        self.weights = [torch.randn(outputs, shape.inputs) * shape.inputs**-0.5 for outputs in shape.outputs]
        self.biases = [torch.randn(outputs) for outputs in shape.outputs]
        self.of_weights = [torch.empty_like(weight) for weight in self.weights]
        self.of_biases = [torch.empty_like(bias) for bias in self.biases]
        self.matrix, self.bias = (torch.cat(parts).bfloat16() for parts in (self.weights, self.biases))

    def ours(self, kind: str) -> None:
        """Of one kind, by the C++ kernels."""
        if kind == "forward":
            map_rows(self.x, lay_down(self.weights, self.biases))
            return
        maps = lay_down(self.weights, self.biases, self.of_weights, self.of_biases)
        map_rows_backward(self.gradient, self.x, maps, self.of_x if kind == "all gradients" else None)

    def by_torch(self, kind: str) -> None:
        """The same by PyTorch's library."""
        if kind == "forward":
            torch.addmm(self.bias, self.x, self.matrix.T)
            return
        if kind == "all gradients":
            torch.mm(self.gradient, self.matrix, out=self.of_x)
        torch.mm(self.gradient.T, self.x)
        self.gradient.sum(0, dtype=torch.float32)


def contestants(
    tensors: Sequence[Tensors], kind: str, libraries: Mapping[str, CDLL]
) -> dict[str, Callable[[], object]]:
    """Ours as installed, the other builds, and PyTorch, each with the next tensors at every call."""

    def by_library(library: CDLL, turn: Iterator[Tensors]) -> None:
        with patch.object(native, "_library", lambda: library):
            native._function.cache_clear()
            next(turn).ours(kind)
        native._function.cache_clear()

    def as_installed(turn: Iterator[Tensors]) -> None:
        next(turn).ours(kind)

    def by_torch(turn: Iterator[Tensors]) -> None:
        next(turn).by_torch(kind)

    calls: dict[str, Callable[[], object]] = {}
    if has_map_rows(torch.bfloat16, tensors[0].x, *tensors[0].weights):
        calls[OURS] = partial(as_installed, cycle(tensors))
        calls |= {name: partial(by_library, library, cycle(tensors)) for name, library in libraries.items()}
    return calls | {TORCH: partial(by_torch, cycle(tensors))}


def measure(shape: Shape, libraries: Mapping[str, CDLL], rounds: int) -> Iterator[list[str]]:
    """A row of the table for each product: every contestant's TFLOP/s, and how much faster than PyTorch it is."""
    tensors = [Tensors(shape) for _ in range(SETS)]
    for kind, products in KINDS.items():
        found = alternate(contestants(tensors, kind, libraries), rounds)
        cells = []
        for name, seconds in found.items():
            rate = products * shape.operations / statistics.median(seconds) / 1e12
            gain = statistics.median(b / a for a, b in zip(seconds, found[TORCH], strict=True))
            cells.append(f"{rate:.2f}" if name == TORCH else f"{rate:.2f} ({gain:.2f})")
        yield [str(shape), kind, *cells]


def open_build(text: str) -> tuple[str, CDLL]:
    """NAME=FILE of the command line."""
    name, _, path = text.partition("=")
    library = native.open_file(path) if path else None
    if library is None:
        raise argparse.ArgumentTypeError(f"{text}: not NAME=FILE of a build of these kernels, of this version")
    library.allow_tiles()
    return name, library


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=parse_sizes, default=["base", "recipe", "tiny"])
    parser.add_argument("--rows", type=int, default=4_096)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--library", type=open_build, action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_known_args()[0].quick
    parser.set_defaults(**({"sizes": ["tiny"], "rows": 40, "rounds": 2} if quick else {}))
    options = parser.parse_args()
    libraries = dict(options.library)
    rows = []
    for size in options.sizes:
        for shape in shapes_of(make_config(size, VOCABULARY), options.rows):
            rows += [[size, *cells] for cells in measure(shape, libraries, options.rounds)]
    # Without kernels for this processor PyTorch's column stands alone.
    names = [f"{name} (over PyTorch's)" for name in (OURS, *libraries)][: len(rows[0]) - 4]
    kernels = f"kernels: {native.kind_of_kernels() or 'none'}"
    print(f"{circumstances()}; {kernels}. Medians of {options.rounds} rounds, alternating.", "", sep="\n")
    print(*table(["model", "maps", "product", *names, TORCH], rows), sep="\n")


if __name__ == "__main__":
    main()
