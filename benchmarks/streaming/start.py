"""Seconds from the start of ``transduce translate`` until it has written its first line."""

import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import final


@final
@dataclass(frozen=True)
class Start:
    """Seconds by a clock: of the command in every start, and of each part of what it does, one median each."""

    seconds: list[float]
    parts: dict[str, float]

    @property
    def median(self) -> float:
        """Of all starts."""
        return statistics.median(self.seconds)


def measure_start(model: Path, text: str, starts: int) -> Start:
    """So many starts of the command, and of the same in parts, by turns."""
    seconds: list[float] = []
    parts: list[dict[str, float]] = []
    for _ in range(starts):
        seconds.append(_first_line(model, text))
        parts.append(_parts(model, text))
    medians = {name: statistics.median(one[name] for one in parts) for name in parts[0]}
    return Start(seconds, medians)


def _first_line(model: Path, text: str) -> float:
    """The line is written at once, and the pipe stays open: nothing but the line tells the command to begin."""
    command = [sys.executable, "-m", "transduce", "translate", str(model), "--quiet"]
    began = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(text.encode() + b"\n")
        child.stdin.flush()
        line = child.stdout.readline()
        seconds = time.monotonic() - began
        child.stdin.close()
    if child.returncode or not line:
        raise RuntimeError(f"{' '.join(command)}: status {child.returncode}, and no translation")
    return seconds


def _parts(model: Path, text: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.streaming.stages", str(model), text]
    began = time.monotonic()
    ends: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    starts = [began, *ends.values()]
    return {name: end - before for (name, end), before in zip(ends.items(), starts, strict=False)}
