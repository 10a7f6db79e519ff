"""One token for each word between white space, or for each character.

Words come back with one space between them, and unseen ones do not. Unseen characters are spelled in bytes, so every
text comes back exactly.
"""

import re
from collections.abc import Iterable
from typing import Final

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from transduce.text.symbols import (
    BYTES,
    CONTINUED,
    check_room,
    check_symbols,
    count_characters,
    most_frequent,
    standing,
)
from transduce.text.tokenizer import SPECIAL_SYMBOLS, UNKNOWN, Tokenizer, add_special

# Stands before words of the text that begin like something else, a special symbol for one, and goes when text is
# written. Unicode keeps this code point for a program's own use.
GUARD: Final = "\ufdd0"


def learn_words(lines: Iterable[str], vocab_size: int, symbols: Iterable[str] = ()) -> Tokenizer:
    """A vocabulary of at most ``vocab_size`` symbols: 4 special ones, the user's, and the most frequent words.

    Of equally frequent words those come first that Unicode has first.

    Raises:
        BadInputError: A symbol is none, or the vocabulary has no room for them.
    """
    symbols = check_symbols(symbols)
    fixed = [*SPECIAL_SYMBOLS, *symbols]
    check_room(vocab_size, len(fixed), symbols)
    trainer = trainers.WordLevelTrainer(vocab_size=vocab_size, special_tokens=fixed, show_progress=False)
    trained = train_on_words(models.WordLevel({}, unk_token=UNKNOWN), trainer, lines, symbols)
    return words_tokenizer(models.WordLevel(trained, unk_token=UNKNOWN), symbols)


def train_on_words(
    model: models.Model,
    trainer: trainers.Trainer,
    lines: Iterable[str],
    symbols: tuple[str, ...],
    longest: int | None = None,
) -> dict[str, int]:
    """The vocabulary that the trainer gives for the words of the text, the user's symbols left out.

    With ``longest``, so are words of more characters.
    """
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = _guards(symbols)
    left_out = [standing(symbols)] if symbols else []
    left_out += [] if longest is None else [rf"(?<!\S)\S{{{longest + 1},}}"]
    without = [pre_tokenizers.Split(Regex(pattern), behavior="removed") for pattern in left_out]
    backend.pre_tokenizer = pre_tokenizers.Sequence([*without, pre_tokenizers.WhitespaceSplit()])
    backend.train_from_iterator(lines, trainer)
    return backend.get_vocab()


def words_tokenizer(model: models.Model, symbols: tuple[str, ...]) -> Tokenizer:
    """A tokenizer of words between white space: the model gives each its tokens."""
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = _guards(symbols)
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.Sequence(
        [
            decoders.WordPiece(prefix=CONTINUED, cleanup=False),
            decoders.Fuse(),
            # A text that begins with a continuation, which only a model can write.
            decoders.Replace(Regex(rf"\A{CONTINUED}"), ""),
            decoders.Replace(Regex(rf"(?<!\S){GUARD}"), ""),
        ]
    )
    return Tokenizer(add_special(backend))


def _guards(symbols: tuple[str, ...]) -> normalizers.Normalizer:
    """Set guards before words of the text that would be read as symbols, or begin like one."""
    names = "|".join(map(re.escape, [CONTINUED, GUARD, *SPECIAL_SYMBOLS, *symbols]))
    meant = f"(?!{standing(symbols)})" if symbols else ""
    guards = normalizers.Replace(Regex(rf"(?<=\s){meant}(?={names})"), GUARD)
    # The library fails where something is put at the very beginning.
    return normalizers.Sequence([normalizers.Prepend(" "), guards])


def learn_characters(lines: Iterable[str], vocab_size: int, symbols: Iterable[str] = ()) -> Tokenizer:
    """A vocabulary of at most ``vocab_size`` symbols: 4 special ones, 256 bytes, the user's, frequent characters.

    Raises:
        BadInputError: A symbol is none, or the vocabulary has no room for them.
    """
    symbols = check_symbols(symbols)
    fixed = [*SPECIAL_SYMBOLS, *BYTES, *symbols]
    room = check_room(vocab_size, len(fixed), symbols)
    characters = most_frequent(count_characters(lines)[0], room)
    vocabulary = {symbol: index for index, symbol in enumerate(dict.fromkeys([*fixed, *characters]))}
    backend = tokenizers.Tokenizer(
        models.BPE(vocabulary, [], unk_token=UNKNOWN, byte_fallback=True, ignore_merges=bool(symbols))
    )
    if symbols:
        # Pieces of one character each, so that only a symbol's piece is looked up whole, not text that spells another.
        backend.pre_tokenizer = pre_tokenizers.Split(Regex(rf"{standing(symbols)}|[\s\S]"), behavior="isolated")
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return Tokenizer(add_special(backend))
