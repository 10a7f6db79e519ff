"""Several element-wise operations as one pass over a CUDA device's memory, by torch.compile."""

import os
from collections.abc import Callable
from functools import lru_cache
from typing import ParamSpec, TypeVar, cast

import torch

P = ParamSpec("P")
R = TypeVar("R")


def in_one_pass(function: Callable[P, R], device: torch.device) -> Callable[P, R]:
    """``function``, compiled for tensors of any size where TRANSDUCE_COMPILE=1 asks for it and the device is CUDA.

    Not by itself: the first calls take a minute, which only a long training gets back.
    """
    wanted = device.type == "cuda" and os.environ.get("TRANSDUCE_COMPILE") == "1"
    return cast(Callable[P, R], compiled(function)) if wanted else function


@lru_cache
def compiled(function: Callable[..., object]) -> Callable[..., object]:
    """``function``, compiled once for all sizes."""
    return torch.compile(function, dynamic=True)
