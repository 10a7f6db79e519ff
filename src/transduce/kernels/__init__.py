"""The operations worth writing by hand, each with its plain formula."""

from transduce.kernels.add_norm import add_norm, adds_output_bias
from transduce.kernels.additive import Sources, attend_additively, has_additive
from transduce.kernels.allocator import KeptMemory, give_back_memory, keep_freed_memory, trim
from transduce.kernels.allowed import AllowedTokens, Choices, LogitColumns, join_allowed
from transduce.kernels.attention import attend, attention_weights
from transduce.kernels.decoder_memory import NativeKeyValues, NativeMemory, NativePast, NativeSums
from transduce.kernels.device import is_out_of_memory, send
from transduce.kernels.dropout import WHOLE, Dropped, dropout, seeds_at
from transduce.kernels.feed_forward import activate, feed_forward
from transduce.kernels.linear_maps import Maps, linear_maps, maps_rows
from transduce.kernels.loss import projected_cross_entropy, smoothed_cross_entropy
from transduce.kernels.mask import Mask
from transduce.kernels.native import has_low_precision_products, has_native, kind_of_kernels
from transduce.kernels.precision import resolve_format, resolve_precision
from transduce.kernels.products import Format, PrepackedMatrix, linear, prepack, select_outputs, weights_of
from transduce.kernels.projected_memory import ProjectedMemory, project_memory
from transduce.kernels.ragged import RaggedLayout
from transduce.kernels.ragged_attention import (
    WIDEST_HEAD,
    Heads,
    RaggedAttention,
    attend_between,
    attend_ragged,
    can_project_memory,
    may_project_memory,
    ragged_way,
)
from transduce.kernels.ranking import rank_continuations
from transduce.kernels.recurrence import attending_lstm, conditional_lstm, has_lstm, lstm
from transduce.kernels.rounded_weights import RoundedWeights
from transduce.kernels.rounds import Asked, FlatBeams, Output, can_advance
from transduce.kernels.scores import Relative, Scoring
from transduce.kernels.searching import search
from transduce.kernels.seeds import derive, draw_normal, make_seed
from transduce.kernels.sublayers import (
    Attending,
    Sublayer,
    Transforming,
    can_run_sublayers,
    may_run_sublayers,
    run_sublayers,
)
from transduce.kernels.threads import run_safely, start_threads, use_cores
from transduce.kernels.transformer import (
    READS_NOTHING,
    DecoderBuffers,
    NativeLayer,
    NativeNorm,
    NativeStack,
    encode,
    remember,
    step,
)
from transduce.kernels.windows import Neighbours

__all__ = [
    "READS_NOTHING",
    "WHOLE",
    "WIDEST_HEAD",
    "AllowedTokens",
    "Asked",
    "Attending",
    "Choices",
    "DecoderBuffers",
    "Dropped",
    "FlatBeams",
    "Format",
    "Heads",
    "KeptMemory",
    "LogitColumns",
    "Maps",
    "Mask",
    "NativeKeyValues",
    "NativeLayer",
    "NativeMemory",
    "NativeNorm",
    "NativePast",
    "NativeStack",
    "NativeSums",
    "Neighbours",
    "Output",
    "PrepackedMatrix",
    "ProjectedMemory",
    "RaggedAttention",
    "RaggedLayout",
    "Relative",
    "RoundedWeights",
    "Scoring",
    "Sources",
    "Sublayer",
    "Transforming",
    "activate",
    "add_norm",
    "adds_output_bias",
    "attend",
    "attend_additively",
    "attend_between",
    "attend_ragged",
    "attending_lstm",
    "attention_weights",
    "can_advance",
    "can_project_memory",
    "can_run_sublayers",
    "conditional_lstm",
    "derive",
    "draw_normal",
    "dropout",
    "encode",
    "feed_forward",
    "give_back_memory",
    "has_additive",
    "has_low_precision_products",
    "has_lstm",
    "has_native",
    "is_out_of_memory",
    "join_allowed",
    "keep_freed_memory",
    "kind_of_kernels",
    "linear",
    "linear_maps",
    "lstm",
    "make_seed",
    "maps_rows",
    "may_project_memory",
    "may_run_sublayers",
    "prepack",
    "project_memory",
    "projected_cross_entropy",
    "ragged_way",
    "rank_continuations",
    "remember",
    "resolve_format",
    "resolve_precision",
    "run_safely",
    "run_sublayers",
    "search",
    "seeds_at",
    "select_outputs",
    "send",
    "smoothed_cross_entropy",
    "start_threads",
    "step",
    "trim",
    "use_cores",
    "weights_of",
]
