"""The size at which a system has as many parameters as another: found by counting, for the vocabulary that there is."""

from collections.abc import Mapping
from typing import Final

from transduce.config import BadInputError, ModelConfig, System
from transduce.config.systems import POSITIONS
from transduce.models import build_without_storage

TOLERANCE: Final = 0.02
_LARGEST: Final = 2**16

Sizes = Mapping[str, int | None]  # of the vocabularies, as fields of a model's section


def count_parameters(model: ModelConfig, sizes: Sizes) -> int:
    """Of the model with vocabularies of these sizes, embeddings included."""
    built = build_without_storage(model.model_copy(update=dict(sizes)))
    return sum(weight.numel() for weight in built.parameters())


def choose_size(system: System, parameters: int, sizes: Sizes, longest: int = 0) -> ModelConfig:
    """The configuration whose number of parameters is nearest to ``parameters``.

    Learned positions are as many as training pairs may have, and as ``longest``, that of what is translated.

    Raises:
        BadInputError: None is within 2% of it.
    """
    positions = max(POSITIONS, longest)

    def count(size: int) -> int:
        return count_parameters(system.model(size, positions), sizes)

    above = 1
    while count(above) < parameters and above < _LARGEST:
        above *= 2
    below = above // 2  # too small, or 0, which is no size
    while above - below > 1:
        middle = (above + below) // 2
        below, above = (middle, above) if count(middle) < parameters else (below, middle)
    size = min((size for size in (below, above) if size), key=lambda size: abs(count(size) - parameters))
    if abs(count(size) - parameters) > TOLERANCE * parameters:
        raise BadInputError(
            f"{system.name}: {count(size):,} parameters are the nearest to {parameters:,} that it can have with this "
            f"vocabulary: leave it out (--rows)"
        )
    return system.model(size, positions)
