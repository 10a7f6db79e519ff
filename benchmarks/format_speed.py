"""How fast each number format multiplies, which is what the table of ``precision = "auto"`` was made from.

    python -m benchmarks.format_speed

The C++ kernels of every kind that this processor can run, on one core, as a worker has it: 64 rows of 512 numbers by a
matrix of 512 x 512, and 8 rows of it. Then PyTorch's product of two matrices of 512 x 512. Beside each stands what the
rule makes of it: the widest format that no narrower one beats by a quarter. Fastest of 500 calls, by turns. Where the
rule finds something else than ``auto`` takes, it says so, and ends with status 1. Writes into docs/performance.md;
fifteen seconds.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, TypeVar
from unittest.mock import patch

import torch

from benchmarks.page import circumstances, insert, table
from benchmarks.rounds import alternate
from transduce.kernels import Format, linear, native, prepack, resolve_precision
from transduce.kernels.precision import NATIVE, kernels_of_processor

K = TypeVar("K", bound=str)

WIDTH: Final = 512
ROWS: Final = (64, 8)
FAST_ENOUGH: Final = 1.25  # a narrower format must win by this much to be worth its rounding
FORMATS: Final[tuple[Format, ...]] = ("float32", "bfloat16", "int8")
LIBRARIES: Final = {
    "AVX2": "native_avx2",
    "AVX512": "native_avx512",
    "AVX512 with VNNI and BF16": "native_avx512vnni",
    "AVX512 with VNNI, BF16 and AMX": "native_amx",
}


def widest(seconds: Mapping[K, float]) -> K:
    """The first format, or a later one where that is so much faster that it is worth its rounding."""
    chosen, *narrower = seconds
    for each in narrower:
        if seconds[chosen] > FAST_ENOUGH * seconds[each]:
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
        if native.open_library(LIBRARIES[kind]) is not None:
            yield kind


def measure_packed(kind: str, rows: int, rounds: int) -> dict[Format, float]:
    """Seconds of a packed product in each format, by the kernels of a kind."""
    library = native.open_library(LIBRARIES[kind])
    x = torch.ones(rows, WIDTH)
    products = {each: partial(linear, x, prepack(torch.ones(WIDTH, WIDTH), None, each)) for each in FORMATS}
    with patch.object(native, "_library", lambda: library):
        native._function.cache_clear()  # of the kind before
        try:
            return fastest(products, rounds)
        finally:
            native._function.cache_clear()


def measure_torch(rounds: int) -> dict[str, float]:
    """Seconds of PyTorch's product in each of its formats."""
    squares = {"float32": torch.ones(WIDTH, WIDTH), "bfloat16": torch.ones(WIDTH, WIDTH, dtype=torch.bfloat16)}
    return fastest({name: partial(torch.mm, square, square) for name, square in squares.items()}, rounds)


def row(name: str, seconds: Mapping[K, float], auto: str) -> list[str]:
    """A line of the page: microseconds, what the rule makes of them, and what the table says."""
    cells = [f"{1e6 * seconds[each]:.0f}" if each in seconds else "" for each in FORMATS]  # type: ignore[index]
    return [name, *cells, widest(seconds), auto]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--only-print", action="store_true", help="leave the page as it is")
    options = parser.parse_args()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    rows = [
        row(f"C++ kernels, {kind}, {number} rows", measure_packed(kind, number, options.rounds), NATIVE[kind])
        for kind in able()
        for number in ROWS
    ]
    auto = str(resolve_precision("auto", torch.device("cpu"))).removeprefix("torch.")
    rows.append(row("PyTorch's operations, and training", measure_torch(options.rounds), auto))
    head = ["what multiplies", *(f"{each} (µs)" for each in FORMATS), "the rule finds", "`auto` takes"]
    page = [f"{circumstances()}; fastest of {options.rounds}, by turns.", "", *table(head, rows)]
    torch.set_num_threads(threads)
    if options.only_print:
        print(*page, sep="\n")
    else:
        insert("performance.md", "format speed", page)
    # The rule was made for many rows; few show how near it is.
    different = [name for name, *_, found, taken in rows if found != taken and not name.endswith(f"{ROWS[-1]} rows")]
    if different:
        sys.exit(f"the table says otherwise for {'; '.join(different)}")


if __name__ == "__main__":
    main()
