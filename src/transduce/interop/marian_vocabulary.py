"""Marian's vocabularies: SentencePiece models, or symbols and their ids in YAML."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from transduce.config import BadInputError
from transduce.config.files import check_place
from transduce.interop.renumbering import Renumbering
from transduce.interop.vocabularies import Sides, Vocabulary, find_codes, index_of, read_lines
from transduce.text import (
    StoredModel,
    Tokenizer,
    TokenizerPair,
    import_sentencepiece,
    sentencepiece_in,
    whole_sentencepiece,
    write_sentencepiece,
)
from transduce.text.sentencepiece_file import PieceKind, read_sentencepiece
from transduce.text.subword_nmt import spell
from transduce.text.tokenizer import SPECIAL_SYMBOLS

_SIDES: Final = ("source", "target")
_PAD, _BEGIN, _END, _UNKNOWN = SPECIAL_SYMBOLS
_MODELS: Final = ("source.spm", "target.spm")  # as OPUS-MT has them beside its vocabulary
_ENDS: Final = "</w>"  # of subwords that end a word
_SPACE: Final = "▁"
_ESCAPED: Final = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
TOKENIZERS: Final = ("tokenizer.json", "tokenizer.source.json", "tokenizer.target.json")
_NO_ENTRY: Final = re.compile(r"[ \t]*#|---(\s|$)")  # a comment, or where a document begins; "--->: 5" is a symbol
_LETTERS: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "0": "\0", "a": "\a", "e": "\x1b", "f": "\f", "v": "\v"}


def read_marian_sides(paths: tuple[Path, Path], codes: Path | None) -> Sides:
    """The vocabularies of source and target, which may be one file.

    Raises:
        BadInputError: One is missing, damaged, or of a kind that cannot be read.
    """
    if all(path.suffix == ".spm" for path in paths):
        if codes is not None:
            raise BadInputError(f"--codes {codes}: the model cuts words by its own {paths[0].name}: leave it out")
        numbers = [_number_pieces(path) for path in paths]
        if paths[0] == paths[1]:
            return Sides(TokenizerPair.of(import_sentencepiece(paths[0])), numbers[0], numbers[0])
        return Sides(TokenizerPair(*map(import_sentencepiece, paths)), numbers[0], numbers[1])
    source, target = (_read_yml(path) for path in paths)
    folder = paths[1].parent
    models = (folder / _MODELS[0], folder / _MODELS[1])
    if codes is None and all(path.is_file() for path in models):
        for path in models:
            check_place(path)
        return Sides.of(source, target, models, paths)
    codes = find_codes(folder) if codes is None else codes
    if codes is None and (own := _read_own(folder, source, target)) is not None:
        return own
    return Sides.of(source, target, (codes, codes), paths)


def _read_own(folder: Path, source: Vocabulary, target: Vocabulary) -> Sides | None:
    """The tokenizers that we wrote beside the vocabularies, if we did."""
    if not any((folder / name).is_file() for name in TOKENIZERS):
        return None
    for name in TOKENIZERS:
        check_place(folder / name)
    tokenizers = TokenizerPair.load(folder)
    pairs = zip((tokenizers.source, tokenizers.target), (source, target), strict=True)
    numbers = []
    for tokenizer, vocabulary in pairs:
        whole = len(vocabulary.names) == tokenizer.vocab_size
        if _names(tokenizer, whole=whole) != _stored_names(vocabulary):
            raise BadInputError(f"{folder}: its tokenizer has other symbols than its vocabulary: remove one of them")
        numbers.append(number_symbols(tokenizer.vocab_size, whole=whole))
    return Sides(tokenizers, *numbers)


def _number_pieces(path: Path) -> Renumbering:
    """How the ids of a SentencePiece model are ours: special symbols first, the other pieces in their order."""
    stored = read_sentencepiece(path)
    names = [piece.text for piece in stored.pieces]
    pad, begin, end = (names.index(name) if name in names else None for name in stored.special)
    if end is None:
        raise BadInputError(f"{path}: no vocabulary of Marian: it has no end symbol")
    unknown = next(index for index, piece in enumerate(stored.pieces) if piece.kind is PieceKind.UNKNOWN)
    return Renumbering.of(len(names), pad=pad, begin=begin, end=end, unknown=unknown)


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
        elif line.strip() and not _NO_ENTRY.match(line):
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


def number_symbols(size: int, *, whole: bool) -> Renumbering:
    """Marian's ids of our vocabulary of ``size``: the end symbol, the unknown one, and the others in our order.

    Padding and begin symbol are among these where the ``whole`` vocabulary is Marian's too.
    """
    if whole:
        return Renumbering.of(size, pad=2, begin=3, end=0, unknown=1)
    return Renumbering.of(size - 2, pad=None, begin=None, end=0, unknown=1)


def write_marian_sides(tokenizers: TokenizerPair, folder: Path, *, whole: bool) -> tuple[str, str]:
    """Write the vocabularies of both sides, and say what they are called; see ``number_symbols`` for ``whole``.

    A vocabulary that is a SentencePiece model is written as such, and cuts text in Marian. Others are in YAML, where
    symbols are what stands between spaces: how text is cut is written beside them, as SentencePiece models
    (``source.spm``, ``target.spm``) where it is by such, and else as our own tokenizers.
    """
    sides = (tokenizers.source, tokenizers.target)
    if wholes := _all(whole_sentencepiece(each) for each in sides):
        files = ("vocab.spm", "vocab.spm") if tokenizers.source is tokenizers.target else _MODELS
        for file, stored in zip(files, wholes, strict=True):
            write_sentencepiece(stored, folder / file, whole=whole)
        return files
    for side, tokenizer in zip(_SIDES, sides, strict=True):
        names = (json.dumps(name, ensure_ascii=False) for name in _names(tokenizer, whole=whole))
        lines = "".join(f"{name}: {index}\n" for index, name in enumerate(names))
        (folder / f"{side}.yml").write_text(lines, encoding="utf-8")
    if parts := _all(sentencepiece_in(each) for each in sides):
        for file, stored in zip(_MODELS, parts, strict=True):
            write_sentencepiece(stored, folder / file)
    else:
        tokenizers.save(folder)
    return "source.yml", "target.yml"


def _all(found: Iterator[StoredModel | None]) -> list[StoredModel]:
    """What is found for each side, or nothing."""
    several = list(found)
    return [each for each in several if each is not None] if None not in several else []


def _names(tokenizer: Tokenizer, *, whole: bool) -> list[str]:
    """A tokenizer's symbols as Marian's vocabulary has them, in the order of Marian's ids: none has a space."""
    stored = [*tokenizer.vocabulary][len(SPECIAL_SYMBOLS) :]
    ends = any(name.endswith(_ENDS) for name in stored)
    spaced = any(" " in name for name in stored)
    names = [_without_spaces(name) if spaced else spell(name, ends=ends) for name in stored]
    return [_END, _UNKNOWN, *((_PAD, _BEGIN) if whole else ()), *names]


def _without_spaces(name: str) -> str:
    """Spaces are ▁, and what looks so is spelled in bytes, as no symbol of text is."""
    return name.replace(_SPACE, "<0xE2><0x96><0x81>").replace(" ", _SPACE)


def _stored_names(vocabulary: Vocabulary) -> list[str]:
    """Its symbols as they are written."""
    renamed = {f"[{name.strip('<>')}]": name for name in SPECIAL_SYMBOLS}
    return [renamed.get(name, name) if i in vocabulary.special else name for i, name in enumerate(vocabulary.names)]
