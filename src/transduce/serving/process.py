"""A model's process, as the server sees it: started, called, started again where it has died."""

import asyncio
import itertools
import json
import logging
import sys
from typing import Any, Final, final

from transduce.serving import frames
from transduce.serving.refusal import BadRequest, Failed, Unavailable
from transduce.serving.settings import ServedModel, ServeSettings

# Before a process that died at once is started again, in seconds; twice as long each time.
_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 30.0
# What a call is told to wait while a model is loaded, in seconds.
_SOON: Final = 2
# For a process to end by itself, in seconds.
_PATIENCE: Final = 5
_log = logging.getLogger("transduce.serving")


@final
class ModelProcess:
    """One model in a process of its own, so that nothing that befalls it reaches the server.

    ``start`` returns when it is loaded. A process that dies is started again, and what it worked on is refused as
    unavailable.
    """

    def __init__(self, model: ServedModel, settings: ServeSettings) -> None:
        self.model = model
        self.memory = 0  # in bytes, at its most while loading
        self.restarts = 0
        self._arguments = {
            "path": str(model.path),
            "precision": settings.precision,
            "device": settings.device,
            "threads": settings.threads,
            "shortlist": settings.shortlist,
            "cache": settings.cache,
        }
        self._process: asyncio.subprocess.Process | None = None
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._unsent: list[bytes] = []
        self._numbers = itertools.count()
        self._ready = asyncio.Event()
        self._supervisor: asyncio.Task[None] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether a call would be worked on at once."""
        return self._ready.is_set()

    @property
    def under_way(self) -> int:
        """Calls that are not answered yet."""
        return len(self._calls)

    async def start(self) -> None:
        """Load the model.

        Raises:
            Failed: It cannot be loaded; the message says why.
        """
        await self._launch()
        self._supervisor = asyncio.create_task(self._supervise())

    async def call(self, name: str, **arguments: Any) -> Any:  # noqa: ANN401 - whatever JSON can hold
        """What the model's process answers. Where the caller is cancelled, so is the call.

        Raises:
            Unavailable: The process is being started, or has died over it.
            BadRequest: The model refuses what is asked.
            Failed: It has failed on it.
        """
        if not self.is_ready or self._process is None or self._process.stdin is None:
            raise Unavailable(f"{self.model.name} is being loaded", _SOON)
        number = next(self._numbers)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls[number] = answer
        try:
            self._send({"id": number, "call": name, **arguments})
            return await answer
        except asyncio.CancelledError:
            self._send({"cancel": number})
            raise
        finally:
            self._calls.pop(number, None)

    async def stop(self) -> None:
        """End the process; it has no work left, or loses it."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            self._supervisor = None
        self._ready.clear()
        self._drop_calls()
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), _PATIENCE)
        except TimeoutError:
            process.kill()
            await process.wait()

    def _send(self, message: frames.Message) -> None:
        # What one turn of the event loop sends goes in one piece: each write wakes the process.
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unsent.append(frames.pack(message))

    def _flush(self) -> None:
        data, self._unsent = b"".join(self._unsent), []
        if self._process is not None and self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(data)

    async def _launch(self) -> None:
        self._process = process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "transduce.serving.worker", json.dumps(self._arguments)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # The server's own interrupt is not theirs. A session of its own would say that too, but some systems share
            # the processor out by sessions: beside a flood of refused requests, the model then got nothing of it.
            process_group=0,
        )
        assert process.stdout is not None
        hello = await frames.receive(process.stdout)
        if hello is None or "error" in hello:
            await process.wait()
            reason = "its process died while it was loaded" if hello is None else hello["error"]
            raise Failed(f"{self.model.name} ({self.model.path}): {reason}")
        self.memory = hello["memory"]
        self._ready.set()

    async def _supervise(self) -> None:
        pause = _PAUSE
        while True:
            if self._ready.is_set():
                pause = _PAUSE
                await self._read()
                self._ready.clear()
                self._drop_calls()
                _log.error(f"{self.model.name}: its process has died, and is started again")
                self.restarts += 1
            try:
                await self._launch()
            except (Failed, OSError) as error:
                _log.error(f"{error}: tried again in {pause:g} s")
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _read(self) -> None:
        """Hand answers to those who wait, until the process ends."""
        process = self._process
        assert process is not None and process.stdout is not None
        while (message := await frames.receive(process.stdout)) is not None:
            answer = self._calls.get(message["id"])
            if answer is None or answer.done():
                continue
            if "error" not in message:
                answer.set_result(message["answer"])
            elif message["kind"] == "input":
                answer.set_exception(BadRequest(message["error"]))
            else:
                answer.set_exception(Failed(message["error"]))
        await process.wait()

    def _drop_calls(self) -> None:
        for answer in self._calls.values():
            if not answer.done():
                answer.set_exception(Unavailable(f"{self.model.name} has stopped, and is started again", _SOON))
