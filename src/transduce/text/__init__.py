"""Strings to ids and back. Knows no torch."""

from transduce.text.bpe import learn_bpe
from transduce.text.documents import Document, DocumentKind, read_document
from transduce.text.dropout import BpeDropout
from transduce.text.learn import learn_tokenizer
from transduce.text.linearization import Linearization
from transduce.text.markup import Markup
from transduce.text.pair import TokenizerPair
from transduce.text.pieces import AlignedText
from transduce.text.projection import Segment
from transduce.text.sentencepiece import import_sentencepiece
from transduce.text.sentencepiece_file import StoredModel, read_sentencepiece, write_sentencepiece
from transduce.text.sentencepiece_origin import sentencepiece_in, whole_sentencepiece
from transduce.text.sentencepiece_vocabulary import sentencepiece_over, text_pieces
from transduce.text.sentences import check_language, find_gap, split_sentences
from transduce.text.subtitles import Subtitles
from transduce.text.symbols import check_symbols
from transduce.text.tokenizer import Tokenizer
from transduce.text.trees import BadTreeError, Tree, clean, escape, parse_brackets, read_trees, unescape
from transduce.text.unknown import fill_unknown, look_up, word_at

__all__ = [
    "AlignedText",
    "BadTreeError",
    "BpeDropout",
    "Document",
    "DocumentKind",
    "Linearization",
    "Markup",
    "Segment",
    "StoredModel",
    "Subtitles",
    "Tokenizer",
    "TokenizerPair",
    "Tree",
    "check_language",
    "check_symbols",
    "clean",
    "escape",
    "fill_unknown",
    "find_gap",
    "import_sentencepiece",
    "learn_bpe",
    "learn_tokenizer",
    "look_up",
    "parse_brackets",
    "read_document",
    "read_sentencepiece",
    "read_trees",
    "sentencepiece_in",
    "sentencepiece_over",
    "split_sentences",
    "text_pieces",
    "unescape",
    "whole_sentencepiece",
    "word_at",
    "write_sentencepiece",
]
