"""Whole sequence-to-sequence models behind one contract; ``build`` is the only place that chooses between them."""

from transduce.models.build import build, build_without_storage
from transduce.models.contract import Decoded, LossSums, Model, State, Step, Tokens
from transduce.models.ensemble import Ensemble
from transduce.models.transformer import Transformer

__all__ = [
    "Decoded",
    "Ensemble",
    "LossSums",
    "Model",
    "State",
    "Step",
    "Tokens",
    "Transformer",
    "build",
    "build_without_storage",
]
