"""The process of one model: it reads calls from standard input, and writes their answers to standard output.

It ends when its input does, so that none outlives its server, and when its search has failed: the server starts
another. Messages are those of ``frames``: ``{"id": 7, "call": "translate", ...}`` is answered by
``{"id": 7, "answer": ...}`` or ``{"id": 7, "error": ..., "kind": "input" | "failure"}``; ``{"cancel": 7}`` withdraws a
call, and asks for no answer.
"""

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final, final

from transduce.bundle import load_bundle
from transduce.config import BadInputError, Precision, TransduceError
from transduce.config.attention import AttentionHead
from transduce.inference import Cancellation, Translator, load
from transduce.inference.arguments import read_device
from transduce.models import mute
from transduce.serving import frames
from transduce.serving.answers import Answers

if sys.platform != "win32":
    import resource

# What getrusage counts in; macOS counts bytes.
_KIB: Final = 1 if sys.platform == "darwin" else 1024
# Calls that are worked on at the same time; their texts share the batches of the search.
_CALLS: Final = 128
# Those that look at one sentence closely: they take long, load models anew, and may not keep others waiting.
_LOOKS: Final = 2
_log = logging.getLogger("transduce.serving")


@final
class Worker:
    """Works on calls in threads, each of which waits for the running search."""

    def __init__(self, answers: Answers, output: BinaryIO) -> None:
        self._answers, self._output = answers, output
        self._threads = ThreadPoolExecutor(_CALLS, "call")
        self._looking = ThreadPoolExecutor(_LOOKS, "look")
        self._calls: dict[int, tuple[Cancellation, Future[None]]] = {}
        self._lock = threading.Lock()

    def serve(self, stream: BinaryIO) -> None:
        """Take calls until the stream ends."""
        while (message := frames.read(stream)) is not None:
            if "cancel" in message:
                self._cancel(message["cancel"])
                continue
            number, cancellation = message.pop("id"), Cancellation()
            threads = self._looking if message["call"] in ("attend", "search") else self._threads
            future = threads.submit(self._work, number, message, cancellation)
            self._calls[number] = cancellation, future
            future.add_done_callback(partial(self._forget, number))

    def send(self, message: frames.Message) -> None:
        """Write a message, whole, whichever thread calls."""
        data = frames.pack(message)
        with self._lock:
            self._output.write(data)
            self._output.flush()

    def _work(self, number: int, call: frames.Message, cancellation: Cancellation) -> None:
        try:
            self.send({"id": number, "answer": self._answers.answer(call, cancellation)})
        except BadInputError as error:
            self.send({"id": number, "error": " ".join(map(str, error.args)), "kind": "input"})
        except TransduceError as error:
            self.send({"id": number, "error": " ".join(map(str, error.args)), "kind": "failure"})
        except Exception:
            # What went wrong is for the log, not for whoever asked.
            _log.exception("a request has failed")
            self.send({"id": number, "error": "the server has failed on this request", "kind": "failure"})

    def _cancel(self, number: int) -> None:
        if (call := self._calls.get(number)) is not None:
            cancellation, future = call
            future.cancel()
            cancellation.cancel()

    def _forget(self, number: int, _: Future[None]) -> None:
        self._calls.pop(number, None)


def main(settings: dict[str, Any]) -> None:
    """Load the model, say how much memory that took, and work until there is nobody to work for."""
    # The server's to handle: it stops its workers by closing their input.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Whatever a library prints must not get among the messages.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    if settings["threads"] is not None:
        import torch  # noqa: PLC0415 - loaded with the model

        torch.set_num_threads(settings["threads"])
    path, precision, device = Path(settings["path"]), settings["precision"], settings["device"]
    try:
        translator = load(path, precision, device, shortlist=settings["shortlist"], cache=settings["cache"])
    except TransduceError as error:
        output.write(frames.pack({"error": " ".join(map(str, error.args))}))
        output.flush()
        return
    with translator.keep_searching() as search:
        worker = Worker(Answers(translator, partial(_load_without, path, precision, device)), output)
        try:
            worker.send({"ready": True, "memory": _most_memory()})
        except BrokenPipeError:  # the server was ended meanwhile
            os._exit(0)
        threading.Thread(target=_serve_and_leave, args=(worker,), name="calls", daemon=True).start()
        _log.error(f"the search has failed: {search.wait()}")
        os._exit(1)


def _most_memory() -> int:
    """Bytes that this process had at most; Windows does not say, and there models are as good as small."""
    return 0 if sys.platform == "win32" else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB


def _serve_and_leave(worker: Worker) -> None:
    worker.serve(sys.stdin.buffer)
    os._exit(0)  # whatever the threads are at, nobody waits for it


def _load_without(path: Path, precision: Precision, device: str | None, heads: Collection[AttentionHead]) -> Translator:
    bundle = load_bundle(path)
    bundle.tokenizers.cache_nothing()  # which would stay when this translator has gone
    mute(bundle.model, heads)
    return Translator(bundle, precision, read_device(device), consume=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
