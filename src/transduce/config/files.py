"""Files that may come from a stranger, looked at before they are opened; and places to write to."""

import os
import stat
from pathlib import Path
from typing import Final

from transduce.config.errors import BadInputError

# What to do about a folder, of a model say, of which a file is missing or damaged.
ANEW: Final = "copy all of the folder again, or make it anew"


def check_size(path: Path, most: int) -> None:
    """Let pass what is a plain file of at most so many bytes, or does not exist.

    Raises:
        BadInputError: It is larger; or it is a folder, a pipe or a device, which one could wait at for ever.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise BadInputError(f"{path}: is no plain file: one of that name belongs here")
    if status.st_size > most:
        raise BadInputError(
            f"{path}: has {status.st_size:,} bytes, more than such a file ever needs ({most:,}): it is damaged, or "
            f"something else"
        )


def check_name(path: Path, cure: str) -> None:
    """Let pass a path that is UTF-8: of others, the libraries that read and write what is in such a folder know none.

    Raises:
        BadInputError: It is not; what to do about it ends the sentence.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise BadInputError(f"{path}: the name is no UTF-8: {cure}") from error


def check_vacant(path: Path) -> None:
    """Let pass what a new folder can be written to: there is nothing, or an empty folder.

    Raises:
        BadInputError: Something is there already, or a file stands in the way, or it is the current folder.
    """
    if path.is_file() or (path.is_dir() and any(path.iterdir())):
        raise BadInputError(f"{path}: exists and is not empty: choose another place, or remove it first")
    if path.is_dir() and path.samefile(os.curdir):
        raise BadInputError(f"{path}: is the current folder, whose place no other can take: give the name of a new one")
    there = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not there.is_dir():
        raise BadInputError(f"{path}: {there} is a file, where a folder belongs: choose another place")


def check_file_place(*paths: Path | str | None) -> None:
    """Before work that takes long: let pass the names that files can be written under; None and ``-`` are none.

    Raises:
        BadInputError: It is a folder, or its folder is missing or may not be written to.
    """
    for path in (Path(each) for each in paths if each not in (None, "-")):
        folder = path.absolute().parent
        if path.is_dir():
            raise BadInputError(f"{path}: is a folder: give the name of a file")
        if not folder.is_dir():
            what = "is a file" if folder.exists() else "is missing: make it first"
            raise BadInputError(f"{path}: the folder {folder} {what}, or choose another place")
        written = path if path.exists() else folder
        if not os.access(written, os.W_OK):
            raise BadInputError(f"{path}: cannot be written: let this user write to {written}, or choose another place")


def check_place(path: Path) -> None:
    """Let pass what lies in the folder that it is looked for in, or does not exist.

    Raises:
        BadInputError: It is a link out of that folder.
    """
    try:
        target, folder = path.resolve(), path.parent.resolve()
    except (OSError, RuntimeError) as error:  # links in a circle
        raise BadInputError(f"{path}: a link that leads nowhere: put the file itself there") from error
    if not target.is_relative_to(folder):
        raise BadInputError(f"{path}: a link out of its folder, to {target}: put the file itself there")


def read_text(path: Path, most: int, what: str = "file") -> str:
    """The text of a stranger's file of at most so many bytes, which lies in its folder; ``what`` it is, for people.

    Raises:
        BadInputError: It is missing, a link out of its folder, too large, cannot be read, or is no text.
    """
    check_place(path)
    check_size(path, most)
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise BadInputError(f"{path}: no such {what}") from error
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInputError(f"{path}: no text in UTF-8: {error}") from error
