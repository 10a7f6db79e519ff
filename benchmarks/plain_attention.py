"""The plain formula of attention beside PyTorch's scaled_dot_product_attention, where the first is what is used.

    python -m benchmarks.plain_attention [--rounds N]

Padded batches: training's (forward and backward) and decoding's, on CPUs, where the C++ kernels do not compute it: they
are not installed, or sequences are longer than 128 symbols. Rows have from half of the columns to all of them. Writes
benchmarks/results/plain_attention.md and its part of docs/notebook/attention.md. Two minutes on a quiet machine.
"""

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.page import circumstances, insert, table
from benchmarks.rounds import alternate
from transduce.kernels import Mask
from transduce.kernels.scores import PRODUCT, attend_plainly

RESULT: Final = Path(__file__).parent / "results" / "plain_attention.md"
HEADS, WIDTH = 8, 64  # base's
DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16}
CALLS: Final = 6  # layers: what one takes is too short to be measured alone


@dataclass(frozen=True)
class Case:
    """Sizes of an attention; ``trained``: its gradients count, too."""

    name: str
    batch: int
    queries: int
    keys: int
    trained: bool
    causal: bool = False


CASES: Final = (
    Case("training, 64 sentences", 64, 30, 30, trained=True),
    Case("training, 64 sentences, causal", 64, 30, 30, trained=True, causal=True),
    Case("training, 10 long sentences", 10, 200, 200, trained=True),
    Case("training, 10 long sentences, causal", 10, 200, 200, trained=True, causal=True),
    Case("training, 2 documents", 2, 1000, 1000, trained=True),
    Case("training, 2 documents, causal", 2, 1000, 1000, trained=True, causal=True),
    Case("a step: 64 sentences, beam 4, to their pasts", 256, 1, 30, trained=False),
    Case("a step: 64 sentences, beam 4, to their memory", 64, 4, 30, trained=False),
)


def prepare(case: Case, dtype: torch.dtype) -> dict[str, Callable[[], object]]:
    """A call of each way, on the same tensors."""
    torch.manual_seed(1)
    shapes = (case.batch, HEADS, case.queries, WIDTH), (case.batch, HEADS, case.keys, WIDTH)
    query, key, value = (torch.randn(shape, dtype=dtype) for shape in (shapes[0], shapes[1], shapes[1]))
    query = query * WIDTH**-0.5
    lengths = torch.randint(case.keys // 2, case.keys + 1, (case.batch,))
    real = torch.arange(case.keys) < lengths.unsqueeze(1)
    # A causal mask already hides what comes after the last real position.
    mask = Mask(None if case.causal else real, causal=case.causal)

    def plain(query: Tensor) -> Tensor:
        allowed = mask.matrix(case.queries, case.keys, query.device)
        return attend_plainly(query, key, value, allowed, None, PRODUCT)

    def fused(query: Tensor) -> Tensor:
        allowed = None if case.causal else real[:, None, None]
        return F.scaled_dot_product_attention(query, key, value, allowed, is_causal=case.causal, scale=1.0)

    def run(way: Callable[[Tensor], Tensor]) -> Callable[[], object]:
        if not case.trained:
            return torch.no_grad()(lambda: [way(query) for _ in range(CALLS)])
        inputs = [each.requires_grad_() for each in (query, key, value)]
        gradient = torch.randn_like(query)
        return lambda: [torch.autograd.grad(way(query), inputs, gradient) for _ in range(CALLS)]

    torch.testing.assert_close(plain(query), fused(query), rtol=0.1, atol=0.1)
    return {"plain": run(plain), "fused": run(fused)}


def measure(case: Case, dtype: torch.dtype, rounds: int) -> list[str]:
    """Milliseconds of six layers by either way, and how many times as fast the second is: median, from, to."""
    found = alternate(prepare(case, dtype), rounds)
    ratios = [plain / fused for plain, fused in zip(found["plain"], found["fused"], strict=True)]
    return [
        *(f"{1000 * statistics.median(found[way]):.1f}" for way in ("plain", "fused")),
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Plain attention beside scaled_dot_product_attention.")
    parser.add_argument("--rounds", type=int, default=31)
    rounds = parser.parse_args().rounds
    rows = [
        [case.name, f"{case.queries} x {case.keys}", name, *measure(case, dtype, rounds)]
        for case in CASES
        for name, dtype in DTYPES.items()
    ]
    head = ["", "queries x keys", "", "plain formula, ms", "scaled_dot_product_attention, ms", "as fast"]
    said = f"{circumstances()}; {HEADS} heads of width {WIDTH}, {CALLS} layers, {rounds} rounds by turns."
    lines = [said, "", *table(head, rows)]
    insert("notebook/attention.md", "plain attention", lines)
    RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
