"""Building blocks of models: attention, masks, positions, feed-forward, residuals, embedding, what decoding keeps."""

from transduce.layers.attention import MultiHeadAttention, attention_scale, project_for_all
from transduce.layers.average_attention import AverageAttention, average_weights
from transduce.layers.convolution import Convolution, fold_normalization
from transduce.layers.dropout import Dropout
from transduce.layers.embedding import Embedding, append_bias
from transduce.layers.feed_forward import FeedForward, FeedForwardShape, feed_forward, mixture_of_experts
from transduce.layers.linear import PrepackedLinear, prepack_linears
from transduce.layers.mixture_of_experts import Gating, MixtureOfExperts, Routing, join_routings
from transduce.layers.parameter_attention import ParameterAttention
from transduce.layers.positions import PositionalEncoding
from transduce.layers.recurrent_attention import Alignment, Attended, RecurrentAttention
from transduce.layers.residual import Residual, Stream
from transduce.layers.sinusoids import sinusoid_shift, sinusoids
from transduce.layers.state import KeyValues, Past, RunningSum, join_past, recent_mask

__all__ = [
    "Alignment",
    "Attended",
    "AverageAttention",
    "Convolution",
    "Dropout",
    "Embedding",
    "FeedForward",
    "FeedForwardShape",
    "Gating",
    "KeyValues",
    "MixtureOfExperts",
    "MultiHeadAttention",
    "ParameterAttention",
    "Past",
    "PositionalEncoding",
    "PrepackedLinear",
    "RecurrentAttention",
    "Residual",
    "Routing",
    "RunningSum",
    "Stream",
    "append_bias",
    "attention_scale",
    "average_weights",
    "feed_forward",
    "fold_normalization",
    "join_past",
    "join_routings",
    "mixture_of_experts",
    "prepack_linears",
    "project_for_all",
    "recent_mask",
    "sinusoid_shift",
    "sinusoids",
]
