"""From the processor's memory to a device's."""

import torch
from jaxtyping import Shaped
from torch import Tensor


def send(x: Shaped[Tensor, "*shape"], device: torch.device) -> Shaped[Tensor, "*shape"]:
    """``x``, which lies in the processor's memory, on a device.

    A CUDA device fetches it by itself, in turn with its other work: only pages that the system cannot move allow that,
    and from others a copy waits until the device has done all it was given.
    """
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x.to(device)
