"""Attention over a ragged batch, by the kernels that PyTorch has for it on CUDA devices."""

from functools import lru_cache
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

from transduce.kernels.ragged import RaggedLayout

_HALF: Final = (torch.bfloat16, torch.float16)
_WIDEST: Final = 256  # head that the kernels know
_OLDEST: Final = (8, 0)  # compute capability that they run on


def has_varlen(x: Tensor, width: int) -> bool:
    """Whether there are such kernels for tensors like this one, and heads so wide: half precision, a multiple of 8."""
    if x.device.type != "cuda" or x.dtype not in _HALF:
        return False
    return width % 8 == 0 and width <= _WIDEST and _runs_on(x.device)


def attend_varlen(
    query: Float[Tensor, "tokens heads width"],
    key: Float[Tensor, "memory_tokens heads width"],
    value: Float[Tensor, "memory_tokens heads width"],
    queries: RaggedLayout,
    keys: RaggedLayout,
    scale: float,
    *,
    causal: bool,
) -> Float[Tensor, "tokens heads width"]:
    """softmax(scale Q K^T) V of each sequence and head on its own; the weights are never held (Dao 2023).

    The kernels know no dropout of the weights.
    """
    # Loading it takes a moment, which those without such a device need not wait for.
    from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415

    window = (-1, 0) if causal else (-1, -1)  # so far back and ahead; -1: without limit
    ends = queries.boundaries, keys.boundaries
    result = varlen_attn(query, key, value, *ends, queries.longest, keys.longest, scale=scale, window_size=window)
    assert isinstance(result, Tensor)  # a pair only where more is asked for
    return result


@lru_cache
def _runs_on(device: torch.device) -> bool:
    built = torch.backends.cuda.is_flash_attention_available()
    return built and torch.cuda.get_device_capability(device) >= _OLDEST
