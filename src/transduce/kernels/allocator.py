"""The C library's allocator: what it does with memory that was freed."""

import ctypes
import gc
import os
from pathlib import Path
from typing import Final, final

import torch

# mallopt's parameters (malloc.h), and what they are set to.
_KEPT: Final = {
    "M_MMAP_MAX": (-4, 0),  # no mapping for a single large tensor, which is unmapped as soon as that is freed
    "M_TRIM_THRESHOLD": (-1, 2**31 - 1),  # nothing of the heap's end is given back
    "M_TOP_PAD": (-2, 64 * 2**20),
}
# How much a process may grow by what it keeps, over the size that a first step leaves; and what tells its size.
_GROWTH: Final = 1.5
_STATM: Final = Path("/proc/self/statm")


def keep_freed_memory() -> bool:
    """Let the process keep what it frees, for the next step, and return whether its C library can be told so.

    Glibc gives large tensors back to the system as they die: the next step then waits while the system clears page by
    page of what it asks for again. Other C libraries stay as they are.
    """
    library = _glibc()
    return library is not None and all(library.mallopt(parameter, value) == 1 for parameter, value in _KEPT.values())


@final
class KeptMemory:
    """Bounds what ``keep_freed_memory`` keeps: tensors of ever other sizes leave pieces that fit nothing later.

    ``look`` after every step gives back what is free once the process has grown by half since the step that followed
    the last time. Without that, and without fillers, a training of base size grew by 10 MiB a step.
    """

    def __init__(self) -> None:
        self._needed = 0
        self._measuring = True

    def look(self) -> None:
        """After a step."""
        library = _glibc()
        if library is None:
            return
        size = _resident_pages()
        if self._measuring:
            self._needed, self._measuring = max(self._needed, size), False
        elif size > _GROWTH * self._needed:
            library.malloc_trim(0)
            self._measuring = True


def give_back_memory(*, failed: bool) -> None:
    """Give back to the system and to the device what is kept and not in use: others of this process may need it.

    What has failed may be held by its own error and the frames that this came through: where ``failed``, the garbage
    collector looks for it, which takes a tenth of a second and more in a large process.
    """
    if failed:
        gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    trim()


def trim() -> None:
    """Give back to the system what the C library keeps and nothing uses."""
    if (library := _glibc()) is not None:
        library.malloc_trim(0)


def _resident_pages() -> int:
    """0 where the system does not tell."""
    try:
        return int(_STATM.read_text(encoding="ascii").split()[1])
    except OSError:
        return 0


def _glibc() -> ctypes.CDLL | None:
    try:
        version = os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, ValueError):  # no POSIX, or no glibc
        return None
    return ctypes.CDLL(None) if version else None
