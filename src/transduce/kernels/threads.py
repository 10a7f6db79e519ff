"""Whose operations take how many cores, and what a fork leaves of the threads that did them."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock, Thread
from typing import Final, TypeVar

import torch

R = TypeVar("R")

# The process that loaded this module: another one that has it too is a child that was forked off.
_HOME: Final = os.getpid()
# One for each process: a fork may happen while another thread holds the parent's, and nobody would let go of it.
_locks: Final[dict[int, Lock]] = {}


def work_on_one_core() -> None:
    """The first call of a new thread whose operations are to take one core; those of all other threads stay as they are.

    torch has one way to say so, ``set_num_threads``, which also decides for all threads that are still to come. So
    what they would have had is put back at once, by a thread that ends with that.
    """
    with _locks.setdefault(os.getpid(), Lock()):
        others = torch.get_num_threads()  # a thread's first look sets it to what was last set anywhere
        torch.set_num_threads(1)
        restoring = Thread(target=torch.set_num_threads, args=(others,))
        restoring.start()
        restoring.join()


def run_safely(work: Callable[[], R]) -> R:
    """What ``work`` returns, done by the calling thread, or in the child of a fork by a new one.

    A fork leaves the child its calling thread alone, but GNU's OpenMP still counts on the team that this thread had in
    the parent: an operation on several cores would wait for it for ever. A new thread gets a team of its own.
    """
    if os.getpid() == _HOME:
        return work()
    with ThreadPoolExecutor(1, thread_name_prefix="after-fork") as thread:
        return thread.submit(work).result()
