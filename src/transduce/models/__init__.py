"""Whole sequence-to-sequence models behind one contract; ``build`` is the only place that chooses between them."""

from transduce.models.build import build, build_unfilled, build_without_storage, make_ready
from transduce.models.contract import Decoded, LossSums, Model, State, Step, Tokens
from transduce.models.ensemble import Ensemble
from transduce.models.packed import PackedTransformer
from transduce.models.packed_stacks import can_pack
from transduce.models.shortlist import Shortlist
from transduce.models.transformer import Transformer

__all__ = [
    "Decoded",
    "Ensemble",
    "LossSums",
    "Model",
    "PackedTransformer",
    "Shortlist",
    "State",
    "Step",
    "Tokens",
    "Transformer",
    "build",
    "build_unfilled",
    "build_without_storage",
    "can_pack",
    "make_ready",
]
