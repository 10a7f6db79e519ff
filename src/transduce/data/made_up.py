"""Made-up tasks that need no files: the first checks of any sequence-to-sequence model."""

import random
from collections.abc import Iterator
from typing import assert_never

from transduce.config.corpora import MadeUpTask

_DIGITS = "0123456789"
_LONGEST = 10


def make_task(task: MadeUpTask, count: int, seed: int) -> Iterator[tuple[str, str]]:
    """``count`` pairs of a task, the same for the same seed."""
    match task:
        case "copy":
            return _copy(count, random.Random(seed))
        case _:
            assert_never(task)


def _copy(count: int, draw: random.Random) -> Iterator[tuple[str, str]]:
    """Sequences of 1 to 10 symbols out of 10; the target is the source."""
    for _ in range(count):
        text = " ".join(draw.choices(_DIGITS, k=draw.randint(1, _LONGEST)))
        yield text, text
