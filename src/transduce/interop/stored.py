"""A model as another library's files have it, before any of it is ours."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from torch import Tensor

from transduce.interop.options import Options
from transduce.interop.vocabularies import Sides


@final
@dataclass(frozen=True)
class Stored:
    """What the files of a model say: its options and its weights under their own names, and its vocabularies.

    ``paths`` are the files of its weights, of which errors name the first.
    """

    paths: tuple[Path, ...]
    options: Options
    weights: Mapping[str, Tensor]
    sides: Sides

    @property
    def path(self) -> Path:
        """The file that errors are about."""
        return self.paths[0]
