import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.thread import BrokenThreadPool
from threading import Barrier, Thread, current_thread

import pytest
import torch

from transduce.inference.workers import Workers
from transduce.kernels import native, run_safely, start_threads
from transduce.kernels import threads as module


def in_a_new_thread(look):
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(look).result()


@pytest.fixture
def three():
    """The threads that torch uses for one operation."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three")
def test_one_core_is_for_that_thread_alone():
    with start_threads(1, "test") as threads:
        assert threads.submit(torch.get_num_threads).result() == 1
    assert torch.get_num_threads() == 3
    assert in_a_new_thread(torch.get_num_threads) == 3


@pytest.mark.usefixtures("three")
def test_many_that_begin_at_once_do_not_take_each_others_core_for_the_programs():
    seen = []

    def begin():
        with start_threads(5, "test") as threads:
            both = Barrier(5)
            seen.extend(threads.map(lambda _: (both.wait(), torch.get_num_threads())[1], range(5)))

    for _ in range(7):
        programs = [Thread(target=begin) for _ in range(4)]
        for each in programs:
            each.start()
        for each in programs:
            each.join()
        assert in_a_new_thread(torch.get_num_threads) == 3
    assert seen == [1] * (7 * 4 * 5)


@pytest.mark.usefixtures("three")
def test_workers_leave_other_threads_theirs_even_while_they_work():
    both = Barrier(2)

    def work(_):
        both.wait()  # both have begun
        return torch.get_num_threads(), in_a_new_thread(torch.get_num_threads)

    assert list(Workers(2).map(work, range(2))) == [(1, 3)] * 2
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("three")
def test_more_workers_come_where_torch_gets_more_threads():
    workers = Workers()
    for number in (2, 5):
        torch.set_num_threads(number)
        all_ = Barrier(number)
        assert len(list(workers.map(lambda _, wait=all_.wait: wait(timeout=20), range(number)))) == number


def test_the_caller_works_itself_but_for_the_child_of_a_fork(monkeypatch):
    def look():
        return current_thread()

    assert run_safely(look) is current_thread()
    monkeypatch.setattr(module, "_HOME", os.getpid() + 1)
    assert run_safely(look) is not current_thread()
    with pytest.raises(ValueError, match="of the work"):
        run_safely(lambda: (_ for _ in ()).throw(ValueError("of the work")))


def test_where_no_thread_is_left_the_others_do_not_wait_for_it(monkeypatch):
    start, left = Thread.start, [4]  # the first thread, and what restores; the second thread

    def begin(thread):
        left[0] -= 1
        if left[0] < 0:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(Thread, "start", begin)
    with pytest.raises((RuntimeError, BrokenThreadPool)):
        start_threads(3, "test")


_CORES = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}
_SHOW_CORES = """
import os, threading
from transduce.kernels import start_threads
maker = len(os.sched_getaffinity(threading.get_native_id()))
with start_threads(2, "test") as threads:
    made = threads.submit(lambda: len(os.sched_getaffinity(threading.get_native_id()))).result()
print(maker, made)
"""


@pytest.mark.skipif(not native.has_native(), reason="the kernels know OpenMP's places")
@pytest.mark.skipif(len(_CORES) < 2, reason="there is one core")
def test_where_openmp_binds_its_threads_others_are_not_bound_with_their_maker():
    bound = os.environ | {"OMP_PROC_BIND": "true", "OMP_PLACES": "threads", "OMP_NUM_THREADS": "2"}
    run = subprocess.run([sys.executable, "-c", _SHOW_CORES], env=bound, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["1", str(len(_CORES))]
