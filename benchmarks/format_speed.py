"""How fast each number format multiplies, which is what the table of ``precision = "auto"`` was made from.

    python -m benchmarks.format_speed

The C++ kernels of every kind that this processor can run, on one core, as a worker has it: 64 rows of 512 numbers by a
matrix of 512 x 512, as in a batch, and 4 rows by one of 32 such matrices after the other, which no cache holds, as in
the search for one sentence. Then PyTorch's product of two matrices of 512 x 512. Beside each stands what the rule makes
of it: the widest format that no narrower one beats by a quarter in one case without losing a tenth in another. Fastest
of 500 calls, by turns. Where the rule finds something else than ``auto`` takes, it says so, and ends with status 1.
Writes into docs/performance.md; half a minute.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar
from unittest.mock import patch

import torch

from benchmarks.page import circumstances, insert, table
from benchmarks.rounds import alternate
from transduce.kernels import Format, PrepackedMatrix, linear, native, prepack, resolve_precision
from transduce.kernels.precision import NATIVE, kernels_of_processor

K = TypeVar("K", bound=str)

WIDTH: Final = 512
CASES: Final = {"64 rows": (64, 1), "4 rows, weights from memory": (4, 32)}  # rows, and matrices one after the other
FAST_ENOUGH: Final = 1.25  # a narrower format must win by this much in one case to be worth its rounding,
SLOW_ENOUGH: Final = 0.9  # and be as fast as this in the others
FORMATS: Final[tuple[Format, ...]] = ("float32", "bfloat16", "int8")
LIBRARIES: Final = {
    "AVX2": "native_avx2",
    "AVX2 with VNNI": "native_avxvnni",
    "AVX512": "native_avx512",
    "AVX512 with VNNI and BF16": "native_avx512vnni",
    "AVX512 with VNNI, BF16 and AMX": "native_amx",
}


def widest(cases: Sequence[Mapping[K, float]]) -> K:
    """The first format, or a later one that is so much faster in one of the cases that it is worth its rounding."""
    chosen, *narrower = cases[0]
    for each in narrower:
        ratios = [seconds[chosen] / seconds[each] for seconds in cases]
        if max(ratios) > FAST_ENOUGH and min(ratios) > SLOW_ENOUGH:
            chosen = each
    return chosen


def fastest(products: Mapping[K, Callable[[], object]], rounds: int) -> dict[K, float]:
    """Seconds of each product at its fastest."""
    found = alternate({str(each): product for each, product in products.items()}, rounds)
    return {each: min(found[each]) for each in products}


def able() -> Iterator[str]:
    """The kinds of kernels that this processor can run, and that were built."""
    kinds = list(LIBRARIES)
    own = kernels_of_processor()
    for kind in kinds[: kinds.index(own) + 1] if own in kinds else []:
        can_run = kind != "AVX2 with VNNI" or torch.cpu.get_capabilities().get("avx_vnni")  # not all newer ones can
        if can_run and native.open_library(LIBRARIES[kind]) is not None:
            yield kind


def measure_packed(kind: str, rows: int, matrices: int, rounds: int) -> dict[Format, float]:
    """Seconds of a packed product in each format, by the kernels of a kind; so many matrices take turns."""
    library = native.open_library(LIBRARIES[kind])
    x = torch.ones(rows, WIDTH)

    def multiply(packed: list[PrepackedMatrix]) -> None:
        for each in packed:
            linear(x, each)

    products = {
        each: partial(multiply, [prepack(torch.ones(WIDTH, WIDTH), None, each) for _ in range(matrices)])
        for each in FORMATS
    }
    with patch.object(native, "_library", lambda: library):
        native._function.cache_clear()  # of the kind before
        try:
            return {each: seconds / matrices for each, seconds in fastest(products, -(-rounds // matrices)).items()}
        finally:
            native._function.cache_clear()


def measure_torch(rounds: int) -> dict[str, float]:
    """Seconds of PyTorch's product in each of its formats."""
    squares = {"float32": torch.ones(WIDTH, WIDTH), "bfloat16": torch.ones(WIDTH, WIDTH, dtype=torch.bfloat16)}
    return fastest({name: partial(torch.mm, square, square) for name, square in squares.items()}, rounds)


def rows_of(cases: Mapping[str, Mapping[K, float]], auto: str) -> list[list[str]]:
    """A line of the page for each case: microseconds, what the rule makes of all, and what the table says."""
    found = widest(list(cases.values()))
    return [
        [
            name,
            *(f"{1e6 * seconds[each]:.0f}" if each in seconds else "" for each in FORMATS),  # type: ignore[index]
            found,
            auto,
        ]
        for name, seconds in cases.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--only-print", action="store_true", help="leave the page as it is")
    options = parser.parse_args()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    rows = []
    for kind in able():
        cases = {
            f"C++ kernels, {kind}, {name}": measure_packed(kind, *case, options.rounds) for name, case in CASES.items()
        }
        rows += rows_of(cases, NATIVE[kind])
    auto = str(resolve_precision("auto", torch.device("cpu"))).removeprefix("torch.")
    rows += rows_of({"PyTorch's operations, and training": measure_torch(options.rounds)}, auto)
    head = ["what multiplies", *(f"{each} (µs)" for each in FORMATS), "the rule finds", "`auto` takes"]
    page = [f"{circumstances()}; fastest of {options.rounds}, by turns.", "", *table(head, rows)]
    torch.set_num_threads(threads)
    if options.only_print:
        print(*page, sep="\n")
    else:
        insert("performance.md", "format speed", page)
    different = [name for name, *_, found, taken in rows if found != taken]
    if different:
        sys.exit(f"the table says otherwise for {'; '.join(different)}")


if __name__ == "__main__":
    main()
