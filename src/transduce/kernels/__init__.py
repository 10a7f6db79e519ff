"""The operations worth writing by hand, each with its plain formula."""

from transduce.kernels.attention import attention_weights, scaled_dot_product_attention
from transduce.kernels.dropout import dropout
from transduce.kernels.loss import projected_cross_entropy, smoothed_cross_entropy
from transduce.kernels.precision import resolve_precision

__all__ = [
    "attention_weights",
    "dropout",
    "projected_cross_entropy",
    "resolve_precision",
    "scaled_dot_product_attention",
    "smoothed_cross_entropy",
]
