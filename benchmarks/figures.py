"""The figures that teachers show, drawn by what the library computes: schedules, smoothed labels, sinusoids, masks.

    python -m benchmarks.figures

Prints the names of the figures and writes them to docs/figures/. Needs the extra ``plot``.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
import torch
from matplotlib.axes import Axes
from numpy.typing import NDArray

from benchmarks.drawing import AMOUNT, COLOURS, SIGNED, figure, label, style
from transduce.config.model import SinusoidLayout
from transduce.kernels import Mask, smoothed_cross_entropy
from transduce.layers import sinusoids
from transduce.training import learning_rate

Array = NDArray[np.float64]

D_MODEL: Final = r"$d_\mathrm{model}$"
EPSILON: Final = r"$\epsilon_\mathrm{ls}$"
LAYOUTS: Final[tuple[SinusoidLayout, ...]] = ("interleaved", "concatenated")


def schedules(name: str) -> None:
    """Section 5.3, for the widths and warm-ups that the paper, its code and its readers use."""
    steps = range(1, 20_001)
    with figure(name, 1200, 600) as drawn:
        axes = drawn.subplots()
        for number, (d_model, warmup) in enumerate([(512, 4000), (512, 8000), (256, 4000), (1024, 4000)]):
            rates = [1000 * learning_rate(step, d_model, warmup, 1.0) for step in steps]
            axes.plot(steps, rates, label=f"{D_MODEL} = {d_model}, warm-up {warmup:,} steps", **style(number))
        label(axes, "A straight rise, then step$^{-1/2}$", "optimizer step", "learning rate, thousandths")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set(xlim=(0, 20_000), ylim=(0, None))
        axes.legend()


def smoothed_target(labels: list[int], symbols: int, epsilon: float) -> Array:
    """The distribution that the loss asks for, of shape (labels, symbols).

    It is read off the loss: the gradient by the logits is softmax(logits) - target.
    """
    logits = torch.zeros(len(labels), symbols, requires_grad=True)
    objective, _ = smoothed_cross_entropy(logits, torch.tensor(labels), epsilon)
    (gradient,) = torch.autograd.grad(objective, logits)
    return np.asarray(torch.softmax(logits, dim=-1).detach() - gradient, dtype=np.float64)


def label_smoothing(name: str) -> None:
    """Section 5.4: what is asked for, for three labels out of a vocabulary of six."""
    labels, symbols = [2, 0, 4], 6
    with figure(name, 1400, 300) as drawn:
        for axes, epsilon in zip(drawn.subplots(1, 3), (0.0, 0.1, 0.4), strict=True):
            target = smoothed_target(labels, symbols, epsilon)
            axes.imshow(target, cmap=AMOUNT, vmin=0, vmax=1)
            for (row, column), share in np.ndenumerate(target):
                axes.text(column, row, f"{share:.3f}", ha="center", va="center", color="w" if share > 0.5 else "k")
            label(axes, f"{EPSILON} = {epsilon}", "symbol of the vocabulary", "label")
            axes.set_yticks(range(len(labels)), [str(right) for right in labels])
            axes.grid(visible=False)


def penalty(probabilities: Array, symbols: int, epsilon: float) -> Array:
    """The loss in nats of a model that gives the label each probability, and the others even shares of the rest."""
    right = torch.from_numpy(probabilities)
    others = ((1 - right) / (symbols - 1)).unsqueeze(1).expand(-1, symbols - 1)
    logits = torch.cat([right.unsqueeze(1), others], dim=1).log()
    zero = torch.tensor([0])
    return np.array([float(smoothed_cross_entropy(row.unsqueeze(0), zero, epsilon)[0]) for row in logits])


def confidence(name: str) -> None:
    """Section 5.4: the loss against the probability of the right symbol."""
    symbols = 10
    log_odds = np.linspace(-4, 10, 561)
    probabilities = 1 / (1 + np.exp(-log_odds))
    with figure(name, 1200, 600) as drawn:
        axes = drawn.subplots()
        for number, epsilon in enumerate((0.0, 0.1, 0.2, 0.4)):
            losses = penalty(probabilities, symbols, epsilon)
            axes.plot(probabilities, losses, label=f"{EPSILON} = {epsilon}", **style(number))
            if epsilon:
                best = int(losses.argmin())
                axes.plot(probabilities[best], losses[best], "o", color=COLOURS[number], markersize=10)
                axes.annotate(
                    f"least at {probabilities[best]:.2f}",
                    (probabilities[best], losses[best]),
                    (0, 14),
                    textcoords="offset points",
                    ha="center",
                    color=COLOURS[number],
                )
        axes.set_xscale("logit")
        ticks = (0.02, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999)
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.set(xlim=(probabilities[0], probabilities[-1]), ylim=(0, None))
        label(
            axes,
            f"Smoothed labels make certainty expensive (vocabulary of {symbols})",
            "probability of the right symbol, p; scale: log(p / (1 - p))",
            "loss, nats per target token",
        )
        axes.legend(loc="upper center")


def encodings(count: int, d_model: int, layout: SinusoidLayout) -> Array:
    """PE of positions 0 to ``count`` - 1, of shape (count, d_model)."""
    return np.asarray(sinusoids(torch.arange(count), d_model, layout, "open"), dtype=np.float64)


def waves(name: str) -> None:
    """Section 3.5: a few dimensions along the positions, and where they stand in each layout."""
    d_model, count = 20, 100
    interleaved, concatenated = (encodings(count, d_model, layout) for layout in LAYOUTS)
    with figure(name, 1300, 560) as drawn:
        axes = drawn.subplots()
        for number, dimension in enumerate((4, 5, 6, 7)):
            other = dimension // 2 + dimension % 2 * d_model // 2
            name_ = f"{('sine', 'cosine')[dimension % 2]}: dimension {dimension}, or {other}"
            axes.plot(interleaved[:, dimension], label=name_, **style(number))
            axes.plot(range(0, count, 4), concatenated[::4, other], "o", color=COLOURS[number], markersize=4)
        title = f"Two waves of {d_model // 2}; lines: interleaved; dots, second numbers: concatenated"
        label(axes, title, "position", "PE")
        axes.set(xlim=(0, count - 1))
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))


def matrices(name: str) -> None:
    """Section 3.5: every dimension of every position."""
    d_model, count = 128, 100
    with figure(name, 1400, 560) as drawn:
        panels = drawn.subplots(1, 2, sharey=True)
        for axes, layout in zip(panels, LAYOUTS, strict=True):
            image = axes.imshow(encodings(count, d_model, layout), cmap=SIGNED, vmin=-1, vmax=1, aspect="auto")
            label(axes, f"{layout}, {D_MODEL} = {d_model}", "dimension", "position" if axes is panels[0] else "")
            axes.grid(visible=False)
        drawn.colorbar(image, ax=panels, label="PE")


def products(name: str) -> None:
    """PE(pos) . PE(pos + k): the same for every position, and falling with the distance."""
    window, positions = 100, (100, 300)
    offsets = np.arange(-window, window + 1)
    with figure(name, 1200, 600) as drawn:
        axes = drawn.subplots()
        for number, d_model in enumerate((64, 128, 512)):
            encoded = encodings(max(positions) + window + 1, d_model, "interleaved")
            near, far = (2 / d_model * encoded[pos + offsets] @ encoded[pos] for pos in positions)
            axes.plot(offsets, near, label=f"{D_MODEL} = {d_model}, pos = {positions[0]}", **style(number))
            axes.plot(offsets[::10], far[::10], "o", color=COLOURS[number], label=f"the same, pos = {positions[1]}")
        label(
            axes,
            "The product of two encodings depends on their distance only",
            "distance k, positions",
            rf"PE(pos) $\cdot$ PE(pos + k) / ({D_MODEL} / 2)",
        )
        axes.set(xlim=(-window, window), ylim=(0, 1.05))
        axes.legend(fontsize=11)


def masks(name: str) -> None:
    """Sections 3.2.3 and 4: which keys (columns) a query (row) may look at."""
    length, real, window = 12, torch.arange(12).unsqueeze(0) < 9, 2
    shown = {
        "padding\n(9 symbols, 3 of padding)": Mask(real),
        "causal": Mask(causal=True),
        "causal and padding": Mask(real, causal=True),
        f"neighbourhood\n(r = {2 * window}: {window} to each side)": Mask(window=window),
        "causal and neighbourhood": Mask(causal=True, window=window),
    }
    with figure(name, 1600, 420) as drawn:
        for axes, (title, mask) in zip(drawn.subplots(1, len(shown), sharey=True), shown.items(), strict=True):
            _draw_mask(axes, mask, length)
            axes.set_title(title, fontsize=13)
            axes.set_xlabel("key's position")
            axes.set_ylabel("query's position" if mask is next(iter(shown.values())) else "")
        drawn.suptitle("blue: the query may look at the key", fontsize=13)


def _draw_mask(axes: Axes, mask: Mask, length: int) -> None:
    allowed = mask.matrix(length, length, torch.device("cpu"))
    assert allowed is not None
    cells = np.broadcast_to(allowed[0].numpy(), (length, length))
    axes.imshow(np.where(cells, 0.75, 0.0), cmap=AMOUNT, vmin=0, vmax=1)
    axes.set_xticks(range(0, length, 2))
    axes.set_yticks(range(0, length, 2))
    axes.grid(visible=False)
    for line in range(length + 1):  # around the cells, where a grid would go through their middle
        axes.axhline(line - 0.5, color="#cccccc", linewidth=0.7)
        axes.axvline(line - 0.5, color="#cccccc", linewidth=0.7)


FIGURES: Final[dict[str, Callable[[str], None]]] = {
    "learning-rate": schedules,
    "label-smoothing-target": label_smoothing,
    "label-smoothing-penalty": confidence,
    "positions-waves": waves,
    "positions-matrix": matrices,
    "positions-products": products,
    "masks": masks,
}


def main() -> None:
    for name, draw in FIGURES.items():
        draw(name)
        print(f"docs/figures/{name}.png")


if __name__ == "__main__":
    main()
