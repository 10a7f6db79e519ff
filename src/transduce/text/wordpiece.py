"""WordPiece (Wu et al. 2016) as BERT has it: a word is its longest known piece, then the longest that goes on, ...

Pieces that go on with a word begin with ``##``. Text comes back with one space between words, and exactly within them.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from tokenizers import models, trainers

from transduce.text.symbols import CONTINUED, LONGEST_WORD, check_room, check_symbols, count_characters, most_frequent
from transduce.text.tokenizer import SPECIAL_SYMBOLS, UNKNOWN, Tokenizer
from transduce.text.words import GUARD, train_on_words, words_tokenizer

_MIN_FREQUENCY: Final = 2


def learn_wordpiece(lines: Iterable[str], vocab_size: int, symbols: Iterable[str] = ()) -> Tokenizer:
    """Learn a vocabulary of at most ``vocab_size`` symbols: 4 special ones, the user's, characters and merges.

    A word with a character that has no symbol of its own, or of more than 1,000 characters, is unknown. ``lines`` is
    gone through twice (an iterator, which cannot be, is kept in memory). The same lines give the same tokenizer.

    Raises:
        BadInputError: A symbol is none, or the vocabulary has no room for them.
    """
    if isinstance(lines, Iterator):
        lines = list(lines)
    symbols = check_symbols(symbols)
    fixed = [*SPECIAL_SYMBOLS, *symbols]
    # One character at least, and the guard, in two forms each.
    room = 1 + check_room(vocab_size, len(fixed) + 3, symbols)
    alphabet, longest = _alphabet(lines, room)
    characters = [GUARD, *alphabet]
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=_MIN_FREQUENCY,
        # Both forms of every character: the trainer would number them by chance, and then break ties by number.
        special_tokens=[*fixed, *characters, *(CONTINUED + character for character in characters)],
        initial_alphabet=characters,
        limit_alphabet=len(characters),
        continuing_subword_prefix=CONTINUED,
        show_progress=False,
    )
    untrained = models.WordPiece({}, unk_token=UNKNOWN)
    # Most text has no line that is as long, and need not be looked through once more.
    vocabulary = train_on_words(untrained, trainer, lines, symbols, LONGEST_WORD if longest > LONGEST_WORD else None)
    model = models.WordPiece(
        vocabulary,
        unk_token=UNKNOWN,
        continuing_subword_prefix=CONTINUED,
        # The search for the longest piece takes a time that grows with the cube of a word's length.
        max_input_chars_per_word=LONGEST_WORD,
    )
    return words_tokenizer(model, symbols)


def _alphabet(lines: Iterable[str], room: int) -> tuple[list[str], int]:
    """In two forms each they fill at most three quarters of the vocabulary: without them words are unknown.

    Returns:
        The characters, and the length of the longest line.
    """
    counts, longest = count_characters(lines)
    for space in [each for each in counts if each.isspace()]:
        del counts[space]
    return most_frequent(counts, max(1, room * 3 // 8)), longest
