"""Files and folders that are whole or not there, after a loss of power too.

What is written lies in memory until it is flushed, and a name (a new one, a changed one) until its folder is.
"""

import errno
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import final

from transduce.config.errors import BadInputError
from transduce.config.files import check_vacant

if sys.platform != "win32":
    import fcntl


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


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file that appears whole or not at all; an older one stays until then, and so do its rights and links.

    What is no file of a disk, such as a pipe, is written to.

    Raises:
        BadInputError: It is a folder.
        OSError: It cannot be written; nothing is left of it.
    """
    raw = content.encode() if isinstance(content, str) else content
    unfinished = begin_file(path)
    with name_errors(path, unfinished):
        if unfinished is None:
            path.write_bytes(raw)
            return
        try:
            unfinished.write_bytes(raw)
            finish_file(path, unfinished)
        except OSError:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)  # it may be what fills the disk
            raise


def begin_file(path: Path) -> Path | None:
    """An empty file beside, to write to, which ``finish_file`` gives its name; an older one stays until then.

    None where ``path`` itself is to be written to: it is no file of a disk, such as a pipe, or nothing can be put
    beside it.

    Raises:
        BadInputError: It is a folder.
        OSError: It cannot be written.
    """
    if path.is_dir():
        raise BadInputError(f"{path}: is a folder: give the name of a file")
    if _is_written_in_place(path):
        return None
    place = path.resolve()
    unfinished = place.with_name(f"{place.name}.unfinished")
    with name_errors(path, unfinished):
        unfinished.touch()
        if place.exists():
            _take_rights(place, unfinished)
    return unfinished


@contextmanager
def keep_alone(path: Path) -> Iterator[None]:
    """Keep a file or a folder to this block, from all that ask likewise; it is free when the process ends, too.

    Where the system knows no such locks (Windows, some file systems of networks), nothing is kept.

    Raises:
        BlockingIOError: Somebody else holds it.
    """
    if sys.platform == "win32":
        yield
        return
    # NFS locks no file that is open for reading alone (flock(2)).
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.EBADF):
                raise
        yield
    finally:
        os.close(descriptor)


@contextmanager
def write_alone(path: Path, unfinished: Path) -> Iterator[None]:
    """Keep other programs that do likewise from writing ``unfinished`` until the block ends (``keep_alone``).

    Raises:
        BadInputError: Another one does at this moment.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(keep_alone(unfinished))
        except BlockingIOError:
            raise BadInputError(
                f"{path}: another program writes it at this moment: wait for that, or write to another file"
            ) from None
        yield


def finish_file(path: Path, unfinished: Path) -> None:
    """Give a file that is all written and closed its name, on disk.

    Raises:
        OSError: It cannot be had.
    """
    place = path.resolve()
    with name_errors(path, unfinished):
        flush(unfinished)
        try:
            unfinished.replace(place)
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.EPERM, errno.EACCES):
                raise
            # Nothing takes the name of a file that is mounted, as containers do with single files, or of one of
            # another user's in a folder such as /tmp; both may be written to.
            shutil.copyfile(unfinished, place)
            flush(place)
            unfinished.unlink()
        flush(place.parent)


def _is_written_in_place(path: Path) -> bool:
    if not path.exists():
        return False
    # What a shell has opened, it goes on writing to: /dev/stdout may lead to a file of a disk.
    return _is_open(path.absolute().parts[1:]) or not path.is_file() or not os.access(path.resolve().parent, os.W_OK)


def _is_open(parts: tuple[str, ...]) -> bool:
    """Whether a path, below the root, is a process's name of a file that it has open."""
    if os.name == "nt":
        return False
    standard = parts[:1] == ("dev",) and (parts[1:2] == ("fd",) or parts[1:] in (("stdout",), ("stderr",)))
    return standard or (parts[:1] == ("proc",) and "fd" in parts)


@contextmanager
def name_errors(path: Path, unfinished: Path | None = None) -> Iterator[None]:
    """Have errors of the disk name ``path``: those that name nothing, and those of what stands in its place."""
    try:
        yield
    except OSError as error:
        ours = unfinished is not None and str(error.filename).startswith(str(unfinished))
        if error.errno is not None and (error.filename is None or ours):
            error.filename, error.filename2 = str(path), None
        raise


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
        OSError: The disk does not take it; the error names ``path``.
    """
    check_vacant(path)
    path = path.resolve()  # a link stays one
    unfinished = name_beside(path, "unfinished")
    try:
        with name_errors(path, unfinished):
            unfinished.mkdir(parents=True)
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
