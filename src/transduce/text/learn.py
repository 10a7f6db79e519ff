"""Learning a tokenizer: the one place that chooses its kind."""

from collections.abc import Iterable
from typing import Literal, assert_never

from transduce.text.bpe import learn_bpe
from transduce.text.tokenizer import Tokenizer
from transduce.text.wordpiece import learn_wordpiece
from transduce.text.words import learn_characters, learn_words

LearnedKind = Literal["bpe", "wordpiece", "words", "characters"]


def learn_tokenizer(kind: LearnedKind, lines: Iterable[str], vocab_size: int, symbols: Iterable[str] = ()) -> Tokenizer:
    """Learn at most ``vocab_size`` symbols; the same lines give the same ``tokenizer.json``, byte for byte.

    ``symbols`` are words that stay one token each, wherever they stand between white space. ``lines`` is gone through
    up to twice and never kept, unless it is an iterator.

    Raises:
        BadInputError: A symbol is none, or the vocabulary has no room for them.
    """
    match kind:
        case "bpe":
            return learn_bpe(lines, vocab_size, symbols)
        case "wordpiece":
            return learn_wordpiece(lines, vocab_size, symbols)
        case "words":
            return learn_words(lines, vocab_size, symbols)
        case "characters":
            return learn_characters(lines, vocab_size, symbols)
        case unknown:
            assert_never(unknown)
