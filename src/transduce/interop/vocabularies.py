"""Another library's vocabulary: which of its symbols mean what, and the tokenizer of ours that gives its symbols."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from transduce.config import BadInputError
from transduce.config.files import check_place, read_text
from transduce.interop.renumbering import Renumbering
from transduce.text import (
    StoredModel,
    Tokenizer,
    TokenizerPair,
    read_sentencepiece,
    sentencepiece_over,
    text_pieces,
)
from transduce.text.subword_nmt import CONTINUES, Merge, made_by, read_codes, subword_tokenizer, word_tokenizer
from transduce.text.tokenizer import SPECIAL_SYMBOLS

_MOST_BYTES: Final = 2**28
# What files that say how words are cut are called beside models: merges, and SentencePiece models.
_CODES: Final = (
    "bpecodes",
    "bpe.codes",
    "codes.bpe",
    "code",
    "codes",
    "bpe",
    "sentencepiece.bpe.model",
    "sentencepiece.model",
    "spm.model",
)
PIECES: Final = (".model", ".spm")  # the endings of SentencePiece models
_SPACE: Final = "▁"
_JOINER: Final = "￭"  # of OpenNMT's Tokenizer, as is what marks capitals
_MARKUP: Final = "｟mrk_"


@final
@dataclass(frozen=True)
class Vocabulary:
    """Symbols in the order of their ids, and the ids of those that mean something.

    ``begin`` is what the decoder reads first, which may be one of the others too. ``special`` are symbols without a
    text besides.
    """

    names: tuple[str, ...]
    pad: int | None
    begin: int | None
    end: int
    unknown: int
    special: tuple[int, ...] = ()

    @classmethod
    def of(cls, names: Sequence[str], *, pad: int | None, begin: int | None, end: int, unknown: int) -> "Vocabulary":
        """That of symbols of which some may be called as our special ones are, and be others: ``<s>`` is ``[s]`` then.

        They are symbols without a text.
        """
        taken = set(SPECIAL_SYMBOLS)
        roles = {pad, begin, end, unknown}
        others = [index for index, name in enumerate(names) if name in taken and index not in roles]
        called = list(names)
        for index in others:
            called[index] = f"[{names[index].strip('<>')}]"
        return cls(tuple(called), pad, begin, end, unknown, tuple(others))

    def number(self, made: Iterable[str]) -> tuple[list[str], Renumbering]:
        """Our symbols, and how they are numbered there, where text is cut into the symbols ``made``.

        What is made and the vocabulary lacks is unknown to the model: such symbols are copies of that row.

        Raises:
            BadInputError: Two symbols are one, or one lies outside the vocabulary, or is no text.
        """
        for index, name in enumerate(self.names):
            if not name.isascii() and any("\ud800" <= letter <= "\udfff" for letter in name):
                raise BadInputError(f"symbol {index:,} of the vocabulary has half a character (a lone surrogate)")
        known = set(self.names)
        copies = [name for name in dict.fromkeys(made) if name not in known]
        numbers = Renumbering.of(
            len(self.names),
            pad=self.pad,
            begin=self.begin,
            end=self.end,
            unknown=self.unknown,
            copies=[self.unknown] * len(copies),
        )
        return numbers.symbols(self.names, copies), numbers


@final
@dataclass(frozen=True)
class _Cut:
    """How text is cut: by a SentencePiece model, by merges, or at spaces."""

    model: StoredModel | None = None
    merges: tuple[Merge, ...] | None = None

    @classmethod
    def read(cls, path: Path | None) -> "_Cut":
        """What a file says; without one, words are cut at spaces."""
        if path is None:
            return cls()
        if path.suffix in PIECES:
            return cls(model=read_sentencepiece(path))
        return cls(merges=read_codes(path))

    def makes(self) -> list[str]:
        """The symbols that text may be cut into, where that is known."""
        if self.model is not None:
            return text_pieces(self.model)
        return [] if self.merges is None else made_by(self.merges)

    def tokenizer(self, symbols: Sequence[str], vocabulary: Vocabulary) -> Tokenizer:
        """The tokenizer of these symbols, which are the vocabulary's and what else is made.

        Raises:
            BadInputError: The vocabulary has parts of words, and nothing says how words are cut.
        """
        special = tuple(vocabulary.names[index] for index in vocabulary.special)
        if self.model is not None:
            return sentencepiece_over(self.model, symbols, special=special)
        if self.merges is not None:
            return subword_tokenizer(symbols, self.merges, special)
        parts = [name for name in vocabulary.names if len(name) > 1 and name != CONTINUES and _is_part(name)]
        if parts:
            raise BadInputError(
                f"it has parts of words ({parts[0]}), and no file says how words are cut: put BPE codes or a "
                f"SentencePiece model beside it as {_CODES[0]} or {_CODES[-1]}, or name the file"
            )
        return word_tokenizer(symbols, special)


def _is_part(name: str) -> bool:
    """Whether a symbol is a part of a word, or of text that was marked so, by any of three libraries."""
    return name.endswith(CONTINUES) or name[0] == _SPACE or _JOINER in name or name.startswith(_MARKUP)


@final
@dataclass(frozen=True)
class Sides:
    """The tokenizers of a source and a target, and how the ids of each are numbered in the other library."""

    tokenizers: TokenizerPair
    source: Renumbering
    target: Renumbering

    @classmethod
    def of(
        cls, source: Vocabulary, target: Vocabulary, codes: tuple[Path | None, Path | None], places: tuple[Path, Path]
    ) -> "Sides":
        """Those of two vocabularies, which may be equal; of each, the file by which text is cut, and where it is from.

        Raises:
            BadInputError: A file is missing or damaged, or a vocabulary has parts of words and there is no such file.
        """
        cuts = [_Cut.read(code) for code in dict.fromkeys(codes)]
        try:
            if source == target:
                symbols, numbers = source.number(name for cut in cuts for name in cut.makes())
                made = [cut.tokenizer(symbols, source) for cut in cuts]
                return cls(TokenizerPair(made[0], made[-1]), numbers, numbers)
            place = places[0]
            symbols, numbers = source.number(cuts[0].makes())
            tokenizer = cuts[0].tokenizer(symbols, source)
            place = places[1]
            symbols, others = target.number(cuts[-1].makes())
            return cls(TokenizerPair(tokenizer, cuts[-1].tokenizer(symbols, target)), numbers, others)
        except BadInputError as error:
            raise BadInputError(f"{places[0] if source == target else place}: {error}") from error

    def sizes(self, *, shared: bool) -> dict[str, int]:
        """Our vocabularies' sizes; ``shared`` is whether source and target have one matrix of embeddings."""
        own = {} if shared else {"source_vocab_size": len(self.source.rows)}
        return {"vocab_size": len(self.target.rows), **own}


def find_codes(folder: Path) -> Path | None:
    """The file in a model's folder that says how words are cut, by the names that such files have, if there is one."""
    found = [folder / name for name in _CODES if (folder / name).is_file()]
    if not found:
        return None
    check_place(found[0])
    return found[0]


def read_lines(path: Path) -> list[str]:
    """The lines of a vocabulary's file, without their ends.

    Raises:
        BadInputError: It is missing, too large, a link out of its folder, or no text.
    """
    lines = read_text(path, _MOST_BYTES, "file of a vocabulary").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def index_of(names: Sequence[str], name: str, place: Path) -> int:
    """The id of a symbol that has to be there.

    Raises:
        BadInputError: It is not.
    """
    try:
        return names.index(name)
    except ValueError as error:
        raise BadInputError(f"{place}: the vocabulary lacks {name}") from error
