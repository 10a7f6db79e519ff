"""The errors a user meets: each says what is wrong, where, and what to do about it."""

import errno
import os
from pathlib import Path
from typing import Final


class TransduceError(Exception):
    """Something failed that the user can act on; the command line prints a line and exits with ``status``.

    Each argument is one thing that is wrong, and a line of its own.
    """

    status: int = 1

    def __str__(self) -> str:
        """One line for each thing that is wrong."""
        return "\n".join(map(str, self.args))


class BadInputError(TransduceError):
    """The input, the run file or an option is wrong."""

    status = 2


class StoppedError(TransduceError):
    """A signal ended the work; the status is 128 and its number, as shells have it."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.status = 128 + number

    def __reduce__(self) -> tuple[type["StoppedError"], tuple[str, int]]:
        return StoppedError, (self.args[0], self.status - 128)


_REMEDIES: Final = {
    errno.ENOSPC: "make room on this disk",
    errno.EDQUOT: "make room within this user's quota",
    errno.EROFS: "mount this disk for writing again",
    errno.EACCES: "let this user write there",
    errno.EPERM: "let this user write there",
    errno.ESTALE: "begin it again, with another --out where another training is in that folder now",
}
# Of these it is the place that is wrong, which somebody gave.
_WRONG_PLACE: Final = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EROFS, errno.EACCES, errno.EPERM}


def remedy(error: OSError) -> str | None:
    """What to do about an error of the system, where that is known."""
    if error.errno == errno.ENOENT and error.filename is not None:
        folder = Path(_name(error)).absolute().parent
        return None if folder.is_dir() else f"make the folder {folder} first"
    return _REMEDIES.get(error.errno or 0)


def _name(error: OSError) -> str:
    name = error.filename
    return os.fsdecode(name) if isinstance(name, bytes) else str(name)


def explain(error: OSError) -> TransduceError:
    """An error of the system with its place, and what to do; it is bad input where the place is what is wrong."""
    said = error.strerror or " ".join(map(str, error.args)) or type(error).__name__
    # Whether it was to be read or written, the system does not say.
    rights = "give this user the right to it, or choose another place"
    cure = rights if error.errno in (errno.EACCES, errno.EPERM) else remedy(error)
    parts = (None if error.filename is None else _name(error), said, cure)
    kind = BadInputError if error.errno in _WRONG_PLACE else TransduceError
    return kind(": ".join(part for part in parts if part))
