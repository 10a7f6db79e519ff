"""Where each value of a run came from: a line of the file, the command line, a preset, or the defaults."""

import tomllib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

from transduce.config.keys import Location, Table, depth_of, parse
from transduce.config.model import VOCABULARY_SIZES
from transduce.config.presets import PRESETS, PUBLISHED
from transduce.config.run import RunConfig
from transduce.config.section import show_value
from transduce.config.values import find_field

_BASE: Final = "base"  # what a model is that names no preset


@dataclass(frozen=True)
class Origin:
    """Where a run's values came from: a file's text, the keys that the command line set, and a preset.

    ``table`` is what the first two say together.
    """

    path: Path
    text: str
    given: frozenset[str]
    table: Table

    @property
    def preset(self) -> str | None:
        """The preset that the model is made from; none where an unknown one is named."""
        section = self.table.get("model")
        name = section.get("preset", _BASE) if isinstance(section, dict) else _BASE
        return name if isinstance(name, str) and name in PRESETS else None

    @property
    def from_preset(self) -> Mapping[str, Mapping[str, Any]]:
        """What the preset says of each section."""
        if self.preset is None or not isinstance(self.table.get("model", {}), dict):
            return {}
        published = PUBLISHED[self.preset]
        return {"model": published.model, **published.regime}

    @property
    def expanded(self) -> Table:
        """The run with its preset written out in all sections: what was asked for, right or wrong."""
        expanded = dict(self.table)
        if isinstance(section := expanded.get("model"), dict):
            expanded["model"] = {key: section[key] for key in section if key not in {"preset", *VOCABULARY_SIZES}}
        for name, fields in self.from_preset.items():
            given = expanded.get(name, {})
            if isinstance(given, dict) and "learning_rate" in given:
                # A rate of one's own takes the place of the preset's schedule, and so of its factor.
                given = {"learning_rate_factor": 1.0, **given}
            expanded[name] = {**fields, **given} if isinstance(given, dict) else given
        return expanded

    def place(self, location: Location) -> str:
        """Where a key stands, and its name: on the command line, or in a line of the file."""
        key = ".".join(location)
        line, depth = self._line(location)
        for setting in sorted(self.given):
            deeper = depth < len(location) and setting.startswith(f"{key}.")
            if setting == key or deeper:
                return f"--set {setting}"
            if key.startswith(f"{setting}."):
                return f"--set {setting}: {key}"
        where = f"{self.path}{f' line {line}' if line else ''}"
        return f"{where}: {key}" if key else where

    def place_of_all(self, location: Location, names: Iterable[str]) -> str:
        """Where a section stands of which these keys do not fit each other: those that the command line set, if any."""
        keys = [".".join((*location, name)) for name in names]
        return " and ".join(f"--set {key}" for key in keys if key in self.given) or self.place(location)

    def remark(self, location: Location, name: str, value: str) -> str | None:
        """Where a value came from that the section itself does not have: a preset, or the defaults."""
        *sections, key = *location, *name.split(".")
        field = find_field(RunConfig, (*sections, key))
        if field is None or depth_of(self.table, (*sections, key)) > len(sections):
            return None
        from_preset = self.from_preset.get(".".join(sections), {})
        if key in from_preset and show_value(from_preset[key]) == value:
            return f"{name} = {value} comes from the preset {self.preset!r}"
        return f"{name} = {value} is the default" if show_value(field.default) == value else None

    def line(self, location: Location) -> int:
        """The line of the file that brings a key; 0 where the command line does, or nothing."""
        return 0 if self.place(location).startswith("--set") else self._line(location)[0]

    @cached_property
    def _up_to(self) -> Callable[[int], Table]:
        """What the file says up to one of its lines; where that is in the middle of a value, what it says before it."""
        lines = self.text.split("\n")

        @cache
        def up_to(number: int) -> Table:
            for last in range(number, 0, -1):
                try:
                    return parse("\n".join(lines[:last]) + "\n")
                except tomllib.TOMLDecodeError:
                    continue
            return {}

        return up_to

    def _line(self, location: Location) -> tuple[int, int]:
        """The line that brings a key, or the innermost table of those that hold it; and how deep that is."""
        numbers = range(self.text.count("\n") + 2)
        depth = depth_of(self._up_to(numbers[-1]), location)
        # The further one reads, the deeper a key's tables are there: nothing is taken back.
        return bisect_left(numbers, depth, key=lambda number: depth_of(self._up_to(number), location)), depth
