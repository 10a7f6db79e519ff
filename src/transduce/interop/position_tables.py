"""Positions that another library keeps as tables: sinusoids of a known kind, learned ones, or none."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from transduce.config import BadInputError
from transduce.config.model import SinusoidLayout, SinusoidRange
from transduce.layers import sinusoids

# A table is of sinusoids where it is as near to them as float32 comes, which far positions are by rounded angles; one
# of fewer bits, as near as these come to one.
_NEAR: Final = 1e-3
_KNOWN: Final[tuple[tuple[SinusoidLayout, SinusoidRange, int], ...]] = tuple(
    (layout, range_, start)
    for start in (0, 2, 1)  # the paper, fairseq, OpenNMT-tf
    for layout in ("interleaved", "concatenated")
    for range_ in ("open", "closed")
)


def sinusoidal(layout: SinusoidLayout, range_: SinusoidRange, start: int = 0) -> dict[str, Any]:
    """The settings of sinusoids."""
    return {
        "positions": "sinusoidal",
        "sinusoid_layout": layout,
        "sinusoid_range": range_,
        "sinusoid_start": start,
    }


def take_positions(weights: dict[str, Tensor], names: Sequence[str], d_model: int) -> dict[str, Any]:
    """Our settings of the positions in the tables of these names, those that are there.

    Tables that no weights of ours are taken out. Learned ones stay, cut to the shortest of them: ours have one length.
    """
    tables = [weights[name] for name in names if name in weights]
    found = _recognise(tables, d_model)
    if found["positions"] != "learned":
        for name in names:
            weights.pop(name, None)
        return found
    return found | cut_tables(weights, names)


def cut_tables(weights: dict[str, Tensor], names: Sequence[str]) -> dict[str, Any]:
    """Our settings of learned positions, whose tables are cut to the shortest: ours have one length."""
    longest = min(len(weights[name]) for name in names if name in weights)
    weights |= {name: weights[name][:longest] for name in names if name in weights}
    return {"positions": "learned", "max_positions": longest}


def drop_sinusoids(
    weights: dict[str, Tensor],
    names: Sequence[str],
    d_model: int,
    layout: SinusoidLayout,
    range_: SinusoidRange,
    path: Path,
) -> dict[str, Any]:
    """Our settings of sinusoids that are known to be of this kind; their tables, where there are any, are taken out.

    Raises:
        BadInputError: A table is another.
    """
    for name in names:
        table = weights.pop(name, None)
        if table is not None and not (table.shape[-1:] == (d_model,) and _is_near(table, layout, range_, 0)):
            raise BadInputError(f"{path}: {name} has no sinusoids of d_model = {d_model}, as its settings say: damaged")
    return sinusoidal(layout, range_)


def _recognise(tables: Sequence[Tensor], d_model: int) -> dict[str, Any]:
    if not any(bool(table.any()) for table in tables):
        return {"positions": "none"}
    for known in _KNOWN if d_model % 2 == 0 and d_model >= 4 else ():
        if all(_is_near(table, *known) for table in tables):
            return sinusoidal(*known)
    return {"positions": "learned"}


def _is_near(table: Tensor, layout: SinusoidLayout, range_: SinusoidRange, start: int) -> bool:
    if table.dim() != 2 or table.shape[1] % 2 or table.numel() == 0 or not table.is_floating_point():
        return False
    places, near = torch.arange(start, start + len(table)), max(_NEAR, torch.finfo(table.dtype).eps)
    return bool((sinusoids(places, table.shape[1], layout, range_) - table).abs().max() < near)
