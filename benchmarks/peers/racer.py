"""A contestant in a process of its own, as anybody's training is: no other's threads, sizes and memory are in it."""

import multiprocessing
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle, islice
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Final, Self, final

import torch

from benchmarks.peers.ceiling import make_products
from benchmarks.peers.contestant import RATE, Contestant, find_step, make_contestants
from transduce.config import ModelConfig
from transduce.data import Batch
from transduce.models import build
from transduce.training import give_back_memory, keep_freed_memory

# A process that has read the libraries becomes all the others.
_START: Final = multiprocessing.get_context("forkserver")
_START.set_forkserver_preload(["benchmarks.peers.racer", "transformers.models.marian.modeling_marian"])


@final
class Racer:
    """A child that trains when it is told to; in between it takes no processor time, and little memory."""

    def __init__(self, contestant: Contestant, config: ModelConfig) -> None:
        self.contestant = contestant
        self._end, there = _START.Pipe()
        self._child = _START.Process(target=_work, args=(there, contestant, config), daemon=True)
        self._child.start()
        there.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.close()  # which the child sees, and ends
        self._child.join()

    def wait(self) -> None:
        """Until the model is there: a child that still builds one would slow down whoever runs."""
        self._receive()

    def train(self, batches: Sequence[Batch], threads: int, warm_up: int) -> float:
        """Seconds of a step on each batch, after so many on the same, or one on each, that nobody measures.

        In those a library makes its kernels for sizes that are new to it, and the heap is filled anew: of tiny's steps
        the first takes 442 ms, the fifth 306, and those behind the eighth 280.
        """
        self._end.send((batches, threads, warm_up))
        return self._receive()

    def _receive(self) -> float:
        try:
            seconds: float = self._end.recv()
        except EOFError:
            raise RuntimeError(f"the process of {self.contestant} has ended: its error stands above") from None
        return seconds


def _work(end: Connection, contestant: Contestant, config: ModelConfig) -> None:
    keep_freed_memory()  # of which all have something
    prepare = _prepare(contestant, config)
    end.send(0.0)
    while True:
        try:
            batches, threads, warm_up = end.recv()
        except EOFError:
            return
        torch.set_num_threads(threads)
        runs = [prepare(batch) for batch in batches]
        _time(list(islice(cycle(runs), max(warm_up, len(runs)))))
        end.send(_time(runs))
        del runs
        give_back_memory()


def _prepare(contestant: Contestant, config: ModelConfig) -> Callable[[Batch], Callable[[], object]]:
    """What makes a batch a training step on it, or that step's products."""
    if contestant.family == "products":
        torch.manual_seed(1)
        return partial(make_products, next(make_contestants(build(config)))[1])
    step = find_step(contestant, config, torch.device("cpu"))
    return lambda batch: partial(step, batch, RATE)


def _time(runs: Sequence[Callable[[], object]]) -> float:
    start = time.perf_counter()
    for run in runs:
        run()
    return time.perf_counter() - start
