"""What a model does and how it was trained, as pages and pictures made of plain data. Knows no torch."""

from transduce.viewing.attention import AttentionPage, HasAttention, ViewedSentence
from transduce.viewing.pictures import draw_attention

__all__ = ["AttentionPage", "HasAttention", "ViewedSentence", "draw_attention"]
