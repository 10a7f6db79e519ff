"""Table 3 at a smaller size: every row trained with several seeds, in as many sessions as it takes."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

from transduce.config import VARIATIONS, DataConfig, NormPosition, RunConfig, Table3Row, scale_preset, scale_steps
from transduce.lab.regime import TOKENIZER, count_steps, make_regime
from transduce.lab.reproduce import NO_PLOT, Planned, Say, Session, check_begun, prepare_base, train_all
from transduce.lab.table3_page import PAGE, import_draw, write_table3
from transduce.workflows.run_directory import RunDirectory

_BASE: Final = VARIATIONS[0]
# Base's: with the norm in front the quick recipe's; after the sum, where larger ones are a risk, two thirds of it.
_PEAK_RATES: Final[Mapping[NormPosition, float]] = MappingProxyType({"post": 0.004, "pre": 0.0063})


@dataclass(frozen=True)
class Plan:
    """What is to be trained: base and rows beside it, seeds 1 to ``seeds``, base for ``steps`` (None: 20 epochs).

    ``norm`` is where all rows have it: the paper's is ``post``; with ``pre`` the stacks learn in fewer steps.
    ``peak_rate`` is base's highest learning rate, where it is to be another than the norm's usual one.
    """

    data: DataConfig
    rows: Sequence[Table3Row] = VARIATIONS
    seeds: int = 3
    steps: int | None = None
    norm: NormPosition = "post"
    peak_rate: float | None = None
    own_process: bool = False  # as for ``train_run``
    jobs: int = 1  # trainings at a time
    device: str | None = None  # a GPU where there is one


def reproduce_table3(plan: Plan, out: Path, say: Say, budget: float = math.inf) -> None:
    """Train and measure what is not yet, for at most ``budget`` seconds, and write the table, its data and its plot.

    Base comes first, with all its seeds, as every difference needs it and its spread; then the first seed of every
    row, then the second ...

    Raises:
        BadInputError: The folder holds a table of other text or settings, something in it is damaged, or there is no
            such device.
        TransduceError, StoppedError: As ``train_all``.
    """
    session = Session.begin(budget, say, own_process=plan.own_process, jobs=plan.jobs, device=plan.device)
    if (draw := import_draw()) is None:
        say(NO_PLOT)
    config = _settle(plan, _run(out, _BASE, 1), say)
    planned = [Planned(_run(out, row, seed), partial(_configure, config, row, seed)) for row, seed in _order(plan)]
    check_begun(planned)
    train_all(planned, out / PAGE, partial(write_table3, out, config, draw), session)


def _order(plan: Plan) -> Iterator[tuple[Table3Row, int]]:
    seeds = range(1, plan.seeds + 1)
    yield from ((_BASE, seed) for seed in seeds)
    yield from ((row, seed) for seed in seeds for row in plan.rows if row is not _BASE)


def _run(out: Path, row: Table3Row, seed: int) -> RunDirectory:
    return RunDirectory(out / f"{row.preset}-seed{seed}")


def _settle(plan: Plan, base: RunDirectory, say: Say) -> RunConfig:
    """Prepare the text, in base's first run, and decide what that training is; all others follow from it."""
    model = scale_preset(_BASE.preset, norm=plan.norm)
    peak = _PEAK_RATES[plan.norm] if plan.peak_rate is None else plan.peak_rate
    config = RunConfig(data=plan.data, tokenizer=TOKENIZER, model=model, train=make_regime(1, peak, model.d_model))
    prepared = prepare_base(config, base, say)
    steps = plan.steps or count_steps(prepared.stored)
    return config.model_copy(update={"train": make_regime(steps, peak, model.d_model)})


def _configure(base: RunConfig, row: Table3Row, seed: int) -> RunConfig:
    steps = scale_steps(row.preset, base.train.max_steps)
    changes = {"max_steps": steps, "validate_every": steps, "checkpoint_every": steps, "seed": seed}
    assert base.model.architecture == "transformer"
    return base.model_copy(
        update={
            "model": scale_preset(row.preset, norm=base.model.norm),
            "train": base.train.model_copy(update=changes),
        }
    )
