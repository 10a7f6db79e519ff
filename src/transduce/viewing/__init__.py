"""What a model does and how it was trained, as pages and pictures made of plain data. Knows no torch."""

from transduce.config.attention import AttentionHead, AttentionKind
from transduce.viewing.attention import AttentionPage, HasAttention, ViewedSentence
from transduce.viewing.head_roles import HeadRolesPage
from transduce.viewing.model_card import ModelCard, ShownScore
from transduce.viewing.pictures import draw_attention, draw_head_roles
from transduce.viewing.report import ReportPage, TrainingRecord
from transduce.viewing.search import HasSearch, SearchPage

__all__ = [
    "AttentionHead",
    "AttentionKind",
    "AttentionPage",
    "HasAttention",
    "HasSearch",
    "HeadRolesPage",
    "ModelCard",
    "ReportPage",
    "SearchPage",
    "ShownScore",
    "TrainingRecord",
    "ViewedSentence",
    "draw_attention",
    "draw_head_roles",
]
