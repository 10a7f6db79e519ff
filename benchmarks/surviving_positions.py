"""How far up an encoder positions can be read: with residuals, without, and with positions at every layer."""

from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor

from benchmarks.activations import random_source, watch
from benchmarks.drawing import AMOUNT, SIGNED, figure, label, style
from benchmarks.page import circumstances, insert, table
from benchmarks.position_probe import Legibility, read_positions
from benchmarks.sequences import FIRST, HELD_OUT, Regime, Task, held_out_loss, train
from transduce.config import TransformerConfig
from transduce.models import LAST_CROSS, Tokens, Transformer

VARIANTS: Final[dict[str, dict[str, Any]]] = {
    "with residuals": {},
    "without residuals": {"residual": False},
    "without residuals, positions at every layer": {"residual": False, "positions_at_every_layer": True},
    "with residuals, positions at every layer": {"positions_at_every_layer": True},
}
TRAINED: Final = tuple(VARIANTS)[:3]  # those of the lecture
SENTENCES: Final = 256

# Untrained: as deep as the base model, and narrow.
FRESH: Final = {"encoder_layers": 6, "decoder_layers": 1, "d_model": 128, "d_ff": 512, "heads": 4, "vocab_size": 1000}
FRESH_LENGTH, SHOWN_LAYERS = 32, (0, 1, 2, 4, 6)

TASK: Final = Task("reverse", 16, 20)
PLAIN: Final = {"dropout": 0.0, "label_smoothing": 0.0}
SMALL: Final = {"encoder_layers": 2, "decoder_layers": 1, "d_model": 64, "d_ff": 128, "heads": 4, **PLAIN}


def read_layers(model: Transformer, length: int, symbols: range) -> list[Legibility]:
    """What the encoder's stream tells of positions, from what the first layer is given on."""
    known, fresh = (watch(model, random_source(SENTENCES, length, symbols)).stream for _ in range(2))
    return [read_positions(*pair) for pair in zip(known, fresh, strict=True)]


def read_fresh(variant: str, norm: str, seed: int) -> list[Legibility]:
    """The layers of a model that has learned nothing."""
    torch.manual_seed(seed)
    model = Transformer(TransformerConfig.model_validate({**FRESH, "norm": norm, **VARIANTS[variant]}))
    return read_layers(model, FRESH_LENGTH, range(FRESH["vocab_size"]))


@final
@dataclass(frozen=True)
class Training:
    """A model that was trained to reverse.

    Its loss in nats per target token on sequences never seen; what its layers tell of positions; and the mean of its
    encoder-decoder attention over heads and sequences.
    """

    loss: float
    layers: list[Legibility]
    attention: Float[Tensor, "target source"]


def train_one(variant: str, seed: int, steps: int) -> Training:
    """Post-norm, as published, and small."""
    config = TransformerConfig.model_validate({**SMALL, **VARIANTS[variant], "vocab_size": TASK.vocab_size})
    model, _ = train(config, TASK, Regime(steps=steps, rows=32, warmup_steps=100, factor=0.2), seed)
    layers = read_layers(model, TASK.length, range(FIRST, TASK.vocab_size))
    return Training(held_out_loss(model, TASK, SENTENCES), layers, _mean_attention(model))


@torch.no_grad()
def _mean_attention(model: Transformer) -> Float[Tensor, "target source"]:
    batch = TASK.batch(SENTENCES, HELD_OUT)
    source = Tokens(torch.from_numpy(batch.source), torch.from_numpy(batch.source_lengths))
    target = Tokens(torch.from_numpy(batch.target), torch.from_numpy(batch.target_lengths))
    decoded = model.eval().decode(model.encode(source), target, attention=LAST_CROSS)
    (attention,) = decoded.attention.cross.values()
    return attention.mean(dim=(0, 1))


Fresh = dict[tuple[str, str], list[list[Legibility]]]
Trained = dict[str, list[Training]]


def fresh_table(fresh: Fresh) -> list[str]:
    rows = []
    for (variant, norm), seeds in fresh.items():
        named = np.array([[layer.named for layer in layers] for layers in seeds])
        rows.append([variant, norm, *(f"{share:.0%}" for share in named.mean(axis=0)[list(SHOWN_LAYERS)])])
    return table(["", "norm", "what layer 1 is given", *(f"layer {layer}" for layer in SHOWN_LAYERS[1:])], rows)


