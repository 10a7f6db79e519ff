"""Positions that another library keeps as tables: sinusoids of a known kind, learned ones, or none."""

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from transduce.config.model import SinusoidLayout, SinusoidRange
from transduce.layers import sinusoids

# A table is of sinusoids where it is as near to them as float32 comes, which far positions are by rounded angles.
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
    longest = min(map(len, tables))
    weights |= {name: weights[name][:longest] for name in names if name in weights}
    return found | {"max_positions": longest}


def _recognise(tables: Sequence[Tensor], d_model: int) -> dict[str, Any]:
    if not any(bool(table.any()) for table in tables):
        return {"positions": "none"}
    for known in _KNOWN if d_model % 2 == 0 and d_model >= 4 else ():
        if all(_is_near(table, *known) for table in tables):
            return sinusoidal(*known)
    return {"positions": "learned"}


def _is_near(table: Tensor, layout: SinusoidLayout, range_: SinusoidRange, start: int) -> bool:
    if table.dim() != 2 or table.shape[1] % 2:
        return False
    places = torch.arange(start, start + len(table))
    return bool((sinusoids(places, table.shape[1], layout, range_) - table).abs().max() < _NEAR)
