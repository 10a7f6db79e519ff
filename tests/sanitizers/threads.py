"""Threads that search with one model in the C++ kernels: ``python tests/sanitizers/threads.py THREADS SEARCHES``.

A table of positions holds few of them here, so that limits around that and beyond have some threads grow theirs while
others do not.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import torch

from transduce.config import TransformerConfig
from transduce.models import NativeTransformer, build, native
from transduce.search import Request, SearchSettings, beam_search

SIZES = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 16, "d_ff": 20, "heads": 2, "vocab_size": 23}
PAD, BEGIN, END, UNKNOWN = range(4)
POSITIONS = 16
LIMITS = (19, 3, 66, 10, 18, 15, 35, 1)
LENGTHS = (20, 3, 17, 16, 1, 70, 9, 550)  # the last is read by all cores that there are


def make():
    """A model in the C++ kernels, of no use but this."""
    torch.manual_seed(1)
    with mock.patch.object(native, "_POSITIONS", POSITIONS):
        return NativeTransformer(build(TransformerConfig(**SIZES)).eval().requires_grad_(False), "float32")


def search(model, number):
    """One sentence's output, which is as long as its limit allows."""
    length, limit = LENGTHS[number % len(LENGTHS)], LIMITS[(number // 3) % len(LIMITS)]
    draw = torch.Generator().manual_seed(number)
    ids = torch.randint(4, SIZES["vocab_size"], (1, length), generator=draw)
    settings = SearchSettings(
        begin_id=BEGIN, end_id=END, forbidden=(PAD, BEGIN, UNKNOWN), beam_size=2, min_length=limit - 1
    )
    waiting = [[Request(ids[0].tolist(), limit, settings)]]
    ((_, found),) = beam_search(model, lambda _: waiting.pop() if waiting else [])
    return found[0]


def run(threads, searches):
    """Every search's outcome is the one it has alone."""
    expected = [search(make(), number) for number in range(searches)]
    model = make()
    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        found = list(pool.map(search, [model] * searches, range(searches)))
    assert found == expected


if __name__ == "__main__":
    run(int(sys.argv[1]), int(sys.argv[2]))
    sys.stdout.write(f"{int(sys.argv[2]):,} searches by {sys.argv[1]} threads\n")
