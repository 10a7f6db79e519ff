"""Folders of partitions in and out, one file for one file.

A partition is written under another name and renamed when it is whole, so that what stands is right, and a command that
is given again goes on with the rest. What is written of a partition follows from it and from the settings alone, not
from what was done before it.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol, final

from transduce.config import BadInputError, TransduceError
from transduce.data.places import UNFINISHED, delete, join, list_names
from transduce.workflows.cluster import Cluster, run_on_cluster
from transduce.workflows.partitions import Partition, Plan
from transduce.workflows.requests import Failures

_MOST_TOLD: Final = 10  # warnings of a partition, and partitions that could not be done
_TOLD_SECONDS: Final = 30.0
_log = logging.getLogger(__name__)


@final
@dataclass
class Outcome:
    """What became of a partition: its lines, and of those that failed, which; warnings; and why it is not there."""

    name: str
    failures: Failures = field(default_factory=Failures)
    warnings: list[str] = field(default_factory=list)
    error: TransduceError | None = None


class Work(Protocol):
    """What is done with partitions, as data that another process can be told."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """All that results follow from."""
        ...

    def start(self, device: str | None) -> Callable[[Partition], Failures]:
        """Load what is needed, once; then it does one partition after another, and says which of its lines failed.

        Raises:
            TransduceError: It cannot be loaded, or a setting is wrong.
        """
        ...


def do_partition(do: Callable[[Partition], Failures], partition: Partition) -> Outcome:
    """Do one; that it is bad, or that it cannot be written, is part of the outcome: the others do not depend on it."""
    outcome = Outcome(partition.name)
    with _warnings(outcome.warnings):
        try:
            outcome.failures = do(partition)
        except TransduceError as error:
            said = _of(partition, str(error))
            outcome.error = (BadInputError if isinstance(error, BadInputError) else TransduceError)(said)
        except OSError as error:
            outcome.error = TransduceError(f"{partition.target}: {error}")
    outcome.warnings = [_of(partition, warning) for warning in outcome.warnings]
    return outcome


def _of(partition: Partition, message: str) -> str:
    """A message that names the partition: lines are named by their numbers, which say nothing alone."""
    return message if message.startswith((partition.source, partition.target)) else f"{partition.source} {message}"


@contextmanager
def _warnings(into: list[str]) -> Iterator[None]:
    """Collect what the package warns of meanwhile."""
    package = logging.getLogger("transduce")
    handlers, propagate = package.handlers, package.propagate
    package.handlers, package.propagate = [_Collector(into)], False
    try:
        yield
    finally:
        package.handlers, package.propagate = handlers, propagate


@final
class _Collector(logging.Handler):
    def __init__(self, into: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._into = into

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the first few."""
        if len(self._into) < _MOST_TOLD:
            self._into.append(record.getMessage())


@final
@dataclass(frozen=True)
class _Outcomes:
    """A work, of which what becomes of each partition is told."""

    work: Work

    def start(self, device: str | None) -> Callable[[Partition], Outcome]:
        """Start the work."""
        return partial(do_partition, self.work.start(device))


def run_partitions(
    work: Work, partitions: Sequence[Partition], device: str | None, cluster: Cluster | None
) -> Iterator[Outcome]:
    """Do partitions, in this process one after another, or on a cluster; outcomes come as they are done.

    Raises:
        TransduceError: The work cannot be started.
    """
    if not partitions:
        return iter(())
    if cluster is not None:
        return run_on_cluster(_Outcomes(work), partitions, _lost, cluster)
    return map(_Outcomes(work).start(device), partitions)


def _lost(partition: Partition) -> Outcome:
    error = TransduceError(
        f"{partition.source}: several workers were lost at it: where their machines' memory was too small, give fewer "
        f"--workers, or divide it"
    )
    return Outcome(partition.name, error=error)


def finish(plan: Plan, outcomes: Iterable[Outcome], advance: Callable[[], None], *, what: str, instead: str) -> None:
    """Go through the outcomes of all that was left to do, as they come, and tell of them.

    Args:
        plan: What was left.
        outcomes: One for each of its partitions, in any order.
        advance: Called behind each.
        what: What is said of lines that failed, such as "have no output".
        instead: And of what stands for them.

    Raises:
        BadInputError: Partitions cannot be read: they are named, and all others are done.
        TransduceError: Lines failed, or partitions could not be written.
    """
    if plan.standing:
        _log.info(f"{plan.output}: {plan.standing:,} partitions stand already")
    began = told = time.monotonic()
    failures, bad = Failures(), list[TransduceError]()
    for done, outcome in enumerate(outcomes, start=1):
        failures.add(outcome.name, outcome.failures)
        if outcome.error is not None:
            bad.append(outcome.error)
        for warning in outcome.warnings:
            _log.warning(warning)
        advance()
        now = time.monotonic()
        if now - told > _TOLD_SECONDS or done == len(plan.partitions):
            told = now
            _log.info(
                f"{done:,} of {len(plan.partitions):,} partitions: {failures.describe_lines()} in "
                f"{now - began:,.1f} s ({failures.lines / (now - began):,.1f} lines/s)"
            )
    _remove_unfinished(plan)
    failures.warn()
    said = [str(error) for error in bad[:_MOST_TOLD]]
    if len(bad) > _MOST_TOLD:
        said.append(f"{len(bad) - _MOST_TOLD:,} more partitions could not be done")
    said += failures.describe(what, instead)
    if said:
        raise (BadInputError if any(isinstance(error, BadInputError) for error in bad) else TransduceError)(*said)


def _remove_unfinished(plan: Plan) -> None:
    """What was left of these partitions by a process that was ended; what else is unfinished is somebody's at work."""
    ours = {_hidden(each.name) for each in plan.partitions}
    for name in list_names(plan.output):
        if name.endswith(UNFINISHED) and name.removesuffix(UNFINISHED).rpartition(".")[0] in ours:
            delete(join(plan.output, name))


def _hidden(name: str) -> str:
    """How names of an unfinished file begin (``data.whole_file``)."""
    folder, slash, own = name.rpartition("/")
    return f"{folder}{slash}.{own}"
