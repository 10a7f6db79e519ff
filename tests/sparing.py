"""Parametrizations that take long in whole: a part of each always runs, and the rest is slow (pytest -m slow)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest


def every(number: int, values: Mapping[str, Any], first: int = 0) -> Iterator[Any]:
    """Each so-manieth value by its name, counted from ``first``; tests of one thing count from different ones."""
    for place, (name, value) in enumerate(values.items()):
        yield pytest.param(value, id=name, marks=_unless((place - first) % number == 0))


def one_each(rows: Iterable[str], columns: Iterable[Any], shift: int = 0) -> Iterator[Any]:
    """Each row with one of the columns, each column with as many rows as the others."""
    columns = list(columns)
    for place, row in enumerate(rows):
        for column in columns:
            kept = column == columns[(place + shift) % len(columns)]
            yield pytest.param(row, column, id=f"{row}-{column}", marks=_unless(kept))


def _unless(kept: bool) -> list[pytest.MarkDecorator]:
    return [] if kept else [pytest.mark.slow]
