"""Marian's vocabularies: SentencePiece models, or symbols and their ids in YAML."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from transduce.config import BadInputError
from transduce.config.files import check_place
from transduce.interop.renumbering import Renumbering
from transduce.interop.vocabularies import Sides, Vocabulary, find_codes, index_of, read_lines
from transduce.text import TokenizerPair, import_sentencepiece
from transduce.text.sentencepiece_file import PieceKind, read_sentencepiece

_END, _UNKNOWN = "</s>", "<unk>"
_ESCAPED: Final = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
_LETTERS: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "0": "\0", "a": "\a", "e": "\x1b", "f": "\f", "v": "\v"}


def read_marian_sides(paths: tuple[Path, Path], codes: Path | None) -> Sides:
    """The vocabularies of source and target, which may be one file.

    Raises:
        BadInputError: One is missing, damaged, or of a kind that cannot be read.
    """
    if all(path.suffix == ".spm" for path in paths):
        numbers = [_number_pieces(path) for path in paths]
        if paths[0] == paths[1]:
            return Sides(TokenizerPair.of(import_sentencepiece(paths[0])), numbers[0], numbers[0])
        return Sides(TokenizerPair(*map(import_sentencepiece, paths)), numbers[0], numbers[1])
    source, target = (_read_yml(path) for path in paths)
    folder = paths[1].parent
    models = (folder / "source.spm", folder / "target.spm")  # as OPUS-MT has them beside its vocabulary
    if codes is None and all(path.is_file() for path in models):
        for path in models:
            check_place(path)
        return Sides.of(source, target, models, paths)
    codes = find_codes(folder) if codes is None else codes
    return Sides.of(source, target, (codes, codes), paths)


def _number_pieces(path: Path) -> Renumbering:
    """How the ids of a SentencePiece model are ours: special symbols first, the other pieces in their order."""
    stored = read_sentencepiece(path)
    names = [piece.text for piece in stored.pieces]
    pad, begin, end = (names.index(name) if name in names else None for name in stored.special)
    if end is None:
        raise BadInputError(f"{path}: no vocabulary of Marian: it has no end symbol")
    unknown = next(index for index, piece in enumerate(stored.pieces) if piece.kind is PieceKind.UNKNOWN)
    unused = () if begin is None else (begin,)
    return Renumbering.of(len(names), pad=pad, begin=None, end=end, unknown=unknown, unused=unused)


def _read_yml(path: Path) -> Vocabulary:
    """The symbols by their ids: each id from 0 once."""
    entries: dict[int, str] = {}
    for number, key, value in _pairs(path):
        if not value.isdecimal() or len(value) > 9:
            raise BadInputError(f"{path}:{number}: a symbol and its id belong here")
        if entries.setdefault(int(value), name := _unquote(key)) != name:
            raise BadInputError(f"{path}:{number}: the id {value} is of {entries[int(value)]!r} already")
    if sorted(entries) != [*range(len(entries))]:
        raise BadInputError(f"{path}: its symbols are not numbered from 0, each once: it is damaged")
    names = [entries[index] for index in range(len(entries))]
    end, unknown = (index_of(names, name, path) for name in (_END, _UNKNOWN))
    return Vocabulary.of(names, pad=None, begin=None, end=end, unknown=unknown)


def _pairs(path: Path) -> Iterator[tuple[int, str, str]]:
    """Each symbol and its id, as they are written, with the number of their line: ``a: 3``, or ``? a`` above ``: 3``.

    YAML's own libraries would take ``yes`` and ``1e3`` for other things than words.
    """
    pending: str | None = None
    for number, line in enumerate(read_lines(path), 1):
        if pending is not None:
            yield number, pending, line.removeprefix(":").strip()
            pending = None
        elif line.startswith("? "):
            pending = line[2:]
        elif line.strip() and not line.startswith(("#", "---")):
            key, _, value = line.rpartition(":")
            yield number, key.rstrip() if key.endswith(('" ', "' ")) else key, value.strip()


def _unquote(key: str) -> str:
    if len(key) > 1 and key[0] == key[-1] == "'":
        return key[1:-1].replace("''", "'")
    if len(key) > 1 and key[0] == key[-1] == '"':
        return _ESCAPED.sub(_unescape, key[1:-1])
    return key


def _unescape(found: re.Match[str]) -> str:
    code = found[1] or found[2] or found[3]
    if code is None:
        return _LETTERS.get(found[4], found[4])
    return chr(int(code, 16)) if int(code, 16) < 0x110000 else ""
