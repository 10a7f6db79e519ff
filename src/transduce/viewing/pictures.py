"""Attention weights, and what heads do, as pictures, by matplotlib (the extra ``plot``)."""

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from transduce.config import BadInputError, TransduceError
from transduce.config.attention import AttentionHead
from transduce.config.disk import write_whole
from transduce.config.head_roles import MEASURES, ColourKey, HeadRole
from transduce.viewing.attention import HasAttention
from transduce.viewing.head_roles import KIND_NAMES, check_colour

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INCHES = 0.3  # of a token
_CELL = 0.5  # of a head, likewise
_DOTS = 150  # an inch, where a picture does not have ...
_MOST_DOTS = 3000**2  # ... more than these: each takes about fifty bytes of memory


def draw_attention(maps: HasAttention, head: AttentionHead, path: Path | str | None = None) -> "Figure":
    """A heat map of one head, rows attending to columns; into a file (.png, .svg, .pdf) where one is named.

    Raises:
        BadInputError: The model has no such head, or the file's name ends with no known format.
        TransduceError: The extra ``plot`` is not installed.
    """
    weights = getattr(maps, head.kind, None)
    if weights is None:
        raise BadInputError(f"the model has no {head.kind} attention")
    layers, heads, rows, columns = weights.shape
    if not (0 <= head.layer < layers and 0 <= head.head < heads):
        raise BadInputError(f"{head}: there are {layers} layers of {heads} heads")
    queries = maps.source if head.kind == "encoder" else maps.target
    keys = maps.read if head.kind == "decoder" else maps.source
    figure = _figure(1.5 + _INCHES * columns, 1.5 + _INCHES * rows)
    axes = figure.subplots()
    axes.imshow(weights[head.layer, head.head], cmap="Blues", vmin=0, vmax=1, aspect="equal")
    labels, along = ([each.strip() for each in side] for side in (queries, keys))
    # A token may have dollar signs, between which matplotlib would read formulas.
    axes.set_yticks(range(rows), labels, parse_math=False)
    axes.set_xticks(range(columns), along, parse_math=False, rotation=60, ha="left", rotation_mode="anchor")
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.set_title(str(head), fontsize="medium")
    return _saved(figure, path)


def draw_head_roles(
    roles: Sequence[HeadRole], measure: ColourKey = "distance", path: Path | str | None = None
) -> "Figure":
    """A map of layers and heads for each kind of attention that has the measure, in one scale; into a file, as above.

    Raises:
        BadInputError: No head has the measure, or the file's name ends with no known format.
        TransduceError: The extra ``plot`` is not installed.
    """
    check_colour(roles, measure)
    values = {role.head: value for role in roles if (value := role.of(measure)) is not None}
    kinds = list(dict.fromkeys(head.kind for head in values))
    maps = [_lay_out({head: value for head, value in values.items() if head.kind == kind}) for kind in kinds]
    most = max(map(abs, values.values()))
    signed = min(values.values()) < 0
    colours, least = ("PuOr", -most) if signed else ("Blues", 0.0)
    rows, columns = [len(each) for each in maps], max(each.shape[1] for each in maps)
    figure = _figure(2.5 + _CELL * columns, sum(0.9 + _CELL * layers for layers in rows))
    panels = figure.subplots(len(maps), 1, squeeze=False, height_ratios=rows)[:, 0]
    for axes, kind, each in zip(panels, kinds, maps, strict=True):
        image = axes.imshow(each, cmap=colours, vmin=least, vmax=most or 1.0, aspect="equal")
        for (layer, head), value in np.ndenumerate(each):
            if not np.isnan(value):
                # Where the colour is dark, white can be read.
                ink = "white" if abs(value) > 0.6 * most else "black"
                axes.text(head, layer, MEASURES[measure].show(value), ha="center", va="center", size=7, color=ink)
        axes.set_xticks(range(each.shape[1]), [str(head + 1) for head in range(each.shape[1])])
        axes.set_yticks(range(each.shape[0]), [str(layer + 1) for layer in range(each.shape[0])])
        axes.tick_params(length=0)
        axes.set_xlabel("head")
        axes.set_ylabel("layer")
        axes.set_title(KIND_NAMES[kind], fontsize="medium")
    figure.colorbar(image, ax=panels, label=f"{MEASURES[measure].name} ({MEASURES[measure].unit})", shrink=0.8)
    return _saved(figure, path)


def _lay_out(values: Mapping[AttentionHead, float]) -> NDArray[np.float64]:
    """Layers by heads; NaN where there is none."""
    laid = np.full((max(head.layer for head in values) + 1, max(head.head for head in values) + 1), np.nan)
    for head, value in values.items():
        laid[head.layer, head.head] = value
    return laid


def _figure(width: float, height: float) -> "Figure":
    """An empty one, so many inches large."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise TransduceError("pictures: install the extra plot (pip install 'transduce[plot]')") from error
    return Figure(figsize=(width, height), layout="constrained")


def _saved(figure: "Figure", path: Path | str | None) -> "Figure":
    """The figure, in a file where one is named."""
    if path is not None:
        path, content = Path(path), io.BytesIO()
        try:
            dots = min(_DOTS, math.sqrt(_MOST_DOTS / math.prod(figure.get_size_inches())))
            figure.savefig(content, dpi=dots, format=path.suffix.removeprefix(".") or None)
        except ValueError as error:  # what a name ends with says the format
            raise BadInputError(f"{path}: {error}: give a name that ends with .png or .svg") from error
        write_whole(path, content.getvalue())
    return figure
