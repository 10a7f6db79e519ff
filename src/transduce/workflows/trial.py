"""A few training steps, to see how fast they are and what memory they take before a training begins."""

import gc
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import numpy as np
import torch

from transduce.config import ModelConfig, TrainConfig
from transduce.data import Batch
from transduce.kernels import is_out_of_memory, resolve_precision
from transduce.models import TrainableModel, build
from transduce.training import make_optimizer, put_back, train_step

_RATE: Final = 1e-6  # any that lets the weights stay finite
_STEPS: Final = 3
_PRODUCTS: Final = 20
_FEWEST_PRODUCTS: Final = 3
_PRODUCTS_SECONDS: Final = 0.5  # one in bfloat16 takes a fifth of a second where nothing is made for it
# Below this gain another number of threads, or another batch size, is no advice.
_GAIN: Final = 1.1
# Steps that take longer than this are not tried with twice the tokens.
_PATIENCE_SECONDS: Final = 5.0


@final
@dataclass(frozen=True)
class Trial:
    """What steps of a training were like: target tokens a second by number of threads, and bytes at the peak."""

    speeds: dict[int, float]
    memory: int

    @property
    def now(self) -> int:
        """The number of threads that a training would run with."""
        return next(iter(self.speeds))

    @property
    def best(self) -> int:
        """That which is worth asking for."""
        return worth_asking_for(self.speeds, self.now)


def worth_asking_for(speeds: Mapping[int, float], now: int) -> int:
    """The fastest way of several, where its gain is worth a change of what is used now."""
    best = max(speeds, key=lambda way: speeds[way])
    return best if speeds[best] > _GAIN * speeds[now] else now


class OutOfMemoryError(Exception):
    """A step needs more memory than there is."""


def try_training(
    model: ModelConfig,
    config: TrainConfig,
    batches: Sequence[Batch],
    device: torch.device,
    *,
    other_threads: bool = True,
) -> Trial:
    """Take a few steps on each of these batches; the first number of threads is torch's own, as it is again at the end.

    Raises:
        OutOfMemoryError: The memory of the device is too small for one of them.
    """
    with put_back(device):
        return _try_training(model, config, batches, device, other_threads)


def _try_training(
    model: ModelConfig, config: TrainConfig, batches: Sequence[Batch], device: torch.device, other_threads: bool
) -> Trial:
    network = build(model).to(device)
    optimizer, dtype = make_optimizer(network, config), resolve_precision(config.precision, device)
    before = _held(device)
    speeds = {}
    threads = torch.get_num_threads()
    try:
        for number in _numbers_of_threads(threads, device) if other_threads else [threads]:
            torch.set_num_threads(number)
            speeds[number] = _measure(network, optimizer, batches, dtype)
        return Trial(speeds, max(0, _peak(device) - before) + 4 * sum(x.numel() for x in network.parameters()))
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            raise OutOfMemoryError(str(error)) from error
        raise
    finally:
        torch.set_num_threads(threads)
        del network, optimizer
        gc.collect()


def try_batch_sizes(
    model: ModelConfig, config: TrainConfig, length: int, device: torch.device, speed: float
) -> dict[int, float]:
    """Target tokens a second by ``batch_tokens``: what is set, of which the speed is known, a half and twice of it.

    ``length`` is the sequences'. What is too large for memory, or would take long to try, is left out.
    """
    now, speeds = config.batch_tokens, {config.batch_tokens: speed}
    larger = [2 * now] if now / speed < _PATIENCE_SECONDS else []
    for tokens in [size for size in (now // 2, *larger) if size >= length]:
        try:
            trial = try_training(model, config, [full_batch(model, tokens, length)], device, other_threads=False)
        except OutOfMemoryError:
            continue
        speeds[tokens] = trial.speeds[trial.now]
    return speeds


def bfloat16_gain(device: torch.device) -> float:
    """How many times as fast as float32 PyTorch multiplies bfloat16: the fastest of many products, or few slow ones."""
    squares = [torch.ones(512, 512, dtype=dtype, device=device) for dtype in (torch.float32, torch.bfloat16)]
    fastest, begin = [math.inf, math.inf], time.perf_counter()
    for count in range(_PRODUCTS):
        if count >= _FEWEST_PRODUCTS and time.perf_counter() - begin > _PRODUCTS_SECONDS:
            break
        for number, square in enumerate(squares):
            start = time.perf_counter()
            (square @ square)[0, 0].item()  # waits for the device
            fastest[number] = min(fastest[number], time.perf_counter() - start)
    return fastest[0] / fastest[1]


def _measure(
    network: TrainableModel, optimizer: torch.optim.Adam, batches: Sequence[Batch], dtype: torch.dtype
) -> float:
    """Target tokens a second, after one round that warms up."""
    start = time.perf_counter()
    for step in range(_STEPS):
        if step == 1:
            start = time.perf_counter()
        for batch in batches:
            taken = train_step(network, optimizer, [batch], _RATE, dtype)
        taken.gradient_norm.item()  # waits for the device
    return (_STEPS - 1) * sum(batch.target_tokens for batch in batches) / (time.perf_counter() - start)


def _numbers_of_threads(own: int, device: torch.device) -> list[int]:
    """Torch's own, and with a CPU all cores that the process may use, and half of them, too."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    others = [cores, max(1, cores // 2)] if device.type == "cpu" else []
    return list(dict.fromkeys([own, *others]))


def _held(device: torch.device) -> int:
    """Bytes that are in use, from where the peak is counted."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_allocated(device)
    return _status("VmRSS")


def _peak(device: torch.device) -> int:
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else _status("VmHWM")


def _status(field: str) -> int:
    """A figure of this process, as Linux tells it; 0 where it does not."""
    path = Path("/proc/self/status")
    lines = path.read_text(encoding="ascii").splitlines() if path.is_file() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:")), 0)


def full_batch(model: ModelConfig, batch_tokens: int, length: int) -> Batch:
    """A batch of as many random pairs of ``length`` symbols a side as the budget has room for."""
    random, pairs = np.random.default_rng(1), max(1, batch_tokens // length)
    sizes = model.source_vocab_size or model.vocab_size, model.vocab_size
    source, target = (random.integers(0, size, (pairs, length)) for size in sizes)
    lengths = np.full(pairs, length)
    return Batch(source, lengths, target, np.roll(target, -1, axis=1), lengths)
