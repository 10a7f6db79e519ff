"""Strings to ids and back. Knows no torch."""

from transduce.text.bpe import learn_bpe
from transduce.text.tokenizer import SpecialIds, Tokenizer

__all__ = ["SpecialIds", "Tokenizer", "learn_bpe"]
