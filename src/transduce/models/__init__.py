"""Whole sequence-to-sequence models behind one contract; ``build`` is the only place that chooses between them."""

from transduce.models.build import build, build_unfilled, build_without_storage, make_ready
from transduce.models.bytenet import ByteNet
from transduce.models.contract import (
    LAST_CROSS,
    NO_ATTENTION,
    AttentionRequest,
    AttentionWeights,
    Decoded,
    LossSums,
    Model,
    SearchingModel,
    SizedModel,
    State,
    Step,
    Tokens,
    TrainableModel,
    Weights,
    fill_unread,
)
from transduce.models.convs2s import ConvS2S
from transduce.models.ensemble import Ensemble
from transduce.models.muting import heads_of, mute
from transduce.models.native import NativeTransformer
from transduce.models.native_stacks import can_run_natively, kernels_compute
from transduce.models.prepacking import Kept, NumberSource, Prepacking
from transduce.models.shortlist import Shortlist
from transduce.models.transformer import Transformer

__all__ = [
    "LAST_CROSS",
    "NO_ATTENTION",
    "AttentionRequest",
    "AttentionWeights",
    "ByteNet",
    "ConvS2S",
    "Decoded",
    "Ensemble",
    "Kept",
    "LossSums",
    "Model",
    "NativeTransformer",
    "NumberSource",
    "Prepacking",
    "SearchingModel",
    "Shortlist",
    "SizedModel",
    "State",
    "Step",
    "Tokens",
    "TrainableModel",
    "Transformer",
    "Weights",
    "build",
    "build_unfilled",
    "build_without_storage",
    "can_run_natively",
    "fill_unread",
    "heads_of",
    "kernels_compute",
    "make_ready",
    "mute",
]
