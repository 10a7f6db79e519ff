"""The operations worth writing by hand, each with its plain formula."""

from transduce.kernels.attention import attend, attention_weights
from transduce.kernels.dropout import dropout
from transduce.kernels.loss import projected_cross_entropy, smoothed_cross_entropy
from transduce.kernels.mask import Mask
from transduce.kernels.precision import resolve_precision
from transduce.kernels.scores import Relative, Scoring

__all__ = [
    "Mask",
    "Relative",
    "Scoring",
    "attend",
    "attention_weights",
    "dropout",
    "projected_cross_entropy",
    "resolve_precision",
    "smoothed_cross_entropy",
]
