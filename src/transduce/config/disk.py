"""Files and folders that are whole or not there, after a loss of power too.

What is written lies in memory until it is flushed, and a name (a new one, a changed one) until its folder is.
"""

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import final

from transduce.config.errors import BadInputError
from transduce.config.files import check_vacant


def flush(path: Path) -> None:
    """See a file's content, or the names in a folder, on disk."""
    if os.name == "nt" and path.is_dir():
        return  # Windows keeps names by itself, and opens no folders
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_folder(folder: Path) -> None:
    """See a folder's files, their names and its own on disk; folders in it are left alone."""
    for path in folder.iterdir():
        if path.is_file():
            flush(path)
    flush(folder)
    flush(folder.parent)


def write_flushed(path: Path, text: str) -> None:
    """Write a file whose name may be lost, and what is in it not."""
    with path.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def write_whole(path: Path, text: str) -> None:
    """Write a file that appears whole or not at all; an older one stays until then, and so do its rights and links.

    What is no file of a disk, such as a pipe, is written to.

    Raises:
        BadInputError: It is a folder.
        OSError: It cannot be written; nothing is left of it.
    """
    if path.is_dir():
        raise BadInputError(f"{path}: is a folder: give the name of a file")
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    place = path.resolve()
    unfinished = place.with_name(f"{place.name}.unfinished")
    try:
        unfinished.touch()
        if place.exists():
            _take_rights(place, unfinished)
        write_flushed(unfinished, text)
        unfinished.replace(place)
    except OSError as error:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        if error.filename is not None:
            error.filename, error.filename2 = str(path), None  # the one that was asked for
        raise
    flush(place.parent)


def _take_rights(older: Path, path: Path) -> None:
    status = older.stat()
    if os.name != "nt":
        with suppress(PermissionError):  # who may write a file need not own it
            os.chown(path, status.st_uid, status.st_gid)
    path.chmod(stat.S_IMODE(status.st_mode))


@final
class SameFolder:
    """A folder as it was at first: whoever writes to it for hours can see that it is still the one of that name."""

    def __init__(self, path: Path) -> None:
        self._path, self._identity = path, _identify(path)

    def check(self) -> None:
        """Look at it.

        Raises:
            OSError: It was deleted, and maybe another one has its name now.
        """
        if _identify(self._path) != self._identity:
            raise OSError(errno.ESTALE, "was deleted since, and what has its name now is another's", str(self._path))


def _identify(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def name_beside(path: Path, kind: str) -> Path:
    """A name for what is written beside a place, which nobody else uses."""
    return path.with_name(f"{path.name}.{secrets.token_hex(8)}.{kind}")


def replace_directory(finished: Path, path: Path, older: Path | None = None) -> None:
    """Put a finished directory, all of it flushed, in the place of an older one; the older one is whole until then.

    Meanwhile it is called ``older``; left out, that is PATH.older, which has to be the caller's own: it is deleted.
    """
    older = path.with_name(f"{path.name}.older") if older is None else older
    if path.exists():  # otherwise the older one is all there is: an earlier replacement was interrupted
        shutil.rmtree(older, ignore_errors=True)
        path.rename(older)
    finished.rename(path)
    flush(path.parent)
    shutil.rmtree(older, ignore_errors=True)


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """A folder to write to, which takes the name ``path`` when the block ends, and is gone where it fails.

    Raises:
        BadInputError: Something stands there, at first or at the end: it stays as it is.
    """
    check_vacant(path)
    path = path.resolve()  # a link stays one
    unfinished = name_beside(path, "unfinished")
    unfinished.mkdir(parents=True)
    try:
        yield unfinished
        flush_folder(unfinished)
        check_vacant(path)  # the block may have taken minutes
        if path.exists() and os.name == "nt":
            path.rmdir()  # nothing takes an empty folder's place there
        try:
            unfinished.rename(path)
        except OSError:
            check_vacant(path)
            raise
        flush(path.parent)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
