"""The trainings that a table is made of: each finished and measured once, in as many sessions as it takes."""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import Any, Final, final

import torch

from transduce.config import METRICS, BadInputError, RunConfig, StoppedError, TransduceError, read_run, write_run
from transduce.config.errors import explain
from transduce.inference.arguments import read_device
from transduce.lab.jobs import Job, Settings, train_jobs
from transduce.lab.measurement import Measurement, is_measured, measure, note_jobs, read_measurement
from transduce.training import Abandoned, Processes, Requests, list_checkpoints, listen, read_progress
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
    """Until when to work, by the monotonic clock; whom to tell; and ``own_process`` as for ``train_run``.

    So many ``jobs`` are trainings at a time; more than one have a process each, on the ``devices`` by turns.
    """

    end: float
    say: Say
    own_process: bool = False
    jobs: int = 1
    devices: tuple[torch.device, ...] = (torch.device("cpu"),)

    @classmethod
    def begin(
        cls, budget: float, say: Say, *, own_process: bool = False, jobs: int = 1, device: str | None = None
    ) -> "Session":
        """One of at most ``budget`` seconds from now on, on the device named or else on what GPUs there are.

        Raises:
            BadInputError: There is no such device.
        """
        return cls(time.monotonic() + budget, say, own_process, jobs, _find_devices(read_device(device)))


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
        TransduceError: Some failed, which does not end the others.
        StoppedError: A signal ended it.
    """
    write()
    train = _train_in_turn if session.jobs == 1 else _train_together
    failed = train(planned, write, session)
    done = sum(is_measured(each.run) for each in planned)
    over = "" if done + len(failed) == len(planned) else ": the budget is used up, the same command goes on"
    session.say(f"{page}: {done} of {len(planned)} trainings{over}")
    if failed:
        raise TransduceError(
            f"{page.parent}: {len(failed)} of {len(planned)} trainings failed: {', '.join(failed)}: the reasons are "
            f"above; the same command tries these again, and what is finished is kept"
        )


def finish(config: RunConfig, run: RunDirectory, base: RunDirectory, seconds: float, session: Session) -> bool:
    """Train for at most so many seconds and, where the training is finished by then, measure it; whether it is.

    Raises:
        TransduceError: As ``train_run``.
    """
    device = session.devices[0]
    if device.type == "cuda" and device.index is not None:
        # What names no device, such as waiting for one, means the current one.
        torch.cuda.set_device(device)
    finished = _train(config, run, base, seconds, session)
    if finished:
        measure(run, device)
    return finished


def _find_devices(named: torch.device | None) -> tuple[torch.device, ...]:
    if named is not None:
        return (named,)
    if not torch.cuda.is_available():
        return (torch.device("cpu"),)
    return tuple(torch.device("cuda", number) for number in range(torch.cuda.device_count()))


def _train_in_turn(planned: Sequence[Planned], write: Callable[[], None], session: Session) -> list[str]:
    """One after the other; the names of those that failed."""
    failed = []
    for number, each in enumerate(planned, start=1):
        if is_measured(each.run):
            continue
        if (left := session.end - time.monotonic()) <= 0:
            break
        title = f"training {number} of {len(planned)}: {each.run.root.name}"
        session.say(title)
        try:
            finished = finish(each.configure(), each.run, planned[0].run, left, session)
        except StoppedError as error:
            raise _stopped(Signals(error.status - 128)) from None
        except (TransduceError, OSError) as error:
            failed.append(each.run.root.name)
            session.say(f"{title}: failed: {describe_failure(error)}")
            continue
        if not finished:
            break
        write()
        session.say(_describe(read_measurement(each.run)))
    return failed


def _train_together(planned: Sequence[Planned], write: Callable[[], None], session: Session) -> list[str]:
    """Several at a time; the names of those that failed."""
    settings = Settings(
        base=planned[0].run.root,
        end=session.end,
        jobs=session.jobs,
        threads=max(1, torch.get_num_threads() // session.jobs),
        devices=tuple(map(str, session.devices)),
    )
    jobs = [
        Job(f"training {number} of {len(planned)}: {each.run.root.name}", each.configure(), each.run.root)
        for number, each in enumerate(planned, start=1)
        if not is_measured(each.run)
    ]
    failed: set[str] = set()
    requests = Requests()
    try:
        with listen(requests), closing(train_jobs(jobs, settings)) as ended:
            for job, outcome in ended:
                if outcome.failure is not None:
                    failed.add(job.root.name)
                    session.say(f"{job.title}: failed: {outcome.failure}")
                elif outcome.finished:
                    write()
                    session.say(f"{job.title}: {_describe(read_measurement(RunDirectory(job.root)))}")
    except Abandoned:
        by = requests.stopped_by
        assert by is not None
        raise _stopped(by) from None
    return [each.run.root.name for each in planned if each.run.root.name in failed]


def _stopped(by: Signals) -> StoppedError:
    return StoppedError(
        f"stopped by {by.name}: what is trained so far is kept, the same command goes on from there", by
    )


def describe_failure(error: TransduceError | OSError) -> str:
    """What it says, in one line."""
    return "; ".join(map(str, (explain(error) if isinstance(error, OSError) else error).args))


def _describe(measured: Measurement) -> str:
    perplexity = METRICS["perplexity"].show(measured.perplexity)
    return f"perplexity {perplexity}, BLEU {measured.bleu:.1f}; trained {measured.seconds / 60:.1f} min"


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


def _train(config: RunConfig, run: RunDirectory, base: RunDirectory, seconds: float, session: Session) -> bool:
    """Go on for at most so long; whether it is finished."""
    share_preparation(base, run)
    note_jobs(run, session.jobs)
    checkpoints = list_checkpoints(run.checkpoints)
    before = read_progress(checkpoints[-1][1]).seconds if checkpoints else 0.0
    limit = (before + seconds) / 60 if math.isfinite(seconds) else None
    limited = config.model_copy(update={"train": config.train.model_copy(update={"max_minutes": limit})})
    progress = train_run(
        limited,
        run,
        resume=run.has_checkpoints,
        session_only=True,
        processes=Processes(device=session.devices[0]),
        own_process=session.own_process,
    )
    write_run(config, run.config)  # the limit was this session's, not the training's
    return progress.step >= config.train.max_steps
