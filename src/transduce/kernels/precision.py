"""Which number format is used where none was named: a table over what processors can do, measured beforehand.

The same model on the same machine always gets the same format, and so writes the same outputs. The figures are in
docs/performance.md; ``python -m benchmarks.format_speed`` measures them anew.
"""

from typing import Final

import torch

from transduce.config import BadInputError, Precision, TrainingPrecision
from transduce.kernels.native import (
    has_low_precision_products,
    has_matrix_units,
    has_native,
    has_products_of_bytes,
)
from transduce.kernels.products import Format

# Of a model in the C++ kernels, by what they find in the processor: the most precise format that no less precise one
# beats by a quarter, in a batch or for one sentence, without losing a tenth in the other case.
NATIVE: Final[dict[str, Format]] = {
    "AVX2": "int8",
    "AVX2 with VNNI": "int8",
    "AVX512": "int8",
    "AVX512 with VNNI and BF16": "int8",
    "AVX512 with VNNI, BF16 and AMX": "int8",
}
# With any of these, PyTorch's operations multiply bfloat16 twice as fast as float32 and more; elsewhere they emulate
# it, several times slower. ARM's abilities were not measured: float32 is never a mistake there.
MULTIPLY_BFLOAT16: Final = ("avx512_bf16", "amx_bf16")
# From this compute capability on, tensor cores multiply bfloat16 (Ampere).
CUDA_BFLOAT16: Final = (8, 0)


def resolve_format(precision: Precision, *, native: bool, device: torch.device) -> Format:
    """The format that a setting means for a model that runs on a device, in the C++ kernels or in PyTorch's operations.

    ``auto`` follows from what the processor can do: int8 only where its C++ kernel is fast.

    Raises:
        BadInputError: int8, whose kernels are for CPUs, is asked for on another device.
    """
    if precision == "int8" and device.type != "cpu":
        raise BadInputError(
            f"precision int8 is for CPUs, and the model is to run on {device}: take bfloat16 or float32, or the CPU "
            f"(--device cpu)"
        )
    if precision != "auto":
        return precision
    if native:
        return NATIVE.get(kernels_of_processor(), "float32") if has_native(torch.empty(0)) else "float32"
    return "bfloat16" if resolve_precision("auto", device) == torch.bfloat16 else "float32"


def kernels_of_processor() -> str:
    """Which of the C++ kernels this processor runs, where they are built, as the table names them."""
    if has_matrix_units():
        return "AVX512 with VNNI, BF16 and AMX"
    if has_low_precision_products():
        return "AVX512 with VNNI and BF16"
    return "AVX2 with VNNI" if has_products_of_bytes() else torch.backends.cpu.get_cpu_capability()


def resolve_precision(precision: TrainingPrecision, device: torch.device) -> torch.dtype:
    """The format that a setting means on a device: ``auto`` is bfloat16 where the hardware multiplies it fast."""
    match precision:
        case "float32":
            return torch.float32
        case "bfloat16":
            return torch.bfloat16
        case "auto":
            return torch.bfloat16 if _multiplies_bfloat16_fast(device) else torch.float32


def _multiplies_bfloat16_fast(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= CUDA_BFLOAT16
    abilities = torch.cpu.get_capabilities()
    return any(abilities.get(each) for each in MULTIPLY_BFLOAT16)
