"""Byte-pair encoding (Sennrich et al. 2016) that can write any text: what it has not seen, it spells in bytes.

A token holds its leading space as it is, so nothing stands in for a space and every line comes back exactly.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers

from transduce.text.tokenizer import SPECIAL_SYMBOLS, UNKNOWN, Tokenizer

BYTES: Final = tuple(f"<0x{byte:02X}>" for byte in range(256))
_MIN_FREQUENCY: Final = 2

# A piece is a word, one digit (numbers of any length are spelled alike), a run of other marks, or white space; each
# takes one space before it along. "<", letters and digits never share a piece, so no merge can spell a special
# symbol or a byte's name: text that looks like one stays text.
_PIECE: Final = r" ?[\p{L}\p{M}]+| ?\p{N}| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+"


def learn_bpe(lines: Iterable[str], vocab_size: int) -> Tokenizer:
    """Learn a vocabulary of at most ``vocab_size`` symbols: 4 special ones, 256 bytes, characters and merges.

    ``lines`` is gone through twice (an iterator, which cannot be, is kept in memory). The same lines give the same
    tokenizer.
    """
    if isinstance(lines, Iterator):
        lines = list(lines)
    backend = _untrained()
    alphabet = _alphabet(lines, max(1, (vocab_size - len(BYTES) - len(SPECIAL_SYMBOLS)) // 2))
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=_MIN_FREQUENCY,
        special_tokens=[*SPECIAL_SYMBOLS, *BYTES],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    backend.train_from_iterator(lines, trainer)
    return Tokenizer(_with_byte_fallback(backend))


def _alphabet(lines: Iterable[str], limit: int) -> list[str]:
    """The most frequent characters, of equally frequent ones those that Unicode has first.

    Rare characters are left to the bytes, so that an alphabet of thousands leaves room for merges. The trainer could
    choose too, but of equally frequent ones it keeps others each time.
    """
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line)
    counts[" "] += len(counts) and 1  # stands before every line
    return sorted(+counts, key=lambda character: (-counts[character], character))[:limit]


def _untrained() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE(unk_token=UNKNOWN))
    # The first word of a line gets the space that the same word has inside a line.
    backend.normalizer = normalizers.Prepend(" ")
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(_PIECE), behavior="isolated")
    backend.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", left=1, right=0)]
    )
    return backend


def _with_byte_fallback(trained: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The same vocabulary with bytes as ordinary symbols: the trainer can only add them as special ones."""
    model = json.loads(trained.to_str())["model"]
    backend = _untrained()
    merges = [tuple(merge) if isinstance(merge, list) else tuple(merge.split(" ")) for merge in model["merges"]]
    backend.model = models.BPE(vocab=model["vocab"], merges=merges, unk_token=UNKNOWN, byte_fallback=True)
    backend.add_special_tokens([AddedToken(symbol, special=True, normalized=False) for symbol in SPECIAL_SYMBOLS])
    return backend
