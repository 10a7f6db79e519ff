"""What the command line tells people on the way: the package's log, on standard error."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, final

from transduce.config.errors import BadInputError

_LOG: Final = logging.getLogger("transduce")


@contextmanager
def log_on_standard_error() -> Iterator[None]:
    """Show the package's log, from INFO on, for as long as the command runs."""
    handler = _StandardError()
    level, propagate = _LOG.level, _LOG.propagate
    _LOG.addHandler(handler)
    _LOG.setLevel(logging.INFO)
    _LOG.propagate = False  # a library that sets up the root's log would have every line shown twice
    try:
        yield
    finally:
        _LOG.removeHandler(handler)
        _LOG.setLevel(level)
        _LOG.propagate = propagate


def be_quiet(wanted: bool) -> None:
    """Show warnings and errors only; nothing changes where that is not wanted.

    Raises:
        BadInputError: More than the usual was asked for on the same line.
    """
    if wanted:
        _choose(logging.WARNING)


def be_verbose(wanted: bool) -> None:
    """Show everything; nothing changes where that is not wanted.

    Raises:
        BadInputError: Less than the usual was asked for on the same line.
    """
    if wanted:
        _choose(logging.DEBUG)


def keep_to_warnings() -> None:
    """From here on, as one of several processes, the first of which tells the rest."""
    _LOG.setLevel(max(_LOG.level, logging.WARNING))


def _choose(level: int) -> None:
    if _LOG.level not in {logging.INFO, level}:
        raise BadInputError("--quiet and --verbose exclude each other: give one of them")
    _LOG.setLevel(level)


@final
class _StandardError(logging.Handler):
    """Writes to whatever standard error is at the time: a live progress bar takes its place, to stay in one piece."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; where nobody reads any more, that ends the run like any other output."""
        if sys.stderr is not None:  # none where the shell closed it: 2>&-
            sys.stderr.write(f"{_prefix(record)}{self.format(record)}\n")


def _prefix(record: logging.LogRecord) -> str:
    if record.levelno >= logging.WARNING:
        return f"{record.levelname.lower()}: "
    if record.levelno >= logging.INFO:
        return ""
    return f"{record.name.removeprefix('transduce.')}: "
