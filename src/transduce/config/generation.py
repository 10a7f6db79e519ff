"""How a model writes."""

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Annotated, Final, Literal, TypedDict

from pydantic import Field, ValidationError, model_validator

from transduce.config.errors import BadInputError
from transduce.config.section import Section, Setting, facts
from transduce.config.values import what_is_wrong

LengthPenaltyKind = Literal["gnmt", "marian", "none"]
Stopping = Literal["exact", "full_beam"]

# Far beyond what anyone uses; further out, powers of lengths leave the floating-point numbers.
MAX_LENGTH_PENALTY: Final = 10
MAX_PENALTY: Final = 1000
MAX_TOKENS: Final = 100_000
MAX_VOCABULARY: Final = 2**31
MAX_SEED: Final = 2**63 - 1

_OF_BEAMS: Final = Setting("safe", read_with=("sampling", (False,)))
_OF_SAMPLES: Final = Setting("safe", read_with=("sampling", (True,)))


class GenerationConfig(Section):
    """How the model writes (section 6.1); kept beside the model as its defaults."""

    beam_size: int = Field(
        default=4, ge=1, le=1024, description="hypotheses kept open by beam search; 1 is greedy search"
    )
    length_penalty: float = Field(
        default=0.6, ge=-MAX_LENGTH_PENALTY, le=MAX_LENGTH_PENALTY, description="alpha of the length penalty"
    )
    length_penalty_kind: LengthPenaltyKind = Field(
        default="gnmt",
        description="divisor of log-probabilities: gnmt: ((5 + |y|) / 6)^alpha; marian: |y|^alpha; none: 1",
    )
    stopping: Stopping = Field(
        default="exact",
        description="when a search ends: exact: no open hypothesis can win any more; full_beam: beam_size have ended",
    )
    coverage_penalty: Annotated[float, _OF_BEAMS] = Field(
        default=0.0, ge=0, le=MAX_PENALTY, description="beta of the coverage penalty (Wu et al. 2016); 0: none"
    )
    diversity: Annotated[float, _OF_BEAMS] = Field(
        default=0.0,
        ge=0,
        le=MAX_PENALTY,
        description="gamma of diverse beam search (Li et al. 2016), by a hypothesis' rank among its siblings; 0: none",
    )
    max_extra_length: int = Field(
        default=50, ge=0, le=MAX_TOKENS, description="longest output, in tokens more than the input has"
    )
    max_length: int | None = Field(
        default=None,
        ge=0,
        le=MAX_TOKENS,
        description="longest output in tokens, whatever the input's length; in place of max_extra_length",
    )
    max_source_length: int = Field(
        default=2048,
        ge=1,
        le=MAX_TOKENS,
        description="longest input in tokens: a longer one fails, and the others go on",
    )
    min_length: int = Field(default=0, ge=0, le=MAX_TOKENS, description="shortest output in tokens")
    no_repeat_ngram: int | None = Field(
        default=None,
        ge=0,
        le=MAX_TOKENS,
        description="length of the n-grams of tokens that may occur only once in an output; left out, or 0: none",
    )
    replace_unknown: bool = Field(
        default=False,
        description="write a word of the source, the one attended to, where the model writes its unknown symbol "
        "(Luong et al. 2015; Jean et al. 2015); without, it never writes that symbol",
    )
    sampling: bool = Field(default=False, description="draw outputs by chance, in place of beam search")
    temperature: Annotated[float, _OF_SAMPLES] = Field(
        default=1.0,
        gt=0,
        le=MAX_PENALTY,
        description="softmax temperature of sampling; below 1, probable tokens become more so",
    )
    top_k: Annotated[int | None, _OF_SAMPLES] = Field(
        default=None, ge=1, le=MAX_VOCABULARY, description="sample from the k most probable tokens; left out: all"
    )
    top_p: Annotated[float | None, _OF_SAMPLES] = Field(
        default=None,
        gt=0,
        le=1,
        description="sample from the fewest tokens with probability p together (nucleus sampling); left out: all",
    )
    seed: Annotated[int, _OF_SAMPLES] = Field(default=1, ge=0, le=MAX_SEED, description="random seed of sampling")

    @model_validator(mode="after")
    def _check_lengths(self) -> "GenerationConfig":
        if self.max_length is not None and self.min_length > self.max_length:
            raise ValueError(f"min_length = {self.min_length} is above max_length = {self.max_length}: lower it")
        return self

    def changed(self, changes: Mapping[str, object]) -> "GenerationConfig":
        """The same settings but for those that are given and not None.

        What only the other way of searching knows gives way where ``sampling`` changes, and ``max_length`` where a
        longest output is given in relation to its input.

        Raises:
            BadInputError: A value is out of range, or two exclude each other.
        """
        given = {name: as_plain(value) for name, value in changes.items() if value is not None}
        if not given:
            return self
        kept = self.model_dump(exclude=set(given))
        if "max_extra_length" in given:  # which the model's max_length would leave without effect
            kept.pop("max_length", None)
        if given.get("sampling", self.sampling) != self.sampling:
            own = [name for name, field in type(self).model_fields.items() if facts(field) in (_OF_BEAMS, _OF_SAMPLES)]
            kept = {name: value for name, value in kept.items() if name not in own}
        try:
            return GenerationConfig.model_validate(kept | given)
        except ValidationError as error:
            first = error.errors()[0]
            message = what_is_wrong(first, type(self))
            place = "".join(f"{str(key).replace('_', ' ')} {first['input']!r}: " for key in first["loc"])
            raise BadInputError(place + message) from error


def as_plain(value: object) -> object:
    """NumPy's numbers as Python's, which are all that settings know; anything else as it is."""
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else value


class GenerationChanges(TypedDict, total=False):
    """Settings of one call in the place of the model's own ones; what each means stands in ``GenerationConfig``."""

    length_penalty_kind: LengthPenaltyKind | None
    stopping: Stopping | None
    coverage_penalty: float | None
    diversity: float | None
    max_extra_length: int | None
    max_length: int | None
    max_source_length: int | None
    min_length: int | None
    no_repeat_ngram: int | None
    replace_unknown: bool | None
    sampling: bool | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    seed: int | None
