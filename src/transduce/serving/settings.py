"""What a server is told: its models, where it listens, and its limits."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from transduce.config import BadInputError, Precision
from transduce.text import check_language

_CODE: Final = r"[A-Za-z]{2,3}(?:_[A-Za-z0-9]{2,8})*"
_PAIR: Final = re.compile(rf"({_CODE})-({_CODE})")
# The codes of a model that was given without any: it goes from one thing to another.
_SOURCE, _TARGET = "source", "target"


@final
@dataclass(frozen=True)
class ServedModel:
    """A model directory, and the codes of the languages that it reads and writes."""

    source: str
    target: str
    path: Path

    @property
    def name(self) -> str:
        """What it is called in addresses and metrics."""
        return f"{self.source}-{self.target}"

    @property
    def language(self) -> str:
        """The code by which its sources are split into sentences: English, where no languages were given."""
        return "en" if self.source == _SOURCE else self.source


@final
@dataclass(frozen=True)
class Limits:
    """How much one request, and all of them together, may ask for; ``None`` is no limit.

    ``body`` is in bytes, ``characters`` those of all texts of a request, ``texts`` their number. ``waiting`` is how
    many requests may be under way for a model, ``wait`` how many seconds of work may stand before a new one, ``time``
    how many seconds a request may take. ``rate`` is in requests a minute, for a client without a key.
    """

    body: int = 10_000_000
    characters: int = 100_000
    texts: int = 1_000
    alternatives: int = 10
    waiting: int = 1_000
    wait: float = 10.0
    time: float = 60.0
    rate: int | None = None


@final
@dataclass(frozen=True)
class ServeSettings:
    """A server's settings, as ``transduce serve --help`` tells them.

    With ``lazy``, a model is loaded when it is first asked for; ``memory``, in bytes, is what those that are loaded may
    have together, so that what was not used for the longest time leaves.
    """

    models: tuple[ServedModel, ...]
    host: str = "127.0.0.1"
    port: int = 5000
    precision: Precision = "auto"
    device: str | None = None
    threads: int | None = None
    shortlist: bool = False
    cache: bool = False
    lazy: bool = False
    memory: int | None = None
    keys: Path | None = None
    limits: Limits = Limits()
    cors: tuple[str, ...] = ()
    page: bool = True
    grace: float = 30.0


def read_models(given: Sequence[str]) -> tuple[ServedModel, ...]:
    """Models as the command line gives them: ``en-de=DIR``, or ``DIR`` alone where there is one.

    Raises:
        BadInputError: A name is no pair of known language codes, is given twice or is missing, or a folder does not
            exist.
    """
    models = [_read_model(each, alone=len(given) == 1) for each in given]
    for index, model in enumerate(models):
        if model.name in (each.name for each in models[:index]):
            raise BadInputError(f"{given[index]}: there is a model for {model.name} already")
    return tuple(models)


def _read_model(given: str, *, alone: bool) -> ServedModel:
    name, equals, folder = given.partition("=")
    # A folder may have an equals sign in its name.
    if not equals or Path(given).is_dir():
        if not alone:
            raise BadInputError(f"{given}: of several models, each needs its languages: en-de={given}")
        name, folder = "", given
    if not Path(folder).is_dir():
        raise BadInputError(f"{folder}: there is no such folder: give a model or run directory")
    if not name:
        return ServedModel(_SOURCE, _TARGET, Path(folder))
    codes = _PAIR.fullmatch(name)
    if codes is None:
        raise BadInputError(f"{given}: {name!r} is no pair of languages such as en-de or pt_BR-en")
    source, target = codes.groups()
    try:
        for code in (source, target):
            check_language(code)
    except BadInputError as error:
        raise BadInputError(f"{given}: {error}") from error
    return ServedModel(source, target, Path(folder))
