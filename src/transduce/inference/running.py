"""A search that goes on from call to call, so that those of several threads share batches (continuous batching)."""

import os
from collections.abc import Callable, Iterable, Sequence
from threading import Event, Lock, Thread
from typing import final

from transduce.config import TransduceError
from transduce.inference.queue import RequestQueue
from transduce.search import Outcome, Request

Serve = Callable[[RequestQueue, Callable[[Request, Outcome], object]], None]


@final
class Cancellation:
    """Withdraws a call from another thread: what it searches for is dropped after the rounds that it is in."""

    def __init__(self) -> None:
        self._requests: list[Request] = []
        self._cancelled, self._lock = False, Lock()

    def watch(self, requests: Iterable[Request]) -> None:
        """Withdraw these, too: at once, where it has been called already."""
        with self._lock:
            self._requests += requests
            if self._cancelled:
                self._withdraw()

    def check(self) -> None:
        """See that it has not been called.

        Raises:
            TransduceError: It has.
        """
        if self._cancelled:
            raise TransduceError("the request was cancelled")

    def cancel(self) -> None:
        """Withdraw what the call has asked for, and what it will."""
        with self._lock:
            self._cancelled = True
            self._withdraw()

    def _withdraw(self) -> None:
        for request in self._requests:
            request.cancelled = True


@final
class RunningSearch:
    """Searches for what several threads ask for, in threads of its own, until it is closed.

    ``serve`` is ``Engine.serve``. Where it fails, so does every call that waits, and every later one.
    """

    def __init__(self, queue: RequestQueue, serve: Serve) -> None:
        self._queue, self._serve, self._process = queue, serve, os.getpid()
        self._calls: dict[Request, _Call] = {}
        self._error: BaseException | None = None
        self._lock = Lock()
        self._thread = Thread(target=self._run, name="running search", daemon=True)
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """Whether this process has its threads: the child of a fork has none of them."""
        return self._process == os.getpid()

    def search(self, requests: Sequence[Request]) -> list[Outcome] | None:
        """The outcome of each request, in their order; None once it is closed, which another thread may do.

        Raises:
            TransduceError: The search has failed.
        """
        if not requests:
            return []
        call = _Call(len(requests))
        with self._lock:
            if self._error is None:
                self._calls |= dict.fromkeys(requests, call)
        try:
            self._queue.put(requests)
        except RuntimeError:  # closed
            with self._lock:
                for request in requests:
                    self._calls.pop(request, None)
            if self._error is None:
                return None
            raise TransduceError(f"the search has ended: {self._error}") from self._error
        call.done.wait()
        if len(call.found) < len(requests):
            raise TransduceError(f"the search has failed: {self._error}") from self._error
        return [call.found[request] for request in requests]

    def close(self) -> None:
        """Finish what waits, and end; in the child of a fork there is nothing to end."""
        if self.is_here:
            self._queue.close()
            self._thread.join()

    def wait(self) -> BaseException | None:
        """Wait until the search ends, and say why where it has failed."""
        self._thread.join()
        return self._error

    def _run(self) -> None:
        try:
            self._serve(self._queue, self._finish)
        except BaseException as error:  # whatever it is: nobody may wait for ever
            with self._lock:
                self._error = error
                waiting, self._calls = set(self._calls.values()), {}
            for call in waiting:
                call.done.set()

    def _finish(self, request: Request, outcome: Outcome) -> None:
        with self._lock:
            call = self._calls.pop(request, None)  # none, where another search has failed meanwhile
        if call is not None and call.add(request, outcome):
            call.done.set()


@final
class _Call:
    """What a thread waits for; its requests may end in several threads at once."""

    def __init__(self, requests: int) -> None:
        self.done, self.found = Event(), dict[Request, Outcome]()
        self._open, self._lock = requests, Lock()

    def add(self, request: Request, outcome: Outcome) -> bool:
        """Whether this was the last one."""
        with self._lock:
            self.found[request] = outcome
            self._open -= 1
            return self._open == 0
