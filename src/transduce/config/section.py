"""Sections of a configuration file, and what a setting is beside its value."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Literal, Self, final

from pydantic import BaseModel, BeforeValidator, ConfigDict, field_validator, model_validator
from pydantic.fields import FieldInfo

_LARGEST: Final = 2**53  # the integers that floating-point numbers have, too

Effect = Literal["safe", "allowed", "refused"]


@final
@dataclass(frozen=True)
class Setting:
    """The facts of a setting; every field that a run file can set has one, in ``Annotated``, or its section has.

    ``resume`` is what ``train --resume`` makes of another value. It is "safe" where the weights of a step stay what
    they would have been (how long, how often, where), "allowed" where it is another training from here on, of the same
    model on the same data, and "refused" where the weights or the order of the data would be of no use.
    ``read_with`` is the other setting of its section, and the values of it, with which alone this one is read.
    ``formerly`` are the names that it had: files that have them are read as before.
    """

    resume: Effect
    read_with: tuple[str, tuple[str | bool, ...]] | None = None
    formerly: tuple[str, ...] = ()


SAFE: Final = Setting("safe")
ALLOWED: Final = Setting("allowed")
REFUSED: Final = Setting("refused")


class Section(BaseModel):
    """A frozen table of a configuration file: unknown keys are errors, values never change."""

    # Strict: `max_steps = true` is no 1, and `"yes"` no boolean; every number is one to calculate with.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _read_former_names(cls, values: object) -> object:
        return rename_keys(values, cls) if isinstance(values, dict) else values

    @field_validator("*", mode="before")
    @classmethod
    def _check_magnitude(cls, value: object) -> object:
        if isinstance(value, int) and abs(value) > _LARGEST:
            raise ValueError(f"no number here may be beyond 2^53 = {_LARGEST:,}")
        return value

    @model_validator(mode="after")
    def _check_that_all_is_read(self) -> Self:
        """A setting that another one makes idle is a mistake, not a preference."""
        idle = [
            describe_idle(self, name, other, readers)
            for name, other, readers in _read_with(type(self))
            if getattr(self, name) != type(self).model_fields[name].default and getattr(self, other) not in readers
        ]
        if idle:
            raise ValueError("; ".join(idle))
        return self


def describe_idle(section: Section, name: str, other: str, readers: Iterable[str | bool]) -> str:
    """That a setting of a section is idle, as the other one has none of these values; and what to do."""
    default, present = type(section).model_fields[name].default, show_value(getattr(section, other))
    allowed = " or ".join(map(show_value, readers))
    cure = (
        f"or change {other}, which is {present}"
        if default is None
        else f"change {other}, or give its default {show_value(default)}, as {other} is {present}"
    )
    return f"{name} = {show_value(getattr(section, name))} is for {other} = {allowed}: leave it out, {cure}"


def show_value(value: object) -> str:
    """A value as run files have it."""
    return str(value).lower() if isinstance(value, bool) else repr(value)


def facts(field: FieldInfo) -> Setting | None:
    """The facts that stand on a field."""
    return next((each for each in field.metadata if isinstance(each, Setting)), None)


# A translator validates settings in every call: what follows from the section alone is looked up once.
@lru_cache
def _read_with(section: type[BaseModel]) -> tuple[tuple[str, str, tuple[str | bool, ...]], ...]:
    """The settings that are read only with another one: their names, the other's, and the values of that."""
    known = ((name, facts(field)) for name, field in section.model_fields.items())
    return tuple((name, *setting.read_with) for name, setting in known if setting and setting.read_with)


@lru_cache
def former_names(section: type[BaseModel]) -> Mapping[str, str]:
    """The names that settings of a section had, and those that they have now."""
    known = {name: facts(field) for name, field in section.model_fields.items()}
    return MappingProxyType({old: name for name, setting in known.items() if setting for old in setting.formerly})


def rename_keys(table: dict[str, object], section: type[BaseModel]) -> dict[str, object]:
    """A section's table in which every setting has its present name.

    Raises:
        ValueError: It gives a setting by two names.
    """
    names = former_names(section)
    if not names:
        return table
    if twice := [old for old in names if old in table and names[old] in table]:
        raise ValueError(f"{twice[0]} is the former name of {names[twice[0]]}: leave it out")
    return {names.get(key, key): value for key, value in table.items()}


@lru_cache
def regularization(section: type[BaseModel]) -> frozenset[str]:
    """The settings of a model's section that change how it is trained, and not what its weights compute."""
    known = ((name, facts(field)) for name, field in section.model_fields.items())
    return frozenset(name for name, setting in known if setting is not None and setting.resume == "allowed")


# TOML has lists, frozen sections have tuples.
FROM_LIST: Final = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)


def check_word(text: str) -> str:
    """The text, which is one word without white space.

    Raises:
        ValueError: It is none.
    """
    if text.split() != [text]:
        raise ValueError(f"{text!r} is not one word without white space")
    return text
