import subprocess
import sys

import pytest

from transduce.training import keep_freed_memory

# Pages that the system hands out while the same 48 MB are asked for, filled and given back nine times.
PAGES = """
import resource, torch
from transduce.training import keep_freed_memory
if {keep}:
    keep_freed_memory()
def fill():
    torch.ones(12_000_000)
fill()
fill()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(9):
    fill()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_freed_memory_is_used_again():
    if not keep_freed_memory():
        pytest.skip("not glibc")
    returned, kept = (
        int(subprocess.check_output([sys.executable, "-c", PAGES.format(keep=keep)])) for keep in (False, True)
    )
    assert kept < returned / 3
