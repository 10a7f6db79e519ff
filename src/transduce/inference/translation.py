"""What a translation is, and what is said where it may be incomplete or there is none."""

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, Literal, assert_never, final

import numpy as np
from numpy.typing import NDArray

from transduce.config import BadInputError, GenerationConfig, TransduceError
from transduce.inference.alignment import Alignment
from transduce.search import Cancelled, Failure, NothingFound, TooLittleMemory

_log = logging.getLogger("transduce.inference")
_MOST_NAMED: Final = 10


@final
@dataclass(frozen=True)
class Translation:
    """An output for one input.

    ``log_probability`` is natural and counts the end symbol; ``score`` is that divided by the length penalty, whose
    |y| counts it too, with the coverage penalty added where there is one. ``tokens`` has no end symbol. ``attention``,
    where it was asked for, has the shape (heads, target tokens + 1, source tokens + 1), the last of each being the end
    symbol; outputs are compared without it. ``alternatives`` are the next best outputs. ``alignment``, where it was
    asked for, has the pairs (source word, output word), counted from 0. ``at_limit`` says that the output is as long as
    the search allows, so that its end may be missing.

    ``error`` says why there is no output; then the text is empty, and its log-probability and score are minus infinity.

    Of a paragraph, ``log_probability`` and ``score`` are the sums over its sentences, ``tokens`` those of all of them,
    and ``at_limit`` is true where it is for any of them.
    """

    text: str
    log_probability: float
    score: float
    tokens: tuple[str, ...]
    attention: NDArray[np.float32] | None = field(default=None, repr=False, compare=False)
    alternatives: tuple["Translation", ...] = ()
    alignment: Alignment | None = None
    at_limit: bool = False
    error: str | None = None


EMPTY: Final = Translation("", 0.0, 0.0, ())


def of_rank(output: Translation, rank: int) -> Translation:
    """The best output for a sentence (0), the second best (1), and so on; where there is no other, the best."""
    return output.alternatives[rank - 1] if 0 < rank <= len(output.alternatives) else output


def count_ranks(outputs: Iterable[Translation]) -> int:
    """How many outputs the sentence has that has most."""
    return 1 + max((len(each.alternatives) for each in outputs), default=0)


def failed(error: str) -> Translation:
    """What stands for an output that there is not."""
    return Translation("", -math.inf, -math.inf, (), error=error)


def warn_of_failures(failures: Sequence[str]) -> None:
    """Log a warning for each of what failed, or for the first of many."""
    for failure in failures[:_MOST_NAMED]:
        _log.warning(failure)
    if len(failures) > _MOST_NAMED:
        _log.warning(f"{len(failures) - _MOST_NAMED:,} more failed")


def warn_of_limits(
    translations: Sequence[Translation],
    first_number: int,
    longest: int | None = None,
    option: Literal["max_length", "max_extra_length"] = "max_extra_length",
) -> None:
    """Log a warning that names the outputs whose end may be missing, the first being number ``first_number``.

    ``longest`` is the most symbols, end symbol counted, that the model can write at all, where there is such a limit;
    ``option`` is the setting that says how long outputs may be.
    """
    numbers = [str(number) for number, each in enumerate(translations, first_number) if each.at_limit]
    if not numbers:
        return
    if (reached := _reached.get()) is not None:
        reached.count += len(numbers)
        if reached.count > len(numbers):
            return
        reached.told = len(numbers)
    more = f" and {len(numbers) - _MOST_NAMED:,} more" if len(numbers) > _MOST_NAMED else ""
    _log.warning(
        f"text {', '.join(numbers[:_MOST_NAMED])}{more}: the output reached the length limit, and its end may be "
        f"missing: split what has several sentences (--paragraphs, or paragraphs=True), or allow "
        f"more (--{option.replace('_', '-')}, or {option} in the model's generation_config.json)"
        + (f" (to no avail beyond the {longest:,} positions that this model has learned)" if longest else "")
    )


@final
@dataclass
class _Reached:
    """How many outputs reached the length limit, and how many of them were told of."""

    count: int = 0
    told: int = 0


_reached: Final[ContextVar[_Reached | None]] = ContextVar("reached", default=None)


@contextmanager
def limits_told_once() -> Iterator[None]:
    """Have the first call that reaches the length limit warn, and the others counted at the end of the block.

    It is for many texts that are given in groups, by a call each, as those of a file.
    """
    reached = _Reached()
    token = _reached.set(reached)
    try:
        yield
    finally:
        _reached.reset(token)
        if reached.count > reached.told:
            _log.warning(
                f"{reached.count:,} outputs reached the length limit in all (--format jsonl marks them: at_limit)"
            )


def explain(failure: Failure, symbols: int, generation: GenerationConfig) -> TransduceError:
    """Why a text of so many symbols has no output, and what to do."""
    match failure:
        case NothingFound(limit):
            return BadInputError(
                f"the search found no output of at most {limit - 1:,} tokens that is all that was asked for (prefix, "
                f"phrases, shortest length, n-grams, constraints): ask for less, widen the beam, or raise "
                f"{length_option(generation)}"
            )
        case TooLittleMemory(reason):
            return TransduceError(
                f"too little memory for its {symbols:,} symbols ({reason}): split it (--paragraphs, or "
                f"paragraphs=True), or take a smaller beam"
            )
        case Cancelled():
            return TransduceError("the request was cancelled")
        case _:
            assert_never(failure)


def length_option(generation: GenerationConfig) -> Literal["max_length", "max_extra_length"]:
    """The setting that says how long outputs may be."""
    return "max_extra_length" if generation.max_length is None else "max_length"
