"""Faults for a training in a process of its own: it dies at a chosen moment, and what it had not flushed is lost.

Lost are the content of files behind what was flushed of them, and names (new ones, changed ones) whose folder was not
flushed since. What was deleted stays deleted. That is the worst that a file system may make of a loss of power.
"""

import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import transduce.bundle.weights as writing

POINTS = ("tensor write", "flush", "manifest", "rename", "pruning")


class Faults:
    """Wraps what a process writes below ``folder`` with; the ``count``-th event of kind ``point`` ends it.

    The kind ``hang`` is a disk that takes its time, and no end.
    """

    def __init__(self, folder: Path, point: str, count: int) -> None:
        self._folder, self._point, self._left = str(folder), point, count
        self._sizes: dict[int, int] = {}  # of a file, by its inode: what of it is on disk
        self._names: dict[int, set[str]] = {}  # of a folder, by its inode: the names in it that are on disk
        self._renames: list[tuple[str, str]] = []  # those that are not on disk, oldest first

    def arm(self) -> None:
        """What there is by now is on disk."""
        for folder, _, files in os.walk(self._folder):
            self._names[os.stat(folder).st_ino] = set(os.listdir(folder))
            for name in files:
                found = os.stat(f"{folder}/{name}")
                self._sizes[found.st_ino] = found.st_size
        for call in ("fsync", "rename", "replace", "unlink", "rmdir"):
            setattr(os, call, getattr(self, f"_wrap_{call}")(getattr(os, call)))
        writing.save_file = self._wrap_save_file(writing.save_file)  # type: ignore[attr-defined]

    def _meet(self, point: str, path: str) -> None:
        """An event: the process may die of it."""
        if point == self._point and path.startswith(self._folder):
            self._left -= 1
            if self._left == 0:
                self._die()
        if self._point == "hang" and path.startswith(self._folder):
            time.sleep(600)

    def _wrap_save_file(self, call: Callable[..., None]) -> Callable[..., None]:
        def save_file(tensors: Any, path: Path) -> None:
            call(tensors, path)
            size = path.stat().st_size
            os.truncate(path, size // 2)
            self._meet("tensor write", str(path))
            call(tensors, path)

        return save_file

    def _wrap_fsync(self, call: Callable[[int], None]) -> Callable[[int], None]:
        def fsync(descriptor: int) -> None:
            path, found = os.readlink(f"/proc/self/fd/{descriptor}"), os.fstat(descriptor)
            self._meet("manifest" if path.endswith("/manifest.json") else "flush", path)
            call(descriptor)
            if os.path.isdir(path):
                self._names[found.st_ino] = set(os.listdir(path))
                self._renames = [each for each in self._renames if os.path.dirname(each[1]) != path]
            else:
                self._sizes[found.st_ino] = found.st_size

        return fsync

    def _wrap_rename(self, call: Callable[..., None]) -> Callable[..., None]:
        def rename(old: Any, new: Any, **more: Any) -> None:
            self._meet("rename", str(new))
            is_folder = os.path.isdir(old)
            call(old, new, **more)
            if is_folder and str(new).startswith(self._folder):
                self._renames.append((str(old), str(new)))
            self._meet("rename", str(new))

        return rename

    _wrap_replace = _wrap_rename

    def _wrap_unlink(self, call: Callable[..., None]) -> Callable[..., None]:
        def unlink(path: Any, *, dir_fd: int | None = None) -> None:
            above = os.path.dirname(path) if dir_fd is None else os.readlink(f"/proc/self/fd/{dir_fd}")
            found = os.stat(path, dir_fd=dir_fd, follow_symlinks=False).st_ino
            self._meet("pruning", above)
            call(path, dir_fd=dir_fd)
            self._sizes.pop(found, None)
            self._names.pop(found, None)
            self._names.get(os.stat(above).st_ino, set()).discard(os.path.basename(path))

        return unlink

    _wrap_rmdir = _wrap_unlink

    def _die(self) -> None:
        """A child sees to it, as other threads would go on meanwhile."""
        self._meet = lambda *_: None  # type: ignore[method-assign]
        process = os.getpid()
        if os.fork():
            time.sleep(600)
        end = signal.SIGQUIT  # which no test expects
        try:
            os.kill(process, signal.SIGSTOP)
            while _state(process) != "T":
                time.sleep(0.001)
            self._lose()
            end = signal.SIGKILL
        finally:
            with suppress(ProcessLookupError):
                os.kill(process, end)
                os.kill(process, signal.SIGCONT)
            os._exit(0)

    def _lose(self) -> None:
        """What was not flushed."""
        for old, new in reversed(self._renames):
            if os.path.exists(new):
                os.rename(new, old)
        for folder, folders, files in os.walk(self._folder):
            names = self._names.get(os.stat(folder).st_ino, set())
            for name in {*folders, *files} - names:
                (shutil.rmtree if name in folders else os.remove)(f"{folder}/{name}")
            folders[:] = [name for name in folders if name in names]
            for name in names.intersection(files):
                path = f"{folder}/{name}"
                os.truncate(path, min(os.path.getsize(path), self._sizes.get(os.stat(path).st_ino, 0)))


def _state(process: int) -> str:
    """The letter that the system has for what a process does: T where it is stopped."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0]
