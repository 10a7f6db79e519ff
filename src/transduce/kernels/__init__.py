"""The operations worth writing by hand, each with its plain formula."""

from transduce.kernels.add_norm import add_norm
from transduce.kernels.attention import attend, attention_weights
from transduce.kernels.dropout import WHOLE, Dropped, dropout
from transduce.kernels.loss import projected_cross_entropy, smoothed_cross_entropy
from transduce.kernels.mask import Mask
from transduce.kernels.native import has_native
from transduce.kernels.packed import Heads, attend_packed, packed_way
from transduce.kernels.packing import Packing
from transduce.kernels.precision import resolve_precision
from transduce.kernels.scores import Relative, Scoring
from transduce.kernels.seeds import derive, make_seed
from transduce.kernels.transfer import send

__all__ = [
    "WHOLE",
    "Dropped",
    "Heads",
    "Mask",
    "Packing",
    "Relative",
    "Scoring",
    "add_norm",
    "attend",
    "attend_packed",
    "attention_weights",
    "derive",
    "dropout",
    "has_native",
    "make_seed",
    "packed_way",
    "projected_cross_entropy",
    "resolve_precision",
    "send",
    "smoothed_cross_entropy",
]
