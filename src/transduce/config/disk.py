"""Files and folders that are whole or not there, after a loss of power too.

What is written lies in memory until it is flushed, and a name (a new one, a changed one) until its folder is.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
    """Write a file that appears whole or not at all; an older one stays until then."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    write_flushed(unfinished, text)
    unfinished.replace(path)
    flush(path.parent)


def replace_directory(finished: Path, path: Path) -> None:
    """Put a finished directory, all of it flushed, in the place of an older one; the older one is whole until then."""
    older = path.with_name(f"{path.name}.older")
    if path.exists():  # otherwise the older one is all there is: an earlier replacement was interrupted
        shutil.rmtree(older, ignore_errors=True)
        path.rename(older)
    finished.rename(path)
    flush(path.parent)
    shutil.rmtree(older, ignore_errors=True)


@contextmanager
def whole_directory(path: Path) -> Iterator[Path]:
    """A new folder to write to, which takes the name ``path`` when the block ends, and is gone where it fails."""
    unfinished = path.with_name(f"{path.name}.unproven")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        yield unfinished
        flush_folder(unfinished)
        replace_directory(unfinished, path)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
