"""An engine in a process of its own, so that load time and peak memory are its own, and no library meets another."""

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self, final

import torch

from benchmarks.decoders.engines import Engine, load_engine
from benchmarks.resident import resident_bytes


@final
class EngineProcess:
    """A child that answers one order after the other; idle, it takes no processor time."""

    def __init__(self, engine: Engine, model: Path, exported: Path) -> None:
        order = json.dumps([asdict(engine), str(model), str(exported)])
        began = time.perf_counter()
        self._child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.decoders.process", order],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": str(engine.threads)},
        )
        self.device_bytes = 0
        self._answer()
        self.load_seconds = time.perf_counter() - began

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.communicate()  # the end of its input is the end of it

    def translate(self, texts: list[str], beam: int, batch: int) -> tuple[list[str], float]:
        """Translations of all texts, and the seconds they took."""
        found = self._order(texts, beam, batch, one_by_one=False)
        return found["outputs"], found["seconds"][0]

    def latencies(self, texts: list[str], beam: int) -> list[float]:
        """Seconds that each text takes on its own."""
        seconds: list[float] = self._order(texts, beam, 1, one_by_one=True)["seconds"]
        return seconds

    def peak_bytes(self) -> int:
        """The largest resident set of the process so far."""
        return resident_bytes("VmHWM", str(self._child.pid))

    def _order(self, texts: list[str], beam: int, batch: int, *, one_by_one: bool) -> dict[str, Any]:
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps([texts, beam, batch, one_by_one]) + "\n")
        self._child.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"an engine's process ended with status {self._child.wait()}: its error stands above")
        answer: dict[str, Any] = json.loads(line)
        # Engines compute one at a time, so that what else holds memory of the device is as it was.
        self.device_bytes += answer["device_bytes"]
        return answer


def serve(order: str) -> None:
    """What the child does: load, say so, and answer orders until they end."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    named, model, exported = json.loads(order)
    engine = Engine(**named)
    free = _free_bytes(engine.device)
    translate = load_engine(engine, Path(model), Path(exported))
    _say(answers, {"device_bytes": free - _free_bytes(engine.device)})
    for line in sys.stdin:
        texts, beam, batch, one_by_one = json.loads(line)
        outputs, seconds, free = [], [], _free_bytes(engine.device)
        for part in [[text] for text in texts] if one_by_one else [texts]:
            began = time.perf_counter()
            outputs += translate(part, beam, batch)
            seconds.append(time.perf_counter() - began)
        taken = free - _free_bytes(engine.device)
        _say(answers, {"outputs": outputs, "seconds": seconds, "device_bytes": taken})


def _free_bytes(device: str) -> int:
    """Of a CUDA device: all engines keep what they have once taken."""
    return 0 if device == "cpu" else torch.cuda.mem_get_info(device)[0]


def _say(stream: Any, answer: dict[str, Any]) -> None:  # noqa: ANN401 - any text file
    stream.write(json.dumps(answer) + "\n")
    stream.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
