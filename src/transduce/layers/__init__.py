"""The paper's building blocks: attention, masks, positions, feed-forward, residuals, embedding, key/value state."""

from transduce.layers.attention import MultiHeadAttention
from transduce.layers.embedding import Embedding
from transduce.layers.feed_forward import FeedForward
from transduce.layers.masks import causal_mask, padding_mask, recent_mask
from transduce.layers.positions import SinusoidalPositions, sinusoids
from transduce.layers.residual import Residual
from transduce.layers.state import KeyValues

__all__ = [
    "Embedding",
    "FeedForward",
    "KeyValues",
    "MultiHeadAttention",
    "Residual",
    "SinusoidalPositions",
    "causal_mask",
    "padding_mask",
    "recent_mask",
    "sinusoids",
]
