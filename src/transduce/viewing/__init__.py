"""What a model does and how it was trained, as pages and pictures made of plain data. Knows no torch."""

from transduce.viewing.attention import AttentionPage, HasAttention, ViewedSentence
from transduce.viewing.pictures import draw_attention
from transduce.viewing.search import HasSearch, SearchPage

__all__ = ["AttentionPage", "HasAttention", "HasSearch", "SearchPage", "ViewedSentence", "draw_attention"]
