"""Whose operations take how many cores, and what a fork leaves of the threads that did them."""

import os
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from threading import Barrier, Lock, Thread
from typing import Final, TypeVar

import torch

from transduce.kernels import native

R = TypeVar("R")

# The process that loaded this module: another one that has it too is a child that was forked off.
_HOME: Final = os.getpid()
# One for each process: a fork may happen while another thread holds the parent's, and nobody would let go of it.
_locks: Final[dict[int, Lock]] = {}


def start_threads(number: int, name: str) -> ThreadPoolExecutor:
    """So many threads whose operations take one core each; those of all other threads take what they took.

    torch has one way to say so, ``set_num_threads``, which also decides for all threads that are still to come. So what
    these would have had is put back at once. The threads have all begun when this returns: a caller that sets the
    number next is not overtaken.
    """
    threads = ThreadPoolExecutor(number, thread_name_prefix=name, initializer=_take_one_core)
    begun = Barrier(number)
    try:
        done, _ = wait([threads.submit(begun.wait) for _ in range(number)], return_when=FIRST_EXCEPTION)
        for each in done:
            each.result()
    except BaseException:  # where the system has no thread left, those that there are would wait for ever
        begun.abort()
        threads.shutdown(wait=False)
        raise
    return threads


def _take_one_core() -> None:
    if native.has_native():
        native.call("use_any_core", None)  # where OpenMP binds its threads, the one that made this one is on one core
    with _locks.setdefault(os.getpid(), Lock()):
        others = torch.get_num_threads()  # a thread's first look sets it to what was last set anywhere
        torch.set_num_threads(1)
        restoring = Thread(target=torch.set_num_threads, args=(others,))
        restoring.start()
        restoring.join()


def use_cores(number: int) -> None:
    """How many cores prepacked products of the calling thread may use from here on, as far as they are free.

    0 means as many as torch's operations have threads there. What is computed does not depend on it.
    """
    if native.has_native():
        native.call("use_cores", None, number)


def run_safely(work: Callable[[], R]) -> R:
    """What ``work`` returns, done by the calling thread, or in the child of a fork by a new one.

    A fork leaves the child its calling thread alone, but GNU's OpenMP still counts on the team that this thread had in
    the parent: an operation on several cores would wait for it for ever. A new thread gets a team of its own.
    """
    if os.getpid() == _HOME:
        return work()
    with ThreadPoolExecutor(1, thread_name_prefix="after-fork") as thread:
        return thread.submit(work).result()
