"""The trainings that a table is made of: each finished and measured once, in as many sessions as it takes."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from transduce.config import BadInputError, RunConfig, read_run, write_run
from transduce.lab.measurement import is_measured, measure
from transduce.training import list_checkpoints, read_progress
from transduce.workflows.prepare import Prepared, prepare, share_preparation
from transduce.workflows.run_directory import RunDirectory
from transduce.workflows.train import train_run

Say = Callable[[str], None]

NO_PLOT: Final = "no plot will be drawn: that needs matplotlib, pip install 'transduce[plot]'"


@final
@dataclass(frozen=True)
class Planned:
    """A training of a table: its run directory, and what it is, which may follow from the measurements before it."""

    run: RunDirectory
    configure: Callable[[], RunConfig]


@final
@dataclass(frozen=True)
class Session:
    """Until when to work, by the monotonic clock; whom to tell; and ``own_process`` as for ``train_run``."""

    end: float
    say: Say
    own_process: bool = False

    @classmethod
    def begin(cls, budget: float, say: Say, *, own_process: bool = False) -> "Session":
        """One of at most ``budget`` seconds from now on."""
        return cls(time.monotonic() + budget, say, own_process)


def prepare_base(config: RunConfig, base: RunDirectory, say: Say) -> Prepared:
    """The text of a table, in the run directory of its first training: all others share it."""
    prepared = prepare(config, base)
    for line in prepared.report if prepared.new else ():
        say(line)
    return prepared


def check_begun(planned: Sequence[Planned]) -> None:
    """See that what earlier sessions have begun is what is planned now.

    Raises:
        BadInputError: It is not: the folder holds a table of other settings.
    """
    for each in planned:
        if each.run.has_checkpoints:
            _check_same(each.configure(), each.run)


def train_all(planned: Sequence[Planned], page: Path, write: Callable[[], None], session: Session) -> None:
    """Train and measure what is not yet, in this order, and ``write`` the page at first and behind each measurement.

    The first one's preparation is everybody's. The training that the session's end interrupts goes on from there the
    next time; what is finished is never repeated. Only dev's translation behind the last training may end later.

    Raises:
        BadInputError: Something in a run directory is damaged.
    """
    write()
    base = planned[0].run
    for number, each in enumerate(planned, start=1):
        if is_measured(each.run):
            continue
        if (left := session.end - time.monotonic()) <= 0:
            break
        session.say(f"training {number} of {len(planned)}: {each.run.root.name}")
        if not _train(each.configure(), each.run, base, left, session.own_process):
            break
        measured = measure(each.run)
        write()
        session.say(
            f"perplexity {measured.perplexity:.2f}, BLEU {measured.bleu:.1f}; trained {measured.seconds / 60:.1f} min"
        )
    done = sum(is_measured(each.run) for each in planned)
    rest = "" if done == len(planned) else ": the budget is used up, the same command goes on"
    session.say(f"{page}: {done} of {len(planned)} trainings{rest}")


def _check_same(config: RunConfig, run: RunDirectory) -> None:
    began, now = _flatten(read_run(run.config)), _flatten(config)
    keys = dict.fromkeys([*now, *began])
    different = [
        f"{key} was {began.get(key, 'not there')} and is {now.get(key, 'not there')}"
        for key in keys
        if began.get(key) != now.get(key)
    ]
    if different:
        more = f" (and {len(different) - 1} more)" if len(different) > 1 else ""
        raise BadInputError(
            f"{run.root.parent}: holds a table of other settings: {different[0]}{more}: give those again, or "
            f"another --out"
        )


def _flatten(config: RunConfig) -> dict[str, Any]:
    sections = config.model_dump(include={"model": True, "train": True}, exclude={"train": {"max_minutes"}})
    return {f"{section}.{key}": value for section, fields in sections.items() for key, value in fields.items()}


def _train(config: RunConfig, run: RunDirectory, base: RunDirectory, seconds: float, own_process: bool) -> bool:
    """Go on for at most so long; whether it is finished."""
    share_preparation(base, run)
    checkpoints = list_checkpoints(run.checkpoints)
    before = read_progress(checkpoints[-1][1]).seconds if checkpoints else 0.0
    limit = (before + seconds) / 60 if math.isfinite(seconds) else None
    limited = config.model_copy(update={"train": config.train.model_copy(update={"max_minutes": limit})})
    progress = train_run(limited, run, resume=run.has_checkpoints, session_only=True, own_process=own_process)
    write_run(config, run.config)  # the limit was this session's, not the training's
    return progress.step >= config.train.max_steps
