"""What a training sets of the process that it runs in, and what of it decides the last bits of a sum."""

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from transduce.config import Parallel
from transduce.kernels import has_native
from transduce.training.processes import ALONE, Processes


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


def seed_generator(seed: int, device: torch.device) -> None:
    """Let what torch draws on a device from here on follow from a seed.

    ``torch.manual_seed`` does it for all devices, and where there are none it writes down its callers for each kind of
    them, which takes as long as a small layer.
    """
    if device.type == "cuda":
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


def circumstances(device: torch.device, processes: Processes = ALONE, parallel: Parallel = "data") -> dict[str, str]:
    """What a sum's last bits depend on beside its terms: where it changes, a training goes on, but not bit for bit."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else torch.backends.cpu.get_cpu_capability()
    return {
        "torch": torch.__version__,
        "device": f"{device.type} {name}",
        "threads": str(torch.get_num_threads()),
        "processes": "1" if processes.alone else f"{processes.number} ({parallel})",
        "kernels": "C++" if has_native(torch.empty(1, device=device)) else "PyTorch",
    }
