"""The operations worth writing by hand, each with its plain formula."""

from transduce.kernels.add_norm import add_norm
from transduce.kernels.attention import attend, attention_weights
from transduce.kernels.columns import Columns, Writable, join_writable
from transduce.kernels.dropout import WHOLE, Dropped, dropout
from transduce.kernels.feed_forward import feed_forward
from transduce.kernels.linear_maps import Maps, linear_maps
from transduce.kernels.loss import projected_cross_entropy, smoothed_cross_entropy
from transduce.kernels.mask import Mask
from transduce.kernels.memory import is_out_of_memory
from transduce.kernels.native import has_native
from transduce.kernels.packed import Heads, PackedAttention, attend_between, attend_packed, packed_way
from transduce.kernels.packing import Packing
from transduce.kernels.precision import resolve_format, resolve_precision
from transduce.kernels.products import Format, PackedMatrix, linear, pack, select_outputs
from transduce.kernels.ranking import rank_continuations
from transduce.kernels.scores import Relative, Scoring
from transduce.kernels.seeds import derive, make_seed
from transduce.kernels.threads import run_safely, start_threads
from transduce.kernels.transfer import send
from transduce.kernels.transformer import (
    PackedLayer,
    PackedMemory,
    PackedNorm,
    PackedPast,
    PackedStack,
    encode,
    remember,
    step,
)

__all__ = [
    "WHOLE",
    "Columns",
    "Dropped",
    "Format",
    "Heads",
    "Maps",
    "Mask",
    "PackedAttention",
    "PackedLayer",
    "PackedMatrix",
    "PackedMemory",
    "PackedNorm",
    "PackedPast",
    "PackedStack",
    "Packing",
    "Relative",
    "Scoring",
    "Writable",
    "add_norm",
    "attend",
    "attend_between",
    "attend_packed",
    "attention_weights",
    "derive",
    "dropout",
    "encode",
    "feed_forward",
    "has_native",
    "is_out_of_memory",
    "join_writable",
    "linear",
    "linear_maps",
    "make_seed",
    "pack",
    "packed_way",
    "projected_cross_entropy",
    "rank_continuations",
    "remember",
    "resolve_format",
    "resolve_precision",
    "run_safely",
    "select_outputs",
    "send",
    "smoothed_cross_entropy",
    "start_threads",
    "step",
]
