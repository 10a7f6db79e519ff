"""How a Transformer starts, and how it keeps positions: activations layer by layer, with and without residuals.

    python -m benchmarks.initialisation [--seeds N] [--steps N]

Prints Markdown tables (the spread of activations at the start, beside what theory expects; the share of positions that
a linear probe reads off every layer, untrained and trained to reverse sequences) and writes them into
docs/initialisation.md, with four figures in docs/figures/. Needs the extra ``plot``.
"""

import argparse
from collections.abc import Callable
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from torch import Tensor

from benchmarks import surviving_positions
from benchmarks.drawing import figure, label, style
from benchmarks.page import circumstances, insert, table
from benchmarks.start import Start, starts
from transduce.config import TransformerConfig
from transduce.config.model import Initializer, NormPosition

PAGE: Final = "initialisation.md"
NORMS: Final[tuple[NormPosition, ...]] = ("post", "pre")
INITIALIZERS: Final[tuple[Initializer, ...]] = ("glorot_uniform", "unit_scaling")
ROWS, LENGTH = 4, 64
SHOWN_LAYERS: Final = (1, 2, 4, 6)

Starts = dict[tuple[NormPosition, Initializer], Start]


def measure_starts(seeds: range) -> Starts:
    """The encoder of the base model; its decoder is not looked at, and its vocabulary changes nothing here."""
    return {
        (norm, initializer): starts(
            TransformerConfig(norm=norm, initializer=initializer, decoder_layers=1, vocab_size=1000),
            seeds,
            ROWS,
            LENGTH,
        )
        for norm in NORMS
        for initializer in INITIALIZERS
    }


def starts_table(found: Starts) -> list[str]:
    names = ("stream: variance", "attention's output", "feed-forward's output")
    head = ["norm", "initializer", "layer", "stream: mean", *(f"{name} (expected)" for name in names), "similarity"]
    rows = []
    for (norm, initializer), s in found.items():
        for layer in SHOWN_LAYERS:
            stream = _spread(s.variance[:, layer], s.expected[:, layer])
            attention = _spread(s.attention[:, layer - 1], s.attention_expected[:, layer - 1])
            feed_forward = _spread(s.feed_forward[:, layer - 1], s.feed_forward_expected[:, layer - 1])
            mean, similar = f"{s.mean[:, layer].mean():.3f}", f"{s.similarity[:, layer].mean():.2f}"
            rows.append([norm, initializer, str(layer), mean, stream, attention, feed_forward, similar])
    return table(head, rows)


def _spread(values: Tensor, expected: Tensor) -> str:
    return f"{values.mean():.2f} ± {values.std():.2f} ({expected.mean():.2f})"


def draw_starts(found: Starts) -> None:
    with figure("initialisation", 1400, 950) as drawn:
        panels = drawn.subplots(2, 2, sharex=True)
        _draw(panels[0, 0], found, "Between the layers: spread", "variance", lambda s: (s.variance, s.expected))
        title = "Between the layers: likeness"
        _draw(panels[0, 1], found, title, "mean cosine of two positions", lambda s: (s.similarity, None))
        title = "What self-attention makes"
        _draw(panels[1, 0], found, title, "variance", lambda s: (s.attention, s.attention_expected))
        title = "What the feed-forward network makes"
        _draw(panels[1, 1], found, title, "variance", lambda s: (s.feed_forward, s.feed_forward_expected))
        for axes in panels[1]:
            axes.set_xlabel("layer")
        lines = panels[0, 0].get_legend_handles_labels()
        drawn.legend(*lines, loc="outside lower center", ncols=4, title="lines: measured; crosses: expected")


def _draw(
    axes: Axes, found: Starts, title: str, unit: str, get: Callable[[Start], tuple[Tensor, Tensor | None]]
) -> None:
    for number, ((norm, initializer), one) in enumerate(found.items()):
        measured, expected = get(one)
        layers = np.arange(7 - measured.shape[1], 7)  # 0 is what the first layer is given
        axes.plot(layers, measured.mean(dim=0), label=f"{norm}-norm, {initializer}", **style(number))
        if expected is not None:
            axes.plot(layers, expected.mean(dim=0), "x", color=style(number)["color"], markersize=9, markeredgewidth=2)
    axes.set_ylim(0, None)
    label(axes, title, "", unit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1000)
    arguments = parser.parse_args()
    seeds = range(1, arguments.seeds + 1)
    found = measure_starts(seeds)
    draw_starts(found)
    about = f"Mean ± standard deviation over seeds 1 to {arguments.seeds}; {circumstances()}:"
    insert(PAGE, "start", [about, "", *starts_table(found)])
    surviving_positions.report(PAGE, seeds, arguments.steps)


if __name__ == "__main__":
    main()
