"""Vocabularies of words, and of subwords by the merges of subword-nmt (Sennrich et al. 2016) or fastBPE.

Their files write ``@@`` behind a part that does not end its word: ``low@@ er``. Their merges write ``</w>`` behind one
that does, and so does the ``tokenizers`` library here: ``low`` and ``er</w>``.
"""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Final

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from transduce.config import BadInputError
from transduce.config.files import check_size
from transduce.text.guard import guarded
from transduce.text.tokenizer import SPECIAL_SYMBOLS, UNKNOWN, Tokenizer, add_special
from transduce.text.words import GUARD

CONTINUES: Final = "@@"
_ENDS: Final = "</w>"
_MOST_BYTES: Final = 2**27
_VERSION: Final = "#version: 0.2"

Merge = tuple[str, str]


def read_codes(path: Path) -> tuple[Merge, ...]:
    """The merges of a file of subword-nmt (version 0.2) or fastBPE, the first ones first.

    Raises:
        BadInputError: It is missing, no such file, or of subword-nmt's version 0.1.
    """
    check_size(path, _MOST_BYTES)
    try:
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except FileNotFoundError as error:
        raise BadInputError(f"{path}: no such file of BPE codes") from error
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInputError(f"{path}: no BPE codes: {error}") from error
    numbered = [(number, line.rstrip("\r ").split(" ")) for number, line in enumerate(lines, 1)]
    if lines[0].startswith("#version"):
        if lines[0].strip() != _VERSION:
            raise BadInputError(f"{path}: {lines[0].strip()!r}: only codes of {_VERSION!r} can be read")
        return _merges(path, numbered[1:], 2)
    if len(numbered[0][1]) == 2:
        raise BadInputError(
            f"{path}: codes without a version are of subword-nmt's 0.1, which ends words otherwise: only those of "
            f"{_VERSION!r} and fastBPE's, with a count in each line, can be read"
        )
    return _merges(path, numbered, 3)


def _merges(path: Path, lines: Iterable[tuple[int, list[str]]], columns: int) -> tuple[Merge, ...]:
    found: dict[Merge, None] = {}
    for number, parts in lines:
        if len(parts) != columns or not (parts[0] and parts[1]):
            raise BadInputError(f"{path}:{number}: {columns} columns belong here, the first two a merge")
        found.setdefault((parts[0], parts[1]))
    return tuple(found)


def made_by(merges: Iterable[Merge]) -> list[str]:
    """The symbols that the merges take and make, each once, as vocabularies have them."""
    return list(dict.fromkeys(_shown(each) for left, right in merges for each in (left, right, left + right)))


def spell(name: str, *, ends: bool) -> str:
    """A symbol of a tokenizer as vocabularies have it; ``ends`` is whether its words end with ``</w>``."""
    return _shown(name) if ends else name


def subword_tokenizer(symbols: Sequence[str], merges: Iterable[Merge], special: Collection[str] = ()) -> Tokenizer:
    """The tokenizer that merges the characters of words between spaces, as subword-nmt does.

    Args:
        symbols: The vocabulary in the order of its ids, as vocabulary files write it, our special symbols first. All
            that the merges make is in it.
        merges: What is merged, the first ones first.
        special: Those of the symbols that stand for no text.

    Raises:
        BadInputError: Two symbols are one.
    """
    plain = {*SPECIAL_SYMBOLS, *special}
    stored = [name if name in plain else _stored(name) for name in symbols]
    vocabulary = {name: index for index, name in enumerate(stored)}
    if len(vocabulary) < len(stored):
        name = next(name for index, name in enumerate(stored) if vocabulary[name] != index)
        raise BadInputError(f"two symbols of the vocabulary are {name!r} where words end with {_ENDS}")
    with guarded("the BPE codes make no tokenizer"):
        model = models.BPE(vocabulary, list(merges), unk_token=UNKNOWN, end_of_word_suffix=_ENDS)
        backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.BPEDecoder(suffix=_ENDS)
    return _finish(backend, special)


def word_tokenizer(symbols: Sequence[str], special: Collection[str] = ()) -> Tokenizer:
    """The tokenizer of words between spaces: each is a symbol of the vocabulary or unknown."""
    backend = tokenizers.Tokenizer(
        models.WordLevel({name: index for index, name in enumerate(symbols)}, unk_token=UNKNOWN)
    )
    names = "|".join(map(_escape, [*SPECIAL_SYMBOLS, *special]))
    # Text that spells a special symbol is text, which is unknown here. (The library fails where something is put at
    # the very beginning.)
    guard = normalizers.Replace(Regex(rf"(?<=\s)(?=(?:{names})(?!\S))"), GUARD)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(" "), guard])
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return _finish(backend, special)


def _finish(backend: tokenizers.Tokenizer, special: Collection[str]) -> Tokenizer:
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in special])
    return Tokenizer(add_special(backend))


def _escape(name: str) -> str:
    return "".join(each if each.isalnum() else rf"\{each}" for each in name)


def _stored(name: str) -> str:
    return name.removesuffix(CONTINUES) if name.endswith(CONTINUES) else name + _ENDS


def _shown(name: str) -> str:
    return name.removesuffix(_ENDS) if name.endswith(_ENDS) else name + CONTINUES
