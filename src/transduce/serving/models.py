"""All models of a server: which pair of languages is whose, and which of them are loaded."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import final

from transduce.serving.admission import Admission
from transduce.serving.process import ModelProcess
from transduce.serving.refusal import BadRequest, Failed, Unavailable
from transduce.serving.settings import ServedModel, ServeSettings

_SOON = 5  # seconds until a model that others keep out of memory may be loaded
_log = logging.getLogger("transduce.serving")


@final
class Models:
    """The models' processes and the queues in front of them.

    With a budget of memory, a model that is needed sends away those that have no work, the one that was not used for
    the longest time first.
    """

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings
        self._processes = {each.name: ModelProcess(each, settings) for each in settings.models}
        limits = settings.limits
        self._admissions = {name: Admission(limits.waiting, limits.wait) for name in self._processes}
        # Those that are loaded, the one used last at the end.
        self._used: dict[str, None] = {}
        self._loads: dict[str, asyncio.Task[None]] = {}
        self._loading = asyncio.Lock()  # one at a time: each takes memory from what is left

    @property
    def served(self) -> tuple[ServedModel, ...]:
        """The models, in the order in which they were given."""
        return self._settings.models

    @property
    def sources(self) -> Sequence[str]:
        """The codes of all languages that something can be translated from."""
        return list(dict.fromkeys(each.source for each in self.served))

    @property
    def processes(self) -> Sequence[ModelProcess]:
        """Their processes, loaded or not."""
        return list(self._processes.values())

    def targets(self, source: str) -> Sequence[str]:
        """The codes of the languages that a source's can be translated into."""
        return [each.target for each in self.served if each.source == source]

    def sources_of(self, target: str) -> Sequence[str]:
        """The codes of the languages that can be translated into a target.

        Raises:
            BadRequest: There is none.
        """
        found = [each.source for each in self.served if _plain(each.target) == _plain(target)]
        if not found:
            raise BadRequest(f"{target} is not supported; these are: {', '.join(each.name for each in self.served)}")
        return found

    def find(self, source: str, target: str) -> ServedModel:
        """The model for two codes; case does not count, and ``-`` is as good as ``_``.

        Raises:
            BadRequest: There is none; it says what there is.
        """
        asked = _plain(source), _plain(target)
        for model in self.served:
            if (_plain(model.source), _plain(model.target)) == asked:
                return model
        pairs = ", ".join(each.name for each in self.served)
        raise BadRequest(f"{source} to {target} is not supported; these are: {pairs}")

    def admission(self, model: ServedModel) -> Admission:
        """The queue in front of a model."""
        return self._admissions[model.name]

    @asynccontextmanager
    async def use(self, model: ServedModel) -> AsyncIterator[ModelProcess]:
        """A model's process, loaded first where it is not; it stays loaded meanwhile.

        Raises:
            Unavailable: It is being started again, or memory is taken by others that are at work.
            Failed: It cannot be loaded.
        """
        process = self._processes[model.name]
        while model.name not in self._used:
            if model.name not in self._loads:
                self._loads[model.name] = asyncio.create_task(self._load(process))
            # Whoever does not wait for it to its end leaves it to the next one.
            await asyncio.shield(self._loads[model.name])
        del self._used[model.name]
        self._used[model.name] = None
        yield process

    async def start(self) -> None:
        """Load all models, unless they are to be loaded when they are asked for.

        Raises:
            Failed: One cannot be loaded.
        """
        if not self._settings.lazy:
            for process in self.processes:
                await self._load(process)

    async def stop(self) -> None:
        """End all processes."""
        await asyncio.gather(*(each.stop() for each in self.processes))

    async def _load(self, process: ModelProcess) -> None:
        name = process.model.name
        try:
            async with self._loading:
                await self._make_room(process)
                _log.info(f"loading {name} from {process.model.path}")
                await process.start()
                self._admissions[name].forget()
                self._used[name] = None
        finally:
            self._loads.pop(name, None)

    async def _make_room(self, process: ModelProcess) -> None:
        budget = self._settings.memory
        if budget is None:
            return
        # What a model needs is known once it was loaded; before, it is as large as the largest one so far.
        if process.memory > budget:
            raise Failed(f"{process.model.name} needs {process.memory:,} bytes, and --memory allows {budget:,}")
        needed = process.memory or min(budget, max(each.memory for each in self.processes))
        for name in list(self._used):
            if sum(self._processes[each].memory for each in self._used) + needed <= budget:
                return
            if not self._processes[name].under_way and not self._admissions[name].requests:
                del self._used[name]
                await self._processes[name].stop()
        if sum(self._processes[each].memory for each in self._used) + needed > budget:
            raise Unavailable(f"there is no memory for {process.model.name} while others are at work", _SOON)


def _plain(code: str) -> str:
    return code.lower().replace("-", "_")
