"""Marian itself, as the package ``pymarian`` has it: in processes of their own, which its errors end."""

import json
import subprocess
import sys
import weakref
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final, final

from transduce.config import TransduceError

_RUN: Final = "import sys, _pymarian; sys.exit(_pymarian.main(sys.argv[1:]))"
_PYTHON: Final = (sys.executable, "-P")  # not what lies in the working directory
_MEGABYTES: Final = 512  # of its workspace, which grows where that is too little
_PATIENCE: Final = 10  # seconds to end in
# Nothing is left out for its length.
COMMON: Final = ("--workspace", str(_MEGABYTES), "--max-length", str(2**20), "--log-level", "error")


def has_marian() -> bool:
    """Whether ``pymarian`` is installed."""
    return find_spec("_pymarian") is not None


def marian_version() -> str:
    """That of the package."""
    try:
        return version("pymarian")
    except PackageNotFoundError:  # on the path, and not installed
        return "unknown"


def run_marian(arguments: Sequence[str], folder: Path) -> str:
    """What one of its commands prints, run in a folder.

    Raises:
        TransduceError: It fails; its message is part of ours.
    """
    process = subprocess.run(
        [*_PYTHON, "-c", _RUN, *arguments, *COMMON], cwd=folder, capture_output=True, encoding="utf-8", check=False
    )
    if process.returncode:
        raise TransduceError(f"Marian fails: {_complaint(process.stderr)}")
    return process.stdout


@final
class MarianTranslator:
    """A model that is loaded once, in a process that lives as long as this object."""

    def __init__(self, options: Sequence[str], folder: Path) -> None:
        self._complaints = TemporaryFile()
        worker = str(Path(__file__).with_name("marian_worker.py"))
        self._process = subprocess.Popen(
            [*_PYTHON, worker, " ".join([*options, *COMMON, "--quiet-translation"])],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            encoding="utf-8",
        )
        self._end = weakref.finalize(self, _end, self._process)

    def translate(self, lines: Sequence[str], **settings: float) -> list[str]:
        """A translation for each line, by settings that are Marian's, with ``_`` in the place of ``-``.

        Raises:
            TransduceError: It fails; its message is part of ours.
        """
        given = {name.replace("_", "-"): value for name, value in settings.items()}
        answer = ""
        try:
            _pipe(self._process.stdin).write(json.dumps([list(lines), given]) + "\n")
            _pipe(self._process.stdin).flush()
            answer = _pipe(self._process.stdout).readline()
        except BrokenPipeError:
            pass
        if not answer:
            self._process.wait(_PATIENCE)
            self._complaints.seek(0)
            raise TransduceError(f"Marian fails: {_complaint(self._complaints.read().decode('utf-8', 'replace'))}")
        found: list[str] = json.loads(answer)
        return found


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def _end(process: "subprocess.Popen[str]") -> None:
    """Its input ends, and with it the process."""
    try:
        process.communicate(timeout=_PATIENCE)
    except (subprocess.TimeoutExpired, BrokenPipeError, ValueError):
        process.kill()
        process.wait()


def _complaint(said: str) -> str:
    """The first error in its log, or the last line of something else's."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line.partition("Error: ")[2] for line in _errors(lines)]
    return next((each for each in errors if each), lines[-1] if lines else "it says nothing")


def _errors(lines: Sequence[str]) -> Iterator[str]:
    return (line for line in lines if "Error: " in line)
