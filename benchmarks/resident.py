"""The memory that a process takes, as Linux tells it."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

_PROCESSES: Final = Path("/proc")


def growth(call: Callable[[], object]) -> int:
    """By how many bytes the process's resident set grows at the most while the call runs.

    Linux counts pages in parts, one for each processor, and reads the peak from fewer of them than the size: what is
    below nothing is nothing.
    """
    forget_peak()
    before = resident_bytes("VmRSS")
    call()
    return max(0, resident_bytes("VmHWM") - before)


def forget_peak() -> None:
    """Have this process's ``VmHWM`` begin anew."""
    (_PROCESSES / "self" / "clear_refs").write_text("5", encoding="ascii")


def resident_bytes(field: str, process: str = "self") -> int:
    """The resident set of a process, by its number.

    Args:
        field: ``VmRSS``, now; ``VmHWM``, at the most so far; ``RssAnon``, now, without files that are mapped.
        process: Its number; left out, this process's own.

    Raises:
        OSError: There is no such process.
        ValueError: It has ended and holds no memory.
    """
    status = (_PROCESSES / process / "status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024
