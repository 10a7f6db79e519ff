"""A file of lines that a training appends to, and that must not end it."""

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import final

from transduce.config.disk import write_whole

_log = logging.getLogger(__name__)


@final
class Journal:
    """Appends lines. What the disk does not take waits in memory, and goes with the next line."""

    def __init__(self, path: Path, keep: Callable[[str], bool]) -> None:
        """Go on behind those lines of an older file that ``keep`` is true of."""
        if path.exists():
            kept = [line for line in path.read_text(encoding="utf-8").splitlines() if keep(line)]
            write_whole(path, "".join(f"{line}\n" for line in kept))
        self._path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        self._waiting = b""
        self._complained = False

    def write(self, line: str) -> None:
        """Append a line, its end not included, for whoever reads along to see at once."""
        self._waiting += f"{line}\n".encode()
        try:
            while self._waiting:
                self._waiting = self._waiting[os.write(self._descriptor, self._waiting) :]
        except OSError as error:
            if not self._complained:
                _log.warning(f"{self._path}: cannot be written: {error.strerror}; its lines wait in memory")
        self._complained = bool(self._waiting)

    def flush(self) -> None:
        """See on disk what is written."""
        with suppress(OSError):
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Let the file go."""
        if lost := self._waiting.count(b"\n"):
            _log.warning(f"{self._path}: {lost:,} lines could not be written and are lost")
        os.close(self._descriptor)