def trained_table(trained: Trained) -> list[str]:
    rows = []
    for variant, trainings in trained.items():
        losses = ", ".join(f"{one.loss:.2f}" for one in trainings)
        layers = zip(*([layer.named for layer in one.layers] for one in trainings), strict=True)
        rows.append([variant, losses, *(", ".join(f"{named:.0%}" for named in layer) for layer in layers)])
    return table(["", "loss, nats per target token", "what layer 1 is given", "layer 1", "layer 2"], rows)


def draw_named(fresh: Fresh, trained: Trained) -> None:
    with figure("positions-read", 1400, 560) as drawn:
        left, right = drawn.subplots(1, 2, sharey=True)
        for number, variant in enumerate(VARIANTS):
            named = np.array([[100 * layer.named for layer in layers] for layers in fresh[variant, "post"]])
            left.plot(named.mean(axis=0), label=variant, **style(number))
        for number, variant in enumerate(TRAINED):
            for one in trained[variant]:
                right.plot([100 * layer.named for layer in one.layers], **style(number) | {"linewidth": 1.5})
        label(left, f"Untrained: {FRESH_LENGTH} positions", "layer (0: what the first is given)", "positions named, %")
        label(right, f"Trained to reverse: {TASK.length} positions, a line a seed", "layer", "")
        for axes, length in ((left, FRESH_LENGTH), (right, TASK.length)):
            axes.axhline(100 / length, color="k", linewidth=1)
            axes.text(0, 100 / length, "by chance", va="bottom")
            axes.set_ylim(0, 101)
        right.set_xticks([0, 1, 2])
        drawn.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2)


def draw_similarities(fresh: Fresh) -> None:
    with figure("positions-similarity", 1400, 850) as drawn:
        panels = drawn.subplots(len(TRAINED), len(SHOWN_LAYERS), sharex=True, sharey=True)
        for row, variant in zip(panels, TRAINED, strict=True):
            for axes, layer in zip(row, SHOWN_LAYERS, strict=True):
                one = fresh[variant, "post"][0][layer]
                image = _show(axes, one.similarity.numpy(), SIGNED, -1)
                axes.set_title(f"layer {layer}: {one.named:.0%} named" if layer else f"input: {one.named:.0%} named")
            row[0].set_ylabel(variant.replace(", ", ",\n") + "\n\nposition")
        for axes in panels[-1]:
            axes.set_xlabel("position")
        drawn.colorbar(image, ax=panels, label="cosine of two positions' mean activations", fraction=0.03)


def draw_attention(trained: Trained) -> None:
    seeds = len(trained[TRAINED[0]])
    with figure("positions-attention", 1400, 850) as drawn:
        panels = drawn.subplots(len(TRAINED), seeds, sharex=True, sharey=True, squeeze=False)
        for row, variant in zip(panels, TRAINED, strict=True):
            for number, (axes, one) in enumerate(zip(row, trained[variant], strict=True), start=1):
                image = _show(axes, one.attention.numpy(), AMOUNT, 0)
                axes.set_title(f"seed {number}: loss {one.loss:.2f}")
            row[0].set_ylabel(variant.replace(", ", ",\n") + "\n\ntarget's position")
        for axes in panels[-1]:
            axes.set_xlabel("source's position")
        drawn.colorbar(image, ax=panels, label="mean weight", fraction=0.03)


def _show(axes: Axes, matrix: np.ndarray, colours: str, least: float) -> Any:  # noqa: ANN401
    axes.grid(visible=False)
    return axes.imshow(matrix, cmap=colours, vmin=least, vmax=1)


def report(page: str, seeds: range, steps: int) -> None:
    """Measure, draw, and write the tables into the page."""
    fresh = {(v, norm): [read_fresh(v, norm, seed) for seed in seeds] for norm in ("post", "pre") for v in VARIANTS}
    about = f"Mean of seeds {seeds[0]} to {seeds[-1]}; {circumstances()}:"
    insert(page, "untrained", [about, "", *fresh_table(fresh)])
    trained = {variant: [train_one(variant, seed, steps) for seed in seeds] for variant in TRAINED}
    about = f"Seeds {seeds[0]} to {seeds[-1]}, in this order, after {steps:,} steps; {circumstances()}:"
    insert(page, "trained", [about, "", *trained_table(trained)])
    draw_named(fresh, trained)
    draw_similarities(fresh)
    draw_attention(trained)
