import pytest

from tests.command import run_program
from transduce.kernels import keep_freed_memory

# Pages that the system hands out while the same 48 MB are asked for, filled and given back nine times, behind as
# many that are not counted: of 18 processes that keep what they free, 5 were handed new ones up to the sixth time.
PAGES = """
import resource, torch
from transduce.kernels import keep_freed_memory
if {keep}:
    keep_freed_memory()
def fill():
    torch.ones(12_000_000)
for _ in range(9):
    fill()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(9):
    fill()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def numbers(program):
    """What a program says."""
    ended = run_program(program)
    assert ended.returncode == 0, ended.stderr
    return [int(each) for each in ended.stdout.split()]


def test_freed_memory_is_used_again():
    if not keep_freed_memory():
        pytest.skip("not glibc")

    (kept,), (given_back,) = (numbers(PAGES.format(keep=keep)) for keep in (True, False))
    assert kept < given_back / 3


# Resident MiB before anything, with what is kept of 640 MB in which one block is still in use, and after another look.
KEPT = """
import torch
from transduce.kernels import allocator
allocator.keep_freed_memory()
kept = allocator.KeptMemory()
kept.look()
blocks = [torch.ones(4_000_000) for _ in range(40)]
blocks = blocks[-1:]
for _ in range(3):
    print(allocator._resident_pages() * 4096 >> 20)
    kept.look()
"""


def test_what_is_kept_is_bounded():
    if not keep_freed_memory():
        pytest.skip("not glibc")
    kept, given_back, after = numbers(KEPT)
    assert given_back < kept - 500
    assert abs(after - given_back) < 10


def test_nothing_is_given_back_that_a_step_needs():
    if not keep_freed_memory():
        pytest.skip("not glibc")
    script = KEPT.replace("blocks = blocks[-1:]", "").replace("range(3)", "range(2)")
    full, still = numbers(script)
    assert abs(full - still) < 10
