"""What a training sets of the process that it runs in, and puts back at its end."""

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch


@contextmanager
def put_back(device: torch.device, *, with_warnings: bool = False) -> Iterator[None]:
    """What torch's generators would draw next is the same behind this as before, whatever is seeded and drawn within.

    ``with_warnings`` does the same for the filters of warnings, and so undoes what other threads change meanwhile.
    """
    # torch.manual_seed reaches every device; to look at its generator costs no memory there.
    devices = range(torch.cuda.device_count()) if device.type == "cuda" else ()
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices))
        if with_warnings:
            stack.enter_context(warnings.catch_warnings())
        yield
