"""Strings to ids and back. Knows no torch."""

from transduce.text.bpe import learn_bpe
from transduce.text.tokenizer import Tokenizer

__all__ = ["Tokenizer", "learn_bpe"]
