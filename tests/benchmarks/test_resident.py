import mmap

from benchmarks import resident
from benchmarks.resident import growth

MIB = 2**20


def touch_64_mib():
    with mmap.mmap(-1, 64 * MIB) as memory:  # pages of its own, whatever the heap has kept
        for page in range(0, len(memory), mmap.PAGESIZE):
            memory[page] = 1


def test_what_a_call_touches_counts_even_if_it_is_gone_behind_it():
    assert 60 * MIB < growth(touch_64_mib) < 68 * MIB


def test_a_peak_that_is_counted_less_exactly_than_the_size_before_is_no_growth(monkeypatch):
    counted = {"VmRSS": 5 * MIB, "VmHWM": 5 * MIB - 163_840}
    monkeypatch.setattr(resident, "resident_bytes", lambda field: counted[field])
    assert growth(lambda: None) == 0
