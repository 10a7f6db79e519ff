"""The SentencePiece model that a tokenizer was made of, told from the tokenizer itself.

What is told is right or not there: the tokenizer made of it anew is the same.
"""

import base64
import json
import re
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

from tokenizers import normalizers

from transduce.config import BadInputError
from transduce.text.sentencepiece import make_tokenizer
from transduce.text.sentencepiece_file import Piece, PieceKind, StoredModel
from transduce.text.sentencepiece_vocabulary import sentencepiece_over
from transduce.text.tokenizer import BEGIN, END, PAD, SPECIAL_SYMBOLS, UNKNOWN, Tokenizer

_BYTE: Final = re.compile(r"<0x[0-9A-F]{2}>")
_RANGE: Final = re.compile(r"\\x\{([0-9A-F]+)\}-\\x\{([0-9A-F]+)\}")


def whole_sentencepiece(tokenizer: Tokenizer) -> StoredModel | None:
    """The model whose pieces are the vocabulary; None where there is none."""
    return _check(tokenizer, _read_whole, make_tokenizer)


def sentencepiece_in(tokenizer: Tokenizer) -> StoredModel | None:
    """The model whose pieces are among the vocabulary's symbols (``sentencepiece_over``); None where there is none."""
    added = tokenizer.added_symbols()
    codes = [name for name, special in added.items() if not special]
    special = [name for name, special in added.items() if special and name not in SPECIAL_SYMBOLS]
    symbols = [*tokenizer.vocabulary]
    return _check(tokenizer, _read_part, lambda stored: sentencepiece_over(stored, symbols, codes, special))


def _check(
    tokenizer: Tokenizer,
    read: Callable[[dict[str, Any]], StoredModel],
    make: Callable[[StoredModel], Tokenizer],
) -> StoredModel | None:
    """What is read, where what is made of it is the tokenizer."""
    with suppress(BadInputError, KeyError, IndexError, TypeError, ValueError, struct.error):
        file = _parse(tokenizer)
        stored = read(file)
        if _parse(make(stored)) == file:
            return stored
    return None


def _parse(tokenizer: Tokenizer) -> dict[str, Any]:
    """Its file, with scores in float32 as models have them: the library does not read its own to the last digit."""
    file: dict[str, Any] = json.loads(tokenizer.to_json())
    if file["model"]["type"] == "Unigram":
        vocabulary = file["model"]["vocab"]
        scores = struct.iter_unpack("f", struct.pack(f"{len(vocabulary)}f", *(score for _, score in vocabulary)))
        file["model"]["vocab"] = [(name, score) for (name, _), (score,) in zip(vocabulary, scores, strict=True)]
    return file


def _read_whole(file: dict[str, Any]) -> StoredModel:
    model = file["model"]
    names = [name for name in _names(model) if name not in SPECIAL_SYMBOLS]
    return _stored(file, names)


def _read_part(file: dict[str, Any]) -> StoredModel:
    model = file["model"]
    if model["type"] == "Unigram":
        # What is no piece of the model has the score that nothing chooses; so have the special symbols.
        never = model["vocab"][0][1]
        return _stored(file, [name for name, score in model["vocab"] if score != never])
    # Characters that it knows stand in the pattern of those that it does not.
    pattern = file["normalizer"]["normalizers"][-1]["pattern"]["Regex"]
    ranges = [(int(first, 16), int(last, 16)) for first, last in _RANGE.findall(pattern[: pattern.index("]")])]
    known = [chr(point) for first, last in ranges for point in range(first, last + 1)]
    made = dict.fromkeys(part for left, right in model["merges"] for part in (left, right, left + right))
    return _stored(file, [*dict.fromkeys([*made, *known])])


def _names(model: dict[str, Any]) -> Iterable[str]:
    vocabulary = model["vocab"]
    return [name for name, _ in vocabulary] if isinstance(vocabulary, list) else sorted(vocabulary, key=vocabulary.get)


def _stored(file: dict[str, Any], names: list[str]) -> StoredModel:
    """The model of these pieces, with what is done to text before it is cut."""
    model, steps = file["model"], _steps(file["normalizer"])
    unigram = model["type"] == "Unigram"
    scores = dict(model["vocab"]) if unigram else _ranks(names, model["merges"])
    bytes_ = model["byte_fallback"]
    kinds = {name: PieceKind.BYTE if bytes_ and _BYTE.fullmatch(name) else PieceKind.NORMAL for name in names}
    maps = [base64.b64decode(step["precompiled_charsmap"]) for step in steps if step["type"] == "Precompiled"]
    patterns = [step.get("pattern") for step in steps]
    return StoredModel(
        algorithm="unigram" if unigram else "bpe",
        pieces=(
            Piece(UNKNOWN, 0.0, PieceKind.UNKNOWN),
            *(Piece(name, scores[name], kinds[name]) for name in names),
        ),
        special=(PAD, BEGIN, END),
        byte_fallback=bytes_,
        rules=_rules(maps[0]) if maps else "identity",
        charsmap=maps[0] if maps else b"",
        add_space=any(step["type"] == "Prepend" for step in steps),
        squeeze_spaces={"Regex": " {2,}"} in patterns,
    )


def _steps(part: dict[str, Any]) -> list[dict[str, Any]]:
    """All steps of a chain, in whatever chains they stand."""
    if part["type"] != "Sequence":
        return [part]
    return [step for inner in part["normalizers"] for step in _steps(inner)]


def _ranks(names: Iterable[str], merges: Iterable[list[str]]) -> dict[str, float]:
    """Scores that have merges done in their order: pieces that are made first have the highest; characters follow."""
    made = dict.fromkeys(left + right for left, right in merges)
    return {name: -float(rank) for rank, name in enumerate(dict.fromkeys([*made, *names]))}


def _rules(charsmap: bytes) -> str:
    """A name for rules, of which SentencePiece reads the map alone: whether they make capitals small."""
    return "nmt_nfkc_cf" if normalizers.Precompiled(charsmap).normalize_str("A") == "a" else "nmt_nfkc"
