"""Attention weights as pictures, by matplotlib (the extra ``plot``)."""

from pathlib import Path
from typing import TYPE_CHECKING

from transduce.config import BadInputError, TransduceError
from transduce.config.attention import AttentionHead
from transduce.viewing.attention import HasAttention

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INCHES = 0.3  # of a token


def draw_attention(maps: HasAttention, head: AttentionHead, path: Path | str | None = None) -> "Figure":
    """A heat map of one head, rows attending to columns; into a file (.png, .svg, .pdf) where one is named.

    Raises:
        BadInputError: The model has no such head, or the file's name ends with no known format.
        TransduceError: The extra ``plot`` is not installed.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise TransduceError("pictures: install the extra plot (pip install 'transduce[plot]')") from error
    weights = getattr(maps, head.kind, None)
    if weights is None:
        raise BadInputError(f"the model has no {head.kind} attention")
    layers, heads, rows, columns = weights.shape
    if not (0 <= head.layer < layers and 0 <= head.head < heads):
        raise BadInputError(f"{head}: there are {layers} layers of {heads} heads")
    queries = maps.source if head.kind == "encoder" else maps.target
    keys = maps.read if head.kind == "decoder" else maps.source
    figure = Figure(figsize=(1.5 + _INCHES * columns, 1.5 + _INCHES * rows), layout="constrained")
    axes = figure.subplots()
    axes.imshow(weights[head.layer, head.head], cmap="Blues", vmin=0, vmax=1, aspect="equal")
    axes.set_xticks(range(columns), [key.strip() for key in keys], rotation=60, ha="left", rotation_mode="anchor")
    axes.set_yticks(range(rows), [query.strip() for query in queries])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.set_title(str(head), fontsize="medium")
    if path is not None:
        try:
            figure.savefig(path, dpi=150)
        except ValueError as error:  # what a name ends with says the format
            raise BadInputError(f"{path}: {error}: give a name that ends with .png or .svg") from error
    return figure
