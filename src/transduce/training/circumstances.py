"""What a sum's last bits depend on beside its terms: where it changes, a training goes on, but not bit for bit."""

import torch

from transduce.config import Parallel
from transduce.kernels import has_native
from transduce.training.processes import ALONE, Processes


def circumstances(device: torch.device, processes: Processes = ALONE, parallel: Parallel = "data") -> dict[str, str]:
    """Of this process and its companions, by name."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else torch.backends.cpu.get_cpu_capability()
    return {
        "torch": torch.__version__,
        "device": f"{device.type} {name}",
        "threads": str(torch.get_num_threads()),
        "processes": "1" if processes.alone else f"{processes.number} ({parallel})",
        "kernels": "C++" if has_native(torch.empty(1, device=device)) else "PyTorch",
    }
