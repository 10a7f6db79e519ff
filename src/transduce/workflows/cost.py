"""What a training costs, in floating-point operations: by the paper's method, and counted."""

import math
import time
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

import torch

from transduce.config import BadInputError, ModelConfig, TransformerConfig
from transduce.training import Progress
from transduce.workflows.flops import count_training

# TFLOPS that the paper takes a device to sustain in single precision (the footnote of section 6.1).
SUSTAINED_TFLOPS: Final[Mapping[str, float]] = MappingProxyType({"K80": 2.8, "K40": 3.7, "M40": 6.0, "P100": 9.5})

# Wide enough to keep the device busy, and done in milliseconds.
_WIDTH: Final = {"cpu": 512, "cuda": 4096}
_MEASURING: Final = 0.2  # seconds


def sustained_cost(seconds: float, devices: int, rate: float) -> float:
    """Floating-point operations by the paper's method (section 6.1): time x devices x sustained rate of each.

    ``rate`` is in operations a second. This says what the devices could have done, not what the training did.
    """
    return seconds * devices * rate


def cost_of_time(
    hours: float | None, devices: int | None = None, device: str | None = None, tflops: float | None = None
) -> dict[str, Any]:
    """``sustained_cost`` of ``devices`` of the paper's (or of a rate of one's own), as ``inspect`` shows it.

    Nothing where nothing is given.

    Raises:
        BadInputError: Something is missing, given twice, or no positive number.
    """
    if hours is None:
        if (devices, device, tflops) != (None, None, None):
            raise BadInputError("--devices, --device and --rate are of a training's time: give --hours H too")
        return {}
    rate = SUSTAINED_TFLOPS[device] if device else tflops
    if rate is None or (device and tflops is not None):
        raise BadInputError(f"--hours goes with one of --device {'|'.join(SUSTAINED_TFLOPS)} and --rate TFLOPS")
    for option, value in (("--hours", hours), ("--rate", rate)):
        if not (value > 0 and math.isfinite(value)):
            raise BadInputError(f"{option} {value}: give a positive number")
    devices = devices or 1
    flops = sustained_cost(3600 * hours, devices, 1e12 * rate)
    return {"hours": hours, "devices": devices, "tflops_each": rate, "flops_by_time": flops}


def cost_of_tokens(flops: Mapping[str, Any], target_tokens: int) -> dict[str, Any]:
    """The counted operations of training on so many target tokens, in pairs like that of ``inspect_model``'s FLOPs."""
    pairs = target_tokens / flops["target_tokens"]
    return {"target_tokens": target_tokens, "flops_counted": pairs * flops["forward_and_backward"]}


def describe_cost(
    config: ModelConfig,
    progress: Progress,
    dtype: torch.dtype,
    device: torch.device,
    devices: int = 1,
    *,
    by_score: bool = False,
) -> list[str]:
    """What a training cost, for people: counted, and by the paper's method with the rate of this device.

    ``by_score``, it learned from outputs: these are counted, and what drawing and scoring them took is not.
    """
    work, rate = progress.work, measure_rate(dtype, device)
    counted, spent = count_training(config, work), sustained_cost(progress.seconds, devices, rate)
    # A training that an older version began was not counted from its beginning.
    since = f" since step {progress.step - work.steps:,}" if work.steps < progress.step else ""
    # Restricted attention compares other pairs of positions than the count has.
    about = "about " if isinstance(config, TransformerConfig) and config.attention_window else ""
    return [
        f"training cost, counted{since}: {about}{counted:.3g} FLOPs, forward and backward, for {work.source:,} source "
        f"and {work.target:,} target tokens, padding left out"
        f"{', and what it took to draw and to score the outputs that were learned from' if by_score else ''}",
        f"training cost, by the paper's method: {spent:.3g} FLOPs, {progress.seconds:,.1f} s x {devices} device"
        f"{'' if devices == 1 else 's'} x "
        f"{rate / 1e12:.3g} TFLOPS measured here in {str(dtype).removeprefix('torch.')}",
    ]


@lru_cache
def measure_rate(dtype: torch.dtype, device: torch.device) -> float:
    """Operations a second that a device sustains for a moment in square matrix products; measured once a process."""
    width = _WIDTH.get(device.type, _WIDTH["cuda"])
    left, right = (torch.randn(width, width, device=device).to(dtype) for _ in range(2))
    _multiply(left, right)  # the first one prepares, too
    products, seconds, start = 0, 0.0, time.perf_counter()
    while seconds < _MEASURING:
        _multiply(left, right)
        products, seconds = products + 1, time.perf_counter() - start
    return products * 2 * width**3 / seconds


def _multiply(left: torch.Tensor, right: torch.Tensor) -> None:
    """Return only when the product is there."""
    torch.mm(left, right)
    if left.is_cuda:
        torch.cuda.synchronize(left.device)
