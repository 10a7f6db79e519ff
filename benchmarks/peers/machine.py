"""What a figure was measured on."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import torch

from transduce.kernels import has_native

_CPU: Final = Path("/proc/cpuinfo")
# What a processor may multiply bfloat16 with, as Linux calls it.
_UNITS: Final = ("amx_bf16", "avx512_bf16", "sve_bf16", "bf16")


def describe_machine(device: torch.device) -> str:
    """The device that computes; of a processor also its cores, and whether it multiplies bfloat16 by itself."""
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}"
    facts: dict[str, str] = {}
    for line in _CPU.read_text(encoding="utf-8").splitlines() if _CPU.is_file() else ():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    name = facts.get("model name") or platform.processor() or platform.machine()
    flags = (facts.get("flags") or facts.get("Features") or "").split()
    units = [unit for unit in _UNITS if unit in flags]
    return f"{name}, {os.cpu_count()} cores, {' '.join(units) or 'no bfloat16 units'}"


def describe_versions(device: torch.device) -> str:
    """Of what computes, and whether our C++ kernels do."""
    kernels = "with the C++ kernels" if has_native(torch.zeros(1, device=device)) else "without the C++ kernels"
    return f"torch {torch.__version__}, transformers {_find('transformers')}, transduce {_find('transduce')} {kernels}"


def _find(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed" if package != "transduce" else "from its sources"
