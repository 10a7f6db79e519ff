"""Another library's vocabulary: which of its symbols mean what, and the tokenizer of ours that gives its symbols."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from transduce.config import BadInputError
from transduce.config.files import check_place, check_size
from transduce.interop.renumbering import Renumbering
from transduce.text import Tokenizer, TokenizerPair
from transduce.text.subword_nmt import CONTINUES, made_by, read_codes, subword_tokenizer, word_tokenizer
from transduce.text.tokenizer import SPECIAL_SYMBOLS

_MOST_BYTES: Final = 2**28
# What files of merges are called beside models.
_CODES: Final = ("bpecodes", "bpe.codes", "codes.bpe", "code", "codes", "bpe")


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

    def tokenize(self, codes: Path | None, place: Path) -> tuple[Tokenizer, Renumbering]:
        """The tokenizer by the merges of ``codes``, or of words where there are none; and how its ids are others.

        What the merges make and the vocabulary lacks is unknown to the model: such symbols are copies of that row.

        Raises:
            BadInputError: The vocabulary at ``place`` has parts of words and there are no merges; or it is damaged.
        """
        special = tuple(self.names[index] for index in self.special)
        merges = None if codes is None else read_codes(codes)
        made = [] if merges is None else made_by(merges)
        known = set(self.names)
        copies = [name for name in made if name not in known]
        try:
            numbers = Renumbering.of(
                len(self.names),
                pad=self.pad,
                begin=self.begin,
                end=self.end,
                unknown=self.unknown,
                copies=[self.unknown] * len(copies),
            )
            symbols = numbers.symbols(self.names, copies)
            if merges is None:
                self._check_whole_words(place)
                return word_tokenizer(symbols, special), numbers
            return subword_tokenizer(symbols, merges, special), numbers
        except BadInputError as error:
            raise BadInputError(str(error) if str(error).startswith(str(place)) else f"{place}: {error}") from error

    def _check_whole_words(self, place: Path) -> None:
        parts = [name for name in self.names if name.endswith(CONTINUES) and name != CONTINUES]
        if parts:
            raise BadInputError(
                f"{place}: it has parts of words ({parts[0]}), and no file of BPE codes is there: put it beside the "
                f"model as {_CODES[0]}, or name it"
            )


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
        """Those of two vocabularies, which may be equal, with the files of merges and where they come from.

        Raises:
            BadInputError: As ``Vocabulary.tokenize``.
        """
        tokenizer, numbers = source.tokenize(codes[0], places[0])
        if source == target and codes[0] == codes[1]:
            return cls(TokenizerPair.of(tokenizer), numbers, numbers)
        other, others = target.tokenize(codes[1], places[1])
        return cls(TokenizerPair(tokenizer, other), numbers, others)

    def sizes(self, *, shared: bool) -> dict[str, int]:
        """Our vocabularies' sizes; ``shared`` is whether source and target have one matrix of embeddings."""
        own = {} if shared else {"source_vocab_size": len(self.source.rows)}
        return {"vocab_size": len(self.target.rows), **own}


def find_codes(folder: Path) -> Path | None:
    """The file of BPE codes in a model's folder, by the names that such files have; None where there is none."""
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
    check_place(path)
    check_size(path, _MOST_BYTES)
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError as error:
        raise BadInputError(f"{path}: no such file of a vocabulary") from error
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInputError(f"{path}: no text in UTF-8: {error}") from error
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
