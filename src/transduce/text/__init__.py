"""Strings to ids and back. Knows no torch."""

from transduce.text.bpe import learn_bpe
from transduce.text.dropout import BpeDropout
from transduce.text.learn import learn_tokenizer
from transduce.text.pair import TokenizerPair
from transduce.text.sentencepiece import import_sentencepiece
from transduce.text.sentences import split_sentences
from transduce.text.symbols import check_symbols
from transduce.text.tokenizer import Tokenizer

__all__ = [
    "BpeDropout",
    "Tokenizer",
    "TokenizerPair",
    "check_symbols",
    "import_sentencepiece",
    "learn_bpe",
    "learn_tokenizer",
    "split_sentences",
]
