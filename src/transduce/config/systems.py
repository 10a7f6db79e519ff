"""The systems that are compared as in the paper's Table 2: each an architecture whose size is still to be chosen."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

from transduce.config.architectures import ModelConfig, read_model
from transduce.config.presets import PUBLISHED, Changes


@final
@dataclass(frozen=True)
class System:
    """A system of the comparison.

    ``section`` is the [model] section of each size, a whole number from 1 on: the larger, the more parameters.
    ``stands_for`` is the system of Table 2 whose architecture it has; ``peak_rate`` the highest learning rate.
    """

    name: str
    meaning: str
    section: Callable[[int], Changes]
    peak_rate: float
    stands_for: str | None = None

    def model(self, size: int) -> ModelConfig:
        """Its configuration of a size."""
        return read_model(self.section(size))


# All others are made as large as this one is at size 32: ``tiny``, with the norm in front as in the quick recipe.
REFERENCE_SIZE: Final = 32


def _transformer(size: int, **changes: object) -> Changes:
    return {**PUBLISHED["tiny"].model, "d_model": 4 * size, "d_ff": 8 * size, "norm": "pre", **changes}


SYSTEMS: Final = (
    System(
        "transformer",
        "4 + 4 layers, 4 heads, norm in front of the sub-layers",
        _transformer,
        0.0063,
        "Transformer (base model)",
    ),
    System(
        "single-head", "the same with one head as wide as the four", lambda size: _transformer(size, heads=1), 0.0063
    ),
)
