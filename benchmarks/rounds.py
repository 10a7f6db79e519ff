"""Calls measured in turns, so that whatever else the machine does meets all of them alike."""

import statistics
import time
from collections.abc import Callable, Mapping

import torch


def seconds() -> float:
    """The time, by a clock that begins anywhere.

    With one thread it is the processor's work for this process, which is what an idle machine would take, whatever else
    runs; with more threads, which wait for each other, it is the wall's.
    """
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def timed(call: Callable[[], object]) -> float:
    """The seconds that a call takes."""
    start = seconds()
    call()
    return seconds() - start


def alternate(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each call in each of so many rounds, after one that warms up."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for round_ in range(rounds + 1):
        for name, call in calls.items():
            spent = timed(call)
            if round_:
                found[name].append(spent)
    return found


def medians(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The middle one of each call's rounds, in seconds."""
    return {name: statistics.median(found) for name, found in alternate(calls, rounds).items()}
