"""Running a trained model: the engine over ids, and the Translator over text."""

from transduce.inference.alignment import pharaoh
from transduce.inference.attention import AttentionMaps
from transduce.inference.documents import DocumentTranslation, translate_documents
from transduce.inference.engine import Engine
from transduce.inference.head_roles import HeadStatistics
from transduce.inference.loading import load
from transduce.inference.nltk_trees import draw, from_nltk, split_words, to_nltk
from transduce.inference.parsing import Parse, Parser
from transduce.inference.queue import RequestQueue
from transduce.inference.running import Cancellation
from transduce.inference.search_trace import SearchTrace
from transduce.inference.translation import Translation, limits_told_once
from transduce.inference.translator import Translator
from transduce.inference.unknown_words import check_unknown_words

__all__ = [
    "AttentionMaps",
    "Cancellation",
    "DocumentTranslation",
    "Engine",
    "HeadStatistics",
    "Parse",
    "Parser",
    "RequestQueue",
    "SearchTrace",
    "Translation",
    "Translator",
    "check_unknown_words",
    "draw",
    "from_nltk",
    "limits_told_once",
    "load",
    "pharaoh",
    "split_words",
    "to_nltk",
    "translate_documents",
]
