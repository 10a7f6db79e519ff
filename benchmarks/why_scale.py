"""Why dot products are scaled by 1 / sqrt(d_k): section 3.2.1 and its footnote, rerun for four compatibility functions.

    python -m benchmarks.why_scale [--parts N] [--seeds N] [--steps N]

Prints two Markdown tables (logits, weights and gradients for queries and keys of independent N(0, 1) components; the
losses of small models that learn to copy) and writes them into docs/why-scale.md, with two figures in docs/figures/.
Needs the extra ``plot``.
"""

import argparse
import math
import statistics
from dataclasses import dataclass
from typing import Final, final

import torch
from matplotlib.axes import Axes
from torch import Tensor

from benchmarks.compatibility import Measures, expected_variance, measure_parts
from benchmarks.drawing import figure, label, style
from benchmarks.page import circumstances, insert, table
from benchmarks.sequences import Regime, Task, held_out_loss, train
from transduce.config import TransformerConfig
from transduce.config.model import Compatibility

PAGE: Final = "why-scale.md"
FUNCTIONS: Final[tuple[Compatibility, ...]] = ("scaled_dot_product", "additive", "dot_product", "multiplicative")
BANDS: Final[tuple[Compatibility, ...]] = ("scaled_dot_product", "dot_product")  # four would hide each other
Found = dict[tuple[Compatibility, int], Measures]

# So many queries at a time, each with so many keys of its own.
QUERIES, KEYS = 100, 64
WIDTHS: Final = (4, 16, 64, 256, 1024)

TASK: Final = Task("copy", 10, 20)
TRAINED_WIDTHS: Final = (8, 64, 256)
# Of a model that knows the positions (the end symbol's is always the same) and nothing of the source.
BLIND_LOSS: Final = TASK.length * math.log(TASK.symbols) / (TASK.length + 1)


def measure_all(parts: int) -> Found:
    found: Found = {}
    for function in FUNCTIONS:
        for d_k in WIDTHS:
            torch.manual_seed(d_k)
            found[function, d_k] = measure_parts(function, d_k, QUERIES, KEYS, parts)
    return found


def measures_table(found: Found) -> list[str]:
    head = ["compatibility", "d_k", "logits' variance", "expected", "entropy, nats"]
    head += [f"{of}: {what}" for of in ("Jacobian", "gradient") for what in ("mean", "median (10% to 90%)")]
    rows = []
    for (function, d_k), measures in found.items():
        variance, entropy = (
            f"{_digits(float(x.mean()))} ± {_digits(float(x.std()))}" for x in (measures.variance, measures.entropy)
        )
        row = [function, f"{d_k}", variance, _digits(expected_variance(function, d_k)), entropy]
        for x in (measures.jacobian, measures.gradient):
            low, high = x.quantile(0.1), x.quantile(0.9)
            row += [f"{x.mean():.2g}", f"{x.median():.2g} ({low:.2g} to {high:.2g})"]
        rows.append(row)
    return table(head, rows)


def _digits(value: float) -> str:
    """Two digits behind the point of small values, none of large ones."""
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def draw_measures(found: Found) -> None:
    with figure("why-scale", 1400, 950) as drawn:
        panels = drawn.subplots(2, 2, sharex=True)
        _draw_measure(panels[0, 0], found, "variance", "Logits of a query", "variance")
        _draw_measure(panels[0, 1], found, "entropy", f"Weights of {KEYS} keys", "entropy, nats")
        _draw_measure(panels[1, 0], found, "jacobian", "Softmax: d weights / d logits", "norm of the Jacobian")
        _draw_measure(panels[1, 1], found, "gradient", "What reaches the query", "norm of dL / d query")
        panels[0, 1].axhline(math.log(KEYS), color="k", linewidth=1)
        panels[0, 1].text(WIDTHS[-1], math.log(KEYS), f"ln {KEYS}", ha="right", va="bottom")
        panels[0, 0].set_yscale("log")
        for axes in panels[1]:
            axes.set_yscale("log")
            axes.set_ylim(1e-4, 10)
            axes.set_xlabel(r"$d_k$")
        title = "lines: medians over queries; crosses: means; bands, of the two dot products: 10% to 90%"
        lines = panels[0, 0].get_legend_handles_labels()
        drawn.legend(*lines, loc="outside lower center", ncols=len(FUNCTIONS), title=title)


