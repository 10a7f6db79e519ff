"""Byte-pair encoding (Sennrich et al. 2016) that can write any text: what it has not seen, it spells in bytes.

A token holds its leading space as it is, so nothing stands in for a space and every line comes back exactly.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Final

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from transduce.text.symbols import (
    BYTES,
    LONGEST_WORD,
    check_room,
    check_symbols,
    count_characters,
    most_frequent,
    standing,
)
from transduce.text.tokenizer import SPECIAL_SYMBOLS, UNKNOWN, Tokenizer, add_special

_MIN_FREQUENCY: Final = 2

# A piece is a word, one digit (numbers of any length are spelled alike), a run of other marks, or white space; each
# takes one space before it along. "<", letters and digits never share a piece, so no merge can spell a special
# symbol or a byte's name: text that looks like one stays text.
_PIECE: Final = r" ?[\p{L}\p{M}]+| ?\p{N}| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+"
# Those of them that are too long to learn from, each from its beginning on.
_LONG: Final = "|".join(
    f"{space}(?<!{kind}){kind}{{{LONGEST_WORD + 1},}}{behind}"
    for space, kind, behind in (
        (" ?", r"[\p{L}\p{M}]", ""),
        (" ?", r"[^\s\p{L}\p{M}\p{N}]", ""),
        ("", r"\s", r"(?!\S)"),
    )
)


def learn_bpe(lines: Iterable[str], vocab_size: int, symbols: Iterable[str] = ()) -> Tokenizer:
    """Learn a vocabulary of at most ``vocab_size`` symbols: 4 special ones, 256 bytes, characters and merges.

    Each of the user's ``symbols`` takes two rows, one with the space before it and one without. ``lines`` is gone
    through twice (an iterator, which cannot be, is kept in memory). The same lines give the same tokenizer.

    Raises:
        BadInputError: A symbol is none, or the vocabulary has no room for them.
    """
    if isinstance(lines, Iterator):
        lines = list(lines)
    symbols = check_symbols(symbols)
    fixed = [*SPECIAL_SYMBOLS, *BYTES, *_forms(symbols)]
    alphabet, longest = _alphabet(lines, check_room(vocab_size, len(fixed), symbols))
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=_MIN_FREQUENCY,
        special_tokens=fixed,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    backend = _untrained(())
    left_out = [_symbol_piece(symbols)] if symbols else []
    # Most text has no line that is as long, and need not be looked through once more.
    left_out += [_LONG] if longest > LONGEST_WORD else []
    without = [pre_tokenizers.Split(Regex(pattern), behavior="removed") for pattern in left_out]
    backend.pre_tokenizer = pre_tokenizers.Sequence([*without, _splitter(())])
    backend.train_from_iterator(lines, trainer)
    return Tokenizer(_with_byte_fallback(backend, symbols))


def _forms(symbols: tuple[str, ...]) -> list[str]:
    """A symbol as it stands after a space, or at the beginning of a line, and after other white space."""
    return [form for symbol in symbols for form in (f" {symbol}", symbol)]


def _alphabet(lines: Iterable[str], room: int) -> tuple[list[str], int]:
    """Rare characters are left to the bytes, so that an alphabet of thousands leaves room for merges.

    Returns:
        The characters, and the length of the longest line.
    """
    counts, longest = count_characters(lines)
    counts[" "] += len(counts) and 1  # stands before every line
    return most_frequent(counts, max(1, room // 2)), longest


def _symbol_piece(symbols: tuple[str, ...]) -> str:
    return rf" ?{standing(symbols)}"


def _splitter(symbols: tuple[str, ...]) -> pre_tokenizers.PreTokenizer:
    pattern = f"{_symbol_piece(symbols)}|{_PIECE}" if symbols else _PIECE
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated")


def _untrained(symbols: tuple[str, ...]) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE(unk_token=UNKNOWN))
    # The first word of a line gets the space that the same word has inside a line.
    backend.normalizer = normalizers.Prepend(" ")
    backend.pre_tokenizer = _splitter(symbols)
    backend.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", left=1, right=0)]
    )
    return backend


def _with_byte_fallback(trained: tokenizers.Tokenizer, symbols: tuple[str, ...]) -> tokenizers.Tokenizer:
    """The same vocabulary with bytes and symbols as ordinary ones: the trainer can only add them as special ones."""
    model = json.loads(trained.to_str())["model"]
    backend = _untrained(symbols)
    merges = [tuple(merge) if isinstance(merge, list) else tuple(merge.split(" ")) for merge in model["merges"]]
    forms = set(_forms(symbols))
    backend.model = models.BPE(
        vocab=model["vocab"],
        # A symbol that a longer word contains does not become a part of that word.
        merges=[(left, right) for left, right in merges if left + right not in forms],
        unk_token=UNKNOWN,
        byte_fallback=True,
        # A piece that is a symbol is looked up whole.
        ignore_merges=bool(symbols),
    )
    return add_special(backend)
