"""The tokenizers of a source and a target, which may be one."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, final

from transduce.config import BadInputError, SpecialIds
from transduce.text.tokenizer import Tokenizer

SHARED: Final = "tokenizer.json"
SIDES: Final = ("tokenizer.source.json", "tokenizer.target.json")


@final
@dataclass(frozen=True)
class TokenizerPair:
    """The two may share one vocabulary and still cut text each in its own way, as those of OPUS-MT's models do.

    Where one tokenizer is both, ``source`` and ``target`` are the same object.
    """

    source: Tokenizer
    target: Tokenizer

    def __post_init__(self) -> None:
        if self.source.special != self.target.special:
            raise BadInputError(
                f"the two tokenizers number their special symbols differently ({self.source.special} and "
                f"{self.target.special}): make both anew"
            )

    @classmethod
    def load(cls, folder: Path) -> "TokenizerPair":
        """Read ``tokenizer.json``, or ``tokenizer.source.json`` and ``tokenizer.target.json``.

        Raises:
            BadInputError: A file is missing or is not a tokenizer.
        """
        if not any((folder / name).exists() for name in SIDES):
            return cls.of(Tokenizer.load(folder / SHARED))
        source, target = (Tokenizer.load(folder / name) for name in SIDES)
        try:
            return cls(source, target)
        except BadInputError as error:
            raise BadInputError(f"{folder}: {error}") from error

    @classmethod
    def of(cls, shared: Tokenizer) -> "TokenizerPair":
        """One tokenizer for both sides."""
        return cls(shared, shared)

    def cache_nothing(self) -> None:
        """As of ``Tokenizer``: for programs with many threads."""
        self.source.cache_nothing()
        self.target.cache_nothing()

    def save(self, folder: Path) -> None:
        """Write what ``load`` reads; files of the other kind go."""
        self.remove(folder)
        if self.source is self.target:
            self.source.save(folder / SHARED)
            return
        for tokenizer, name in zip((self.source, self.target), SIDES, strict=True):
            tokenizer.save(folder / name)

    @staticmethod
    def remove(folder: Path) -> None:
        """Delete a folder's tokenizers, if it has any."""
        for name in (SHARED, *SIDES):
            (folder / name).unlink(missing_ok=True)

    @cached_property
    def shared(self) -> bool:
        """Whether both sides have one vocabulary: the same symbols with the same ids."""
        return self.source is self.target or self.source.vocabulary == self.target.vocabulary

    @property
    def special(self) -> SpecialIds:
        """The special symbols' ids, the same on both sides."""
        return self.target.special

    def sizes(self, *, shared: bool = True) -> dict[str, int]:
        """The vocabulary sizes as a model's configuration has them.

        Without ``shared``, the source has embeddings of its own even where both have one vocabulary.
        """
        own = {} if shared and self.shared else {"source_vocab_size": self.source.vocab_size}
        return {"vocab_size": self.target.vocab_size, **own}