def _draw_measure(axes: Axes, found: Found, name: str, title: str, unit: str) -> None:
    for number, function in enumerate(FUNCTIONS):
        values: Tensor = torch.stack([getattr(found[function, d_k], name) for d_k in WIDTHS])
        line = style(number)
        low, median, high = values.quantile(torch.tensor([0.1, 0.5, 0.9]).double(), dim=1)
        if function in BANDS:
            axes.fill_between(WIDTHS, low, high, color=line["color"], alpha=0.15, linewidth=0)
        axes.plot(WIDTHS, median, label=function.replace("_", " "), **line)
        axes.plot(WIDTHS, values.mean(dim=1), "x", color=line["color"], markersize=9, markeredgewidth=2)
    axes.set_xscale("log", base=2)
    axes.set_xticks(WIDTHS, [str(d_k) for d_k in WIDTHS])
    label(axes, title, "", unit)


def copying_model(function: Compatibility, d_k: int) -> TransformerConfig:
    """Post-norm, as published, and small; its projections keep the variance, as the footnote assumes, at any d_k."""
    small = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 64, "d_ff": 128, "heads": 1, "d_k": d_k, "d_v": 64}
    plain = {"dropout": 0.0, "label_smoothing": 0.0, "initializer": "unit_scaling"}
    return TransformerConfig.model_validate(
        {**small, **plain, "vocab_size": TASK.vocab_size, "compatibility": function}
    )


@final
@dataclass(frozen=True)
class Training:
    """What came of one training: its loss at every step, and the loss on sequences never seen, in nats per token."""

    curve: list[float]
    held_out: float


Trained = dict[tuple[Compatibility, int], list[Training]]


def train_all(seeds: int, steps: int) -> Trained:
    regime = Regime(steps=steps, rows=32, warmup_steps=100, factor=0.2)
    trained: Trained = {}
    for function in FUNCTIONS:
        for d_k in TRAINED_WIDTHS:
            for seed in range(1, seeds + 1):
                model, curve = train(copying_model(function, d_k), TASK, regime, seed)
                result = Training(curve, held_out_loss(model, TASK, 256))
                trained.setdefault((function, d_k), []).append(result)
    return trained


def losses_table(trained: Trained) -> list[str]:
    rows = []
    for function in FUNCTIONS:
        losses = [[training.held_out for training in trained[function, d_k]] for d_k in TRAINED_WIDTHS]
        rows.append([function, *(f"{statistics.median(x):.3f} ({min(x):.3f} to {max(x):.3f})" for x in losses)])
    return table(["compatibility", *(f"d_k = {d_k}" for d_k in TRAINED_WIDTHS)], rows)


def draw_losses(trained: Trained) -> None:
    with figure("why-scale-training", 1400, 480) as drawn:
        panels = drawn.subplots(1, len(TRAINED_WIDTHS), sharey=True)
        for axes, d_k in zip(panels, TRAINED_WIDTHS, strict=True):
            for number, function in enumerate(FUNCTIONS):
                for seed, training in enumerate(trained[function, d_k]):
                    name = function.replace("_", " ") if not seed else None
                    steps = range(1, len(training.curve) + 1)
                    axes.plot(steps, training.curve, label=name, **style(number) | {"linewidth": 1.5})
            axes.axhline(BLIND_LOSS, color="k", linewidth=1)
            label(axes, f"$d_k$ = {d_k}", "optimizer step", "loss, nats per target token" if axes is panels[0] else "")
        panels[0].text(axes.get_xlim()[1], BLIND_LOSS, "does not look at the source", ha="right", va="bottom")
        drawn.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(FUNCTIONS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", type=int, default=10, help=f"of {QUERIES} queries each")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    arguments = parser.parse_args()
    found = measure_all(arguments.parts)
    draw_measures(found)
    lines = measures_table(found)
    about = f"{QUERIES * arguments.parts:,} queries with {KEYS} keys each; {circumstances()}:"
    insert(PAGE, "measures", [about, "", *lines])
    trained = train_all(arguments.seeds, arguments.steps)
    draw_losses(trained)
    about = f"After {arguments.steps} steps, median (least to most) of seeds 1 to {arguments.seeds}; {circumstances()}:"
    insert(PAGE, "losses", [about, "", *losses_table(trained)])


if __name__ == "__main__":
    main()
