"""From the start of ``transduce translate`` until its first line is written: seconds, and the memory it has then."""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final, final

from benchmarks.resident import resident_bytes
from transduce.bundle import load_bundle
from transduce.interop import export_ctranslate2

_CACHE: Final = "transduce --cache"


@final
@dataclass(frozen=True)
class Start:
    """A program's starts: seconds by a clock until its first line, and the bytes resident once that is written."""

    seconds: Sequence[float]
    resident: Sequence[float]

    @property
    def median(self) -> float:
        """The seconds of all starts."""
        return statistics.median(self.seconds)


def measure_starts(model: Path, text: str, starts: int) -> tuple[dict[str, Start], dict[str, float]]:
    """So many starts of each program by turns, and the median seconds of each part of what ours does.

    CTranslate2 is there if it is installed.
    """
    with tempfile.TemporaryDirectory() as folder:
        programs = _programs(model, Path(folder) / "exported")
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
        parts: list[dict[str, float]] = []
        _first_line(programs[_CACHE], text)  # keeps for the starts to come
        for _ in range(starts):
            for name, command in programs.items():
                found[name].append(_first_line(command, text))
            parts.append(_parts(model, text))
    medians = {name: statistics.median(one[name] for one in parts) for name in parts[0]}
    return {name: Start(*zip(*each, strict=True)) for name, each in found.items()}, medians


def _programs(model: Path, exported: Path) -> dict[str, list[str]]:
    ours = [sys.executable, "-m", "transduce", "translate", str(model), "--quiet", "--precision", "int8"]
    programs = {"transduce": ours, _CACHE: [*ours, "--cache"]}
    if find_spec("ctranslate2") is None:
        return programs
    export_ctranslate2(load_bundle(model), exported)
    return programs | {"CTranslate2": [sys.executable, "-m", "benchmarks.streaming.ctranslate2_lines", str(exported)]}


def _first_line(command: list[str], text: str) -> tuple[float, float]:
    """The line is written at once, and the pipe stays open: nothing but the line tells the command to begin."""
    began = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(text.encode() + b"\n")
        child.stdin.flush()
        line = child.stdout.readline()
        seconds = time.monotonic() - began
        resident = resident_bytes("VmRSS", str(child.pid)) if line else 0
        child.stdin.close()
    if child.returncode or not line:
        raise RuntimeError(f"{' '.join(command)}: status {child.returncode}, and no translation")
    return seconds, resident


def _parts(model: Path, text: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.streaming.stages", str(model), text]
    began = time.monotonic()
    ends: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    starts = [began, *ends.values()]
    return {name: end - before for (name, end), before in zip(ends.items(), starts, strict=False)}
