"""One token for each character; what was never seen is spelled in bytes, so every text comes back exactly."""

from collections.abc import Iterable

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers

from transduce.text.alphabet import count_characters, most_frequent
from transduce.text.symbols import BYTES, check_room, check_symbols, standing
from transduce.text.tokenizer import SPECIAL_SYMBOLS, UNKNOWN, Tokenizer, add_special


def learn_characters(lines: Iterable[str], vocab_size: int, symbols: Iterable[str] = ()) -> Tokenizer:
    """A vocabulary of at most ``vocab_size`` symbols: 4 special ones, 256 bytes, the user's, frequent characters.

    Raises:
        BadInputError: A symbol is none, or the vocabulary has no room for them.
    """
    symbols = check_symbols(symbols)
    fixed = [*SPECIAL_SYMBOLS, *BYTES, *symbols]
    room = check_room(vocab_size, len(fixed), symbols)
    characters = most_frequent(count_characters(lines), room)
    vocabulary = {symbol: index for index, symbol in enumerate(dict.fromkeys([*fixed, *characters]))}
    backend = tokenizers.Tokenizer(
        models.BPE(vocabulary, [], unk_token=UNKNOWN, byte_fallback=True, ignore_merges=bool(symbols))
    )
    if symbols:
        # Pieces of one character each, so that only a symbol's piece is looked up whole, not text that spells another.
        backend.pre_tokenizer = pre_tokenizers.Split(Regex(rf"{standing(symbols)}|[\s\S]"), behavior="isolated")
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return Tokenizer(add_special(backend))
