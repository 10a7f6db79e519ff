"""A contestant in a process of its own, as anybody's training is: no other's threads, sizes and memory are in it."""

import multiprocessing
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle, islice
from multiprocessing.connection import Connection
from typing import Final

import torch

from benchmarks.peers.ceiling import make_products
from benchmarks.peers.contestant import RATE, Contestant, find_step, make_contestants
from transduce.config import TransformerConfig
from transduce.data import Batch
from transduce.kernels import keep_freed_memory
from transduce.models import Transformer

# A process that has read the libraries becomes all the others.
_START: Final = multiprocessing.get_context("forkserver")
_START.set_forkserver_preload(["benchmarks.peers.racer", "transformers.models.marian.modeling_marian"])


def run_turn(
    contestant: Contestant, config: TransformerConfig, batches: Sequence[Batch], threads: int, warm_up: int
) -> float:
    """Seconds of a step on each batch, after so many on the same, or one on each, that nobody measures.

    In those a library makes its kernels for sizes that are new to it, and the heap is filled. The process ends with its
    turn: one that waited for the next, and gave back its memory meanwhile, had steps a fifth slower from then on.

    Raises:
        RuntimeError: The process ended before its turn did.
    """
    end, there = _START.Pipe(duplex=False)
    child = _START.Process(target=_work, args=(there, contestant, config, batches, threads, warm_up), daemon=True)
    child.start()
    there.close()
    try:
        seconds: float = end.recv()
    except EOFError:
        raise RuntimeError(f"the process of {contestant} has ended: its error stands above") from None
    finally:
        child.join()
    return seconds


def _work(
    end: Connection,
    contestant: Contestant,
    config: TransformerConfig,
    batches: Sequence[Batch],
    threads: int,
    warm_up: int,
) -> None:
    keep_freed_memory()  # of which all have something
    torch.set_num_threads(threads)
    prepare = _prepare(contestant, config)
    runs = [prepare(batch) for batch in batches]
    _time(list(islice(cycle(runs), max(warm_up, len(runs)))))
    end.send(_time(runs))


def _prepare(contestant: Contestant, config: TransformerConfig) -> Callable[[Batch], Callable[[], object]]:
    """What makes a batch a training step on it, or that step's products."""
    if contestant.family == "products":
        torch.manual_seed(1)
        return partial(make_products, next(make_contestants(Transformer(config)))[1])
    step = find_step(contestant, config, torch.device("cpu"))
    return lambda batch: partial(step, batch, RATE)


def _time(runs: Sequence[Callable[[], object]]) -> float:
    start = time.perf_counter()
    for run in runs:
        run()
    return time.perf_counter() - start
