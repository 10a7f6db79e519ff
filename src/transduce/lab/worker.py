"""A process that trains what comes by its standard input; ``jobs`` starts it.

Each line is a job in JSON, and has a line in JSON for an answer. Where the input ends, whoever wanted the training is
gone or wants no more of it: a training at work writes a checkpoint after its step.
"""

import json
import logging
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from queue import SimpleQueue
from typing import Any, final

import torch

from transduce.config import RunConfig, StoppedError, TransduceError
from transduce.lab.reproduce import Session, describe_failure, finish
from transduce.workflows.run_directory import RunDirectory


@final
class Input:
    """Lines as they come. Their end stops the work on one of them, and what is not begun by then is not begun."""

    def __init__(self) -> None:
        self.ended = False
        self._at_work = False
        self._lock = threading.Lock()
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        threading.Thread(target=self._read, name="input", daemon=True).start()

    def take(self) -> str | None:
        """The next line, which is then worked on, or None where there are no more or the input has ended."""
        line = self._lines.get()
        with self._lock:
            self._at_work = line is not None and not self.ended
            return line if self._at_work else None

    def finish(self) -> None:
        """The line that was taken is no longer worked on."""
        with self._lock:
            self._at_work = False

    def _read(self) -> None:
        for line in sys.stdin:
            self._lines.put(line)
        self._lines.put(None)
        with self._lock:
            self.ended = True
            if self._at_work:
                # What a training says of its signal, it would say beside the words of whoever closed the input.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
                os.kill(os.getpid(), signal.SIGTERM)


def main(settings: dict[str, Any]) -> None:
    """Work until there is no more."""
    output = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    # Whatever a library prints must not get among the answers.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    log = logging.StreamHandler()
    logging.basicConfig(level=logging.WARNING, handlers=[log])
    torch.set_num_threads(settings["threads"])
    devices = (torch.device(settings["device"]),)
    session = Session(settings["end"], print, own_process=True, jobs=settings["jobs"], devices=devices)
    base, lines = RunDirectory(Path(settings["base"])), Input()
    while (line := lines.take()) is not None:
        job = json.loads(line)
        log.setFormatter(logging.Formatter(f"warning: {job['name']}: %(message)s"))
        answer = _work(job, base, session, lines)
        lines.finish()
        output.write(json.dumps(answer) + "\n")
        output.flush()


def _work(job: dict[str, Any], base: RunDirectory, session: Session, lines: Input) -> dict[str, Any]:
    seconds = session.end - time.monotonic()
    if seconds <= 0:
        return {"finished": False}
    try:
        config = RunConfig.model_validate(job["config"])
        return {"finished": finish(config, RunDirectory(Path(job["root"])), base, seconds, session)}
    except StoppedError as error:
        # Whoever ends the input knows why; a signal to this process alone comes from elsewhere.
        return {"finished": False} if lines.ended else {"finished": False, "failure": describe_failure(error)}
    except (TransduceError, OSError) as error:
        return {"finished": False, "failure": describe_failure(error)}
    except Exception as error:
        traceback.print_exc()
        return {"finished": False, "failure": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
