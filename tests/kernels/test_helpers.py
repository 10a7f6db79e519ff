"""Products that several threads share out among them: the same bits, however many there are and whoever has a core."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from transduce.kernels import linear, prepack, use_cores

FORMATS = ["float32", "bfloat16", "int8"]
SIZES = [(4, 512, 1000), (9, 1024, 130), (300, 300, 70)]  # rows, inputs and outputs: much work, in two panels and more


@pytest.fixture(autouse=True)
def as_before(own_products):
    if own_products == "plain":
        pytest.skip("PyTorch's products are shared out by OpenMP")
    yield
    use_cores(0)


def make(rows, inputs, outputs, format_, seed):
    draw = torch.Generator().manual_seed(seed)
    x, weight, bias = (torch.randn(*sizes, generator=draw) for sizes in ((rows, inputs), (outputs, inputs), (outputs,)))
    return x, prepack(weight, bias, format_)


@pytest.mark.parametrize("format_", FORMATS)
def test_any_number_of_cores_gives_the_same(format_):
    for seed, sizes in enumerate(SIZES):
        given = make(*sizes, format_, seed)
        use_cores(1)
        alone = {activation: linear(*given, activation=activation) for activation in (None, "relu", "gelu")}
        for cores in (2, 3, 40):
            use_cores(cores)
            for activation, expected in alone.items():
                for _ in range(4):
                    assert linear(*given, activation=activation).equal(expected), (cores, sizes, activation)


def test_callers_at_the_same_time_have_their_own_results():
    given = [make(*SIZES[seed % len(SIZES)], FORMATS[seed % 2], seed) for seed in range(6)]
    use_cores(1)
    expected = [linear(*each) for each in given]

    def work(number):
        use_cores(3)
        return all(linear(*given[number]).equal(expected[number]) for _ in range(30))

    with ThreadPoolExecutor(len(given)) as threads:
        assert all(threads.map(work, range(len(given))))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system ties no thread to a core")
def test_on_a_core_that_all_of_them_share():
    given = make(*SIZES[0], "int8", 3)
    use_cores(1)
    expected = linear(*given)
    use_cores(4)
    linear(*given)  # the others begin
    threads = [int(each.name) for each in Path("/proc/self/task").iterdir()]
    helpers = [each for each in threads if Path(f"/proc/self/task/{each}/comm").read_text() == "product helper\n"]
    assert len(helpers) >= 3
    before = {thread: os.sched_getaffinity(thread) for thread in threads}
    try:
        for thread in threads:
            os.sched_setaffinity(thread, {min(before[thread])})
        for _ in range(100):
            assert linear(*given).equal(expected)
    finally:
        for thread, cores in before.items():
            os.sched_setaffinity(thread, cores)
