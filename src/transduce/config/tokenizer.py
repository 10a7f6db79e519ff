"""How text becomes tokens."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, final

from pydantic import Field, field_validator, model_validator

from transduce.config.model import MOST_SYMBOLS
from transduce.config.section import FROM_LIST, REFUSED, Section, check_word

TokenizerKind = Literal["bpe", "wordpiece", "words", "characters", "sentencepiece", "existing"]


class VocabularyConfig(Section):
    """What there is to say about a vocabulary."""

    kind: Annotated[TokenizerKind, REFUSED] = Field(
        default="bpe",
        description="bpe: with bytes for the unknown; wordpiece: longest pieces of words; words: between white space; "
        "characters; sentencepiece: a .model file; existing: the tokenizer of an earlier run or model",
    )
    vocab_size: Annotated[int, REFUSED] = Field(
        default=8000, ge=5, le=MOST_SYMBOLS, description="largest vocabulary, special symbols and bytes included"
    )
    path: Annotated[str | None, REFUSED] = Field(
        default=None,
        description="sentencepiece: its .model file; existing: a tokenizer.json, model or run; relative to data.root",
    )


class SideConfig(VocabularyConfig):
    """The vocabulary of one side."""

    @model_validator(mode="after")
    def _check(self) -> "SideConfig":
        _check_fit(self)
        return self


class TokenizerConfig(VocabularyConfig):
    """One vocabulary for both sides; or one for each, where ``source`` and ``target`` say how."""

    symbols: Annotated[tuple[str, ...], FROM_LIST, REFUSED] = Field(
        default=(), description="words that are one token each, such as tags", examples=[["<en>", "<formal>"]]
    )
    bpe_dropout: Annotated[float, REFUSED] = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="share of BPE merges left out at random in training (Provilkov et al. 2020)",
    )
    learn_from: Annotated[int, REFUSED] = Field(
        default=500_000, ge=1, description="sentence pairs, evenly spread, that the tokenizer is learned from at most"
    )
    source: Annotated[SideConfig | None, REFUSED] = Field(
        default=None, description="vocabulary of the source alone; what it leaves out is as in [tokenizer]"
    )
    target: Annotated[SideConfig | None, REFUSED] = Field(
        default=None, description="vocabulary of the target alone; what it leaves out is as in [tokenizer]"
    )

    @model_validator(mode="before")
    @classmethod
    def _hand_down(cls, values: Any) -> Any:  # noqa: ANN401 - as pydantic calls it
        """Give each side what the table says for both."""
        if not isinstance(values, dict):
            return values
        own = {key: values[key] for key in SideConfig.model_fields if key in values}
        for name in ("source", "target"):
            if isinstance(side := values.get(name), dict):
                # A path is of the kind that reads it.
                another = side.get("kind", own.get("kind")) != own.get("kind")
                values = values | {name: {**own, **({"path": None} if another else {}), **side}}
        return values

    @field_validator("symbols")
    @classmethod
    def _check_symbols(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for symbol in value:
            check_word(symbol)
        if len(set(value)) < len(value):
            raise ValueError("a symbol is given twice")
        return value

    @model_validator(mode="after")
    def _check_sides(self) -> "TokenizerConfig":
        if (self.source is None) != (self.target is None):
            missing = "target" if self.target is None else "source"
            raise ValueError(f"where one side has its own vocabulary, both do: add [tokenizer.{missing}]")
        if self.shared:
            _check_fit(self)
        if self.bpe_dropout and all(side.kind != "bpe" for side in self.sides):
            raise ValueError(f"bpe_dropout = {self.bpe_dropout} is for kind = 'bpe', of one side at least")
        return self

    @property
    def shared(self) -> bool:
        """Whether both sides have one vocabulary."""
        return self.source is None

    @property
    def sides(self) -> tuple[VocabularyConfig, ...]:
        """The vocabularies there are: one, or the source's and the target's."""
        return (self,) if self.source is None or self.target is None else (self.source, self.target)


def _check_fit(vocabulary: VocabularyConfig) -> None:
    kind = vocabulary.kind
    reads = kind in ("sentencepiece", "existing")
    if reads and vocabulary.path is None:
        raise ValueError(f"kind = {kind!r} reads a tokenizer: name it with path")
    if not reads and vocabulary.path is not None:
        raise ValueError(f"kind = {kind!r} learns a tokenizer: path is for sentencepiece and existing")
    # Room for the 4 special symbols, the 256 bytes, and some characters.
    if kind in ("bpe", "characters") and vocabulary.vocab_size < 300:
        raise ValueError(f"vocab_size = {vocabulary.vocab_size} is too small for {kind}: 300 or more")


@final
@dataclass(frozen=True)
class SpecialIds:
    """The ids of the symbols that no text has: all that training and search know of a vocabulary."""

    pad: int
    begin: int
    end: int
    unknown: int
