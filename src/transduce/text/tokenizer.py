"""Strings to ids and back. The file format is the ``tokenizers`` library's own JSON."""

from collections.abc import Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Final, final

import tokenizers
from tokenizers import AddedToken, models

from transduce.config import BadInputError, SpecialIds
from transduce.text.guard import guarded, read_checked

# The special symbols and their ids are the same in every vocabulary: models and search take them as numbers.
PAD: Final = "<pad>"
BEGIN: Final = "<s>"
END: Final = "</s>"
UNKNOWN: Final = "<unk>"
SPECIAL_SYMBOLS: Final = (PAD, BEGIN, END, UNKNOWN)

# Cuneiform, hieroglyphs, Tangut: no vocabulary has a symbol for each.
_RARE: Final = "\U00012345 \U00013059 \U00017123"


@final
class _Symbols(dict[int, str]):
    """Each id's symbol, once it has been asked for: the library would make another string every time."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        super().__init__()
        self._backend = backend

    def __missing__(self, index: int) -> str:
        symbol = self[index] = self._backend.id_to_token(index) or UNKNOWN
        return symbol


@final
class Tokenizer:
    """A learned tokenizer. Text that looks like a special symbol is text: it never becomes one."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        missing = [symbol for symbol in SPECIAL_SYMBOLS if backend.token_to_id(symbol) is None]
        if missing:
            raise BadInputError(f"the tokenizer lacks the special symbols {', '.join(missing)}")
        # Not stored in the file by the library, so set whenever a tokenizer comes to life.
        backend.encode_special_tokens = True
        # Files of other libraries may ask for both: no text is cut, and padding is the batch's.
        backend.no_truncation()
        backend.no_padding()
        _leave_nothing_to_chance(backend)
        self._backend, self._symbols = backend, _Symbols(backend)
        self.special = SpecialIds(*map(self._id, SPECIAL_SYMBOLS))

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Read ``tokenizer.json``.

        Raises:
            BadInputError: The file is missing or is not a tokenizer.
        """
        text = read_checked(path)
        with guarded(f"{path}: not a readable tokenizer"):
            backend = tokenizers.Tokenizer.from_str(text)
            ids = set(backend.get_vocab().values())
        if ids != set(range(len(ids))) or len(ids) != backend.get_vocab_size():
            raise BadInputError(f"{path}: its symbols are not numbered from 0, each once: it is damaged")
        try:
            return cls(backend)
        except BadInputError as error:
            raise BadInputError(f"{path}: {error}") from error

    def __repr__(self) -> str:
        return f"Tokenizer({self.vocab_size:,} symbols)"

    def save(self, path: Path) -> None:
        """Write ``tokenizer.json``."""
        path.write_text(self.to_json(), encoding="utf-8")

    def to_json(self) -> str:
        """The file's content: two tokenizers are the same when this is."""
        return self._backend.to_str(pretty=True)

    @property
    def vocab_size(self) -> int:
        """How many symbols there are, special ones included."""
        return self._backend.get_vocab_size()

    @property
    def vocabulary(self) -> dict[str, int]:
        """Every symbol and its id, in the order of the ids."""
        return dict(sorted(self._backend.get_vocab().items(), key=itemgetter(1)))

    def added_symbols(self) -> dict[str, bool]:
        """Symbols that are found in text before it is cut, in the order of their ids; whether each is special."""
        found = sorted(self._backend.get_added_tokens_decoder().items())
        return {added.content: added.special for _, added in found}

    def pieces(self, text: str) -> list[str]:
        """The parts of a text that are tokenized each on its own, as they are after normalization."""
        with guarded("the tokenizer cannot split a text"):
            if self._backend.normalizer is not None:
                text = self._backend.normalizer.normalize_str(text)
            if self._backend.pre_tokenizer is None:
                return [text] if text else []
            return [piece for piece, _ in self._backend.pre_tokenizer.pre_tokenize_str(text)]

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without begin and end symbols.

        Raises:
            BadInputError: It is one text, or one of them cannot be encoded.
        """
        if isinstance(texts, str):
            raise BadInputError("a list of texts belongs here, and one was given: [text]")
        with guarded("the tokenizer cannot encode a text"):
            encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
            return [encoding.ids for encoding in encodings]

    def cache_nothing(self) -> None:
        """Keep no words' symbols from call to call.

        The ``tokenizers`` library keeps those of 10,000 words for each thread that ever called, which of a server's
        threads is hundreds of megabytes in time. Without them a sentence takes some ten microseconds more.
        """
        match self._backend.model:
            case models.BPE() as model:
                with suppress(AttributeError):  # older versions of the library have one cache for all threads
                    model._resize_cache(0)

    def decode(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """The text of each sequence of ids; special symbols vanish."""
        with guarded("the tokenizer cannot decode"):
            return self._backend.decode_batch([list(ids) for ids in sequences], skip_special_tokens=True)

    def decode_marked(self, sequences: Sequence[Sequence[int]], mark: str) -> list[str]:
        """As ``decode``, with a mark, a character that no text has, for every unknown symbol."""
        special = {index for index, added in self._backend.get_added_tokens_decoder().items() if added.special}
        hidden = (special | {self.special.pad, self.special.begin, self.special.end}) - {self.special.unknown}
        decoder = self._backend.decoder
        texts = []
        for ids in sequences:
            shown = (index for index in ids if index not in hidden)
            symbols = [mark if index == self.special.unknown else self._symbols[index] for index in shown]
            with guarded("the tokenizer cannot decode"):
                texts.append(" ".join(symbols) if decoder is None else decoder.decode(symbols))
        return texts

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where each token of a text stands in it: its first character, and the one behind its last."""
        with guarded("the tokenizer cannot encode a text"):
            return self._backend.encode(text, add_special_tokens=False).offsets

    @property
    def knows_all(self) -> bool:
        """Whether no text has an unknown symbol, as whatever has no symbol of its own is spelled in bytes."""
        return self.special.unknown not in self.encode([_RARE])[0]

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Each id's symbol as it stands in the vocabulary, for people to look at."""
        return [*map(self._symbols.__getitem__, ids)]

    def _id(self, symbol: str) -> int:
        index = self._backend.token_to_id(symbol)
        assert index is not None
        return index


def _leave_nothing_to_chance(backend: tokenizers.Tokenizer) -> None:
    """Switch off what is meant for training alone, and would tokenize the same text otherwise each time."""
    match backend.model:
        case models.BPE() as model:
            model.dropout = None
        case models.Unigram() as model:
            with suppress(AttributeError):  # older versions of the library cannot sample
                model.alpha = model.nbest_size = None


def add_special(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Declare the special symbols, which the vocabulary has, to be special: they vanish from decoded text."""
    backend.add_special_tokens([AddedToken(symbol, special=True, normalized=False) for symbol in SPECIAL_SYMBOLS])
    return backend
