"""Table 1 of the paper, measured: time of one layer against the length n and against the width d.

    python -m benchmarks.table1 [--rounds N]

Forward and backward of a batch of one sequence, in float32 on one thread; seconds are those that the processor worked
for this process. Fills in docs/table1.md and draws docs/figures/table1.png (extra ``plot``). Three minutes.
"""

import argparse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from benchmarks import drawing
from benchmarks.page import circumstances, insert, table
from benchmarks.powers import exponent
from benchmarks.rounds import medians
from transduce.config import TransformerConfig
from transduce.kernels import Mask, attend
from transduce.layers.attention import MultiHeadAttention

HEAD_WIDTH: Final = 64  # of the paper's base and big models: a wider layer has more heads
KERNEL: Final = 5  # k
NEIGHBOURHOOD: Final = 64  # r
LENGTHS: Final = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
WIDTHS: Final = (64, 128, 256, 512, 1024, 2048)
WIDTH, LENGTH = 256, 512  # the fixed one of each sweep
TAIL: Final = 3  # how many of the largest sizes an exponent is fitted to

Curves = dict[str, dict[int, float]]  # layer to size to seconds


def backward_of(layer: Callable[..., Tensor], inputs: list[Tensor], weights: Iterable[Tensor]) -> Callable[[], object]:
    """A call that computes a layer's result and the gradients of its inputs and weights."""
    leaves = [*(x.requires_grad_() for x in inputs), *weights]
    gradient = torch.ones_like(layer(*inputs))
    return lambda: torch.autograd.grad(layer(*inputs), leaves, gradient)


def attention(length: int, width: int, mask: Mask) -> Callable[[], object]:
    """The attention function of all heads, with no projection."""
    inputs = [torch.randn(1, width // HEAD_WIDTH, length, HEAD_WIDTH) / HEAD_WIDTH**0.5 for _ in range(3)]
    return backward_of(lambda query, key, value: attend(query, key, value, mask), inputs, [])


def multi_head(length: int, width: int, mask: Mask) -> Callable[[], object]:
    """The whole layer, with the projections of section 3.2.2."""
    layer = MultiHeadAttention(TransformerConfig.model_validate({"d_model": width, "heads": width // HEAD_WIDTH}))
    x = torch.randn(1, length, width)
    return backward_of(lambda x: layer(x, layer.key_values(x), mask), [x], layer.parameters())


def recurrent(length: int, width: int) -> Callable[[], object]:
    layer = nn.LSTM(width, width, batch_first=True)
    return backward_of(lambda x: layer(x)[0], [torch.randn(1, length, width)], layer.parameters())


def convolutional(length: int, width: int) -> Callable[[], object]:
    layer = nn.Conv1d(width, width, KERNEL, padding="same")
    return backward_of(layer, [torch.randn(1, width, length)], layer.parameters())


def separable(length: int, width: int) -> Callable[[], object]:
    """A convolution of each channel alone, then a linear map of each position alone."""
    depthwise = nn.Conv1d(width, width, KERNEL, padding="same", groups=width)
    layer = nn.Sequential(depthwise, nn.Conv1d(width, width, 1))
    return backward_of(layer, [torch.randn(1, width, length)], layer.parameters())


@dataclass(frozen=True)
class Layer:
    """A row of Table 1. ``by_n`` and ``by_d``: the exponents of its complexity where n, or d, is large."""

    make: Callable[[int, int], Callable[[], object]]
    complexity: str
    sequential: str
    path: str
    by_n: str
    by_d: str
    drawn: bool = True


NEAR: Final = Mask(window=NEIGHBOURHOOD // 2)
LAYERS: Final[Mapping[str, Layer]] = {
    "self-attention": Layer(lambda n, d: attention(n, d, Mask()), "n² d", "1", "1", "2", "1"),
    "recurrent": Layer(recurrent, "n d²", "n", "n", "1", "2"),
    "convolutional": Layer(convolutional, "k n d²", "1", "log_k n", "1", "2"),
    "restricted self-attention": Layer(lambda n, d: attention(n, d, NEAR), "r n d", "1", "n / r", "1", "1"),
    "separable convolutional": Layer(separable, "k n d + n d²", "1", "log_k n", "1", "2"),
    "multi-head layer": Layer(lambda n, d: multi_head(n, d, Mask()), "n² d + n d²", "1", "1", "2", "2", drawn=False),
    "restricted multi-head layer": Layer(
        lambda n, d: multi_head(n, d, NEAR), "r n d + n d²", "1", "n / r", "1", "2", drawn=False
    ),
}


def sweep(sizes: Iterable[int], shape: Callable[[int], tuple[int, int]], rounds: int) -> Curves:
    """Seconds of every layer at every size."""
    curves: Curves = {name: {} for name in LAYERS}
    for size in sizes:
        calls = {name: layer.make(*shape(size)) for name, layer in LAYERS.items()}
        for name, seconds in medians(calls, rounds).items():
            curves[name][size] = seconds
    return curves


def theory() -> list[str]:
    head = ["layer", "complexity of a layer", "sequential operations", "longest path"]
    return table(head, [[name, *map(order, (at.complexity, at.sequential, at.path))] for name, at in LAYERS.items()])


def order(formula: str) -> str:
    return f"O({formula})"


def measured(symbol: str, curves: Curves, expected: Callable[[Layer], str]) -> list[str]:
    """Milliseconds at every size; below them the exponents measured and expected."""
    sizes = list(next(iter(curves.values())))
    rows = [[f"{size:,}", *(f"{curve[size] * 1e3:.2f}" for curve in curves.values())] for size in sizes]
    fitted = [f"**{exponent(curve, TAIL):.2f}**" for curve in curves.values()]
    rows += [[f"exponent, {symbol} ≥ {sizes[-TAIL]:,}", *fitted], ["theory", *map(expected, LAYERS.values())]]
    return table([symbol, *curves], rows)


def draw(panels: Mapping[str, tuple[str, Curves]]) -> None:
    with drawing.figure("table1", 1200, 600) as figure:
        for axes, (symbol, (title, curves)) in zip(figure.subplots(1, 2), panels.items(), strict=True):
            shown = [name for name, layer in LAYERS.items() if layer.drawn]
            for number, name in enumerate(shown):
                points = sorted(curves[name].items())
                axes.plot(*zip(*points, strict=True), marker="o", label=name, **drawing.style(number))
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_xticks(points_x := [size for size, _ in points], [f"{size:,}" for size in points_x])
            drawing.label(axes, title, symbol, "seconds, forward and backward")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    by_length = sweep(LENGTHS, lambda size: (size, WIDTH), rounds)
    by_width = sweep(WIDTHS, lambda size: (LENGTH, size), rounds)
    insert("table1.md", "theory", theory())
    lines = [
        f"{circumstances()}; float32, k = {KERNEL}, r = {NEIGHBOURHOOD}, heads of width {HEAD_WIDTH}; milliseconds of "
        f"the processor's work for forward and backward of one sequence, median of {rounds} rounds, alternating.",
        "",
        f"Against n, at d = {WIDTH}:",
        "",
        *measured("n", by_length, lambda layer: layer.by_n),
        "",
        f"Against d, at n = {LENGTH}:",
        "",
        *measured("d", by_width, lambda layer: layer.by_d),
    ]
    insert("table1.md", "measured", lines)
    draw({"length n": (f"against n, d = {WIDTH}", by_length), "width d": (f"against d, n = {LENGTH}", by_width)})


if __name__ == "__main__":
    main()
