"""The systems of Table 2 at a small size: as many parameters each, and then as much time each, with several seeds."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from transduce.config import (
    REFERENCE_SIZE,
    SYSTEMS,
    DataConfig,
    ModelConfig,
    RunConfig,
    System,
    TrainConfig,
    TransduceError,
    read_run,
)
from transduce.lab.equal_size import Sizes, choose_size, count_parameters
from transduce.lab.measurement import is_measured, read_jobs, read_measurement
from transduce.lab.regime import TOKENIZER, count_steps, make_regime
from transduce.lab.reproduce import NO_PLOT, Planned, Say, Session, check_begun, prepare_base, train_all
from transduce.lab.table2 import Budget, run_name
from transduce.lab.table2_page import PAGE, import_draw, write_table2
from transduce.models import build_without_storage
from transduce.workflows.run_directory import RunDirectory

_REFERENCE: Final = SYSTEMS[0]


@dataclass(frozen=True)
class Plan:
    """What is to be trained: the Transformer and systems beside it, seeds 1 to ``seeds``.

    At equal parameters all have ``steps`` (None: 20 epochs).
    """

    data: DataConfig
    systems: Sequence[System] = SYSTEMS
    seeds: int = 3
    steps: int | None = None
    own_process: bool = False  # as for ``train_run``
    jobs: int = 1  # trainings at a time; where there are several, equal time needs clocks that are known
    device: str | None = None  # a GPU where there is one


def reproduce_table2(plan: Plan, out: Path, say: Say, budget: float = math.inf) -> None:
    """Train and measure what is not yet, for at most ``budget`` seconds, and write the table, its data and its plot.

    The Transformer comes first, with all its seeds; then the first seed of every system at equal parameters, the second
    ...; then likewise at equal time. How many steps that is follows from the clocks of the first seeds, where these
    were trained with nothing else running: systems of which that is not so have no training at equal time.

    Raises:
        BadInputError: The folder holds a table of other text or settings, something in it is damaged, there is no such
            device, or a system cannot be as large as the Transformer.
        TransduceError, StoppedError: As ``train_all``.
    """
    session = Session.begin(budget, say, own_process=plan.own_process, jobs=plan.jobs, device=plan.device)
    if (draw := import_draw()) is None:
        say(NO_PLOT)
    base, models = _settle(plan, _run(out, _REFERENCE, "parameters", 1), say)
    timed = _find_timed(plan, out, say)
    planned = [
        Planned(
            _run(out, system, equal, seed), partial(_configure, out, base, system, models[system.name], equal, seed)
        )
        for system, equal, seed in _order(plan)
        if equal == "parameters" or system in timed
    ]
    check_begun(planned)
    train_all(planned, out / PAGE, partial(write_table2, out, base, draw), session)


def _order(plan: Plan) -> Iterator[tuple[System, Budget, int]]:
    seeds = range(1, plan.seeds + 1)
    yield from ((_REFERENCE, "parameters", seed) for seed in seeds)
    budgets: tuple[Budget, ...] = ("parameters", "time")
    for equal in budgets:
        for seed in seeds:
            yield from ((system, equal, seed) for system in plan.systems if system is not _REFERENCE)


def _find_timed(plan: Plan, out: Path, say: Say) -> list[System]:
    """The systems that can be trained at equal time; of the others it is said why not."""
    others = [system for system in plan.systems if system is not _REFERENCE]
    timed = [system for system in others if _has_clock(plan, out, system) and _has_clock(plan, out, _REFERENCE)]
    if left_out := [system.name for system in others if system not in timed]:
        say(
            f"equal parameters only of {', '.join(left_out)}: equal time needs the clocks of first seeds that run "
            f"alone, and these, or the Transformer's, run beside others (--jobs): for both, begin another --out with "
            f"--seeds 1 and without --jobs, which further seeds may have"
        )
    return timed


def _has_clock(plan: Plan, out: Path, system: System) -> bool:
    """Whether its first seed ran alone or, where it is still to be trained, will."""
    first = _run(out, system, "parameters", 1)
    if is_measured(first):  # which may be all that was kept of it
        return read_measurement(first).jobs == 1
    return plan.jobs == 1 and read_jobs(first) == 1


def _run(out: Path, system: System, equal: Budget, seed: int) -> RunDirectory:
    return RunDirectory(out / f"{run_name(system, equal)}-seed{seed}")


def _settle(plan: Plan, first: RunDirectory, say: Say) -> tuple[RunConfig, Mapping[str, ModelConfig]]:
    """Prepare the text, in the first run, and decide what that training is, and how large each system is."""
    model = _REFERENCE.model(REFERENCE_SIZE)
    config = RunConfig(data=plan.data, tokenizer=TOKENIZER, model=model, train=_regime(1, _REFERENCE, model))
    prepared = prepare_base(config, first, say)
    steps = plan.steps or count_steps(prepared.stored)
    sizes: Sizes = prepared.tokenizers.sizes()
    parameters = count_parameters(model, sizes)
    longest = max(prepared.dev.longest) + 1  # with the end symbol
    others = [each for each in plan.systems if each is not _REFERENCE]
    models = {each.name: choose_size(each, parameters, sizes, longest) for each in others}
    base = config.model_copy(update={"train": _regime(steps, _REFERENCE, model)})
    return base, models | {_REFERENCE.name: model}


def _regime(steps: int, system: System, model: ModelConfig) -> TrainConfig:
    return make_regime(steps, system.peak_rate, build_without_storage(model).width)


def _configure(out: Path, base: RunConfig, system: System, model: ModelConfig, equal: Budget, seed: int) -> RunConfig:
    steps = base.train.max_steps if equal == "parameters" else _steps_in_time(out, base, system, seed)
    train = _regime(steps, system, model).model_copy(update={"seed": seed})
    return base.model_copy(update={"model": model, "train": train})


def _steps_in_time(out: Path, base: RunConfig, system: System, seed: int) -> int:
    """As many as the system takes in the Transformer's time; a training that has begun keeps its own.

    Raises:
        TransduceError: There are no clocks: a first seed failed.
    """
    run = _run(out, system, "time", seed)
    if run.has_checkpoints:
        return read_run(run.config).train.max_steps
    firsts = [_run(out, each, "parameters", 1) for each in (_REFERENCE, system)]
    if missing := [first.root.name for first in firsts if not is_measured(first)]:
        raise TransduceError(f"equal time needs the clock of {', '.join(missing)}, which is not trained")
    transformer, own = (read_measurement(first).seconds for first in firsts)
    return max(1, round(base.train.max_steps * transformer / own)) if own else base.train.max_steps
