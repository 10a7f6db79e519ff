"""Table 3 at a smaller size: every row trained with several seeds, in as many sessions as it takes."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from transduce.config import (
    TABLE3,
    BadInputError,
    DataConfig,
    RunConfig,
    Table3Row,
    TrainConfig,
    read_run,
    scale_preset,
    scale_steps,
    write_run,
)
from transduce.data import plan_epoch
from transduce.lab.measurement import is_measured, measure
from transduce.lab.table3_page import PAGE, import_draw, write_table3
from transduce.training import list_checkpoints, read_progress
from transduce.workflows.prepare import Prepared, prepare, share_preparation
from transduce.workflows.run_directory import RunDirectory
from transduce.workflows.train import train_run

_BASE: Final = TABLE3[0]
_BATCH_TOKENS: Final = 2048
_EPOCHS: Final = 10
_PEAK_RATE: Final = 0.002


@dataclass(frozen=True)
class Plan:
    """What is to be trained: base and rows beside it, seeds 1 to ``seeds``, base for ``steps`` (None: ten epochs)."""

    data: DataConfig
    rows: Sequence[Table3Row] = TABLE3
    seeds: int = 3
    steps: int | None = None
    own_process: bool = False  # as for ``train_run``


def reproduce_table3(plan: Plan, out: Path, say: Callable[[str], None], budget: float = math.inf) -> None:
    """Train and measure what is not yet, for at most ``budget`` seconds, and write the table, its data and its plot.

    Base comes first, with all its seeds, as every difference needs it and its spread; then the first seed of every
    row, then the second ... The training that the budget ends goes on from there the next time; what is finished is
    never repeated. Only dev's translation behind the last training may end later than the budget.

    Raises:
        BadInputError: The folder holds a table of other text or settings, or something in it is damaged.
    """
    end = time.monotonic() + budget
    if (draw := import_draw()) is None:
        say("no plot will be drawn: that needs matplotlib, pip install 'transduce[plot]'")
    base = _run(out, _BASE, 1)
    config = _settle(plan, base, say)
    write_table3(out, config, draw)
    trainings = [(_run(out, row, seed), _configure(config, row, seed)) for row, seed in _order(plan)]
    for number, (run, training) in enumerate(trainings, start=1):
        if is_measured(run):
            continue
        if (left := end - time.monotonic()) <= 0:
            break
        say(f"training {number} of {len(trainings)}: {run.root.name}")
        if not _train(training, run, base, left, plan.own_process):
            break
        measured = measure(run)
        write_table3(out, config, draw)
        say(f"perplexity {measured.perplexity:.2f}, BLEU {measured.bleu:.1f}; trained {measured.seconds / 60:.1f} min")
    done = sum(is_measured(run) for run, _ in trainings)
    rest = "" if done == len(trainings) else ": the budget is used up, the same command goes on"
    say(f"{out / PAGE}: {done} of {len(trainings)} trainings{rest}")


def _order(plan: Plan) -> Iterator[tuple[Table3Row, int]]:
    seeds = range(1, plan.seeds + 1)
    yield from ((_BASE, seed) for seed in seeds)
    yield from ((row, seed) for seed in seeds for row in plan.rows if row is not _BASE)


def _run(out: Path, row: Table3Row, seed: int) -> RunDirectory:
    return RunDirectory(out / f"{row.preset}-seed{seed}")


def _settle(plan: Plan, base: RunDirectory, say: Callable[[str], None]) -> RunConfig:
    """Prepare the text, in base's first run, and decide what that training is; all others follow from it."""
    config = RunConfig(data=plan.data, model=scale_preset(_BASE.preset), train=_regime(1))
    prepared = prepare(config, base)
    for line in prepared.report if prepared.new else ():
        say(line)
    config = config.model_copy(update={"train": _regime(plan.steps or _EPOCHS * _count_batches(prepared))})
    if base.has_checkpoints:
        _check_same(config, base)
    return config


def _count_batches(prepared: Prepared) -> int:
    """Of an epoch."""
    return plan_epoch(prepared.train, _BATCH_TOKENS, seed=1, epoch=0).count_batches()


def _regime(steps: int) -> TrainConfig:
    """The paper's regime, but its schedule is shortened to the length as in the recipes for Multi30k.

    An eighth of the steps is warm-up, 4,000 at most, and the factor is such that base's rate peaks at 0.002 whatever
    the length: the formula alone would let it grow as the warm-up shrinks. Rows of other widths have other peaks, by
    the formula. Over the last quarter the rate falls to nothing: the formula alone would end at a third of the peak,
    where the paper's end is a fifth.
    """
    warmup = min(TrainConfig().warmup_steps, max(1, steps // 8))
    return TrainConfig(
        batch_tokens=_BATCH_TOKENS,
        max_steps=steps,
        learning_rate_factor=_PEAK_RATE * math.sqrt(scale_preset(_BASE.preset).d_model * warmup),
        warmup_steps=warmup,
        cooldown_steps=max(1, steps // 4),
        log_every=100,
        validate_every=steps,
        checkpoint_every=steps,
        checkpoint_minutes=2.0,
        keep_checkpoints=1,
    )


def _check_same(config: RunConfig, base: RunDirectory) -> None:
    """All trainings of a table are alike but for row and seed, those of earlier sessions too."""
    began, now = _flatten(read_run(base.config)), _flatten(config)
    different = [f"{key} was {began[key]} and is {value}" for key, value in now.items() if began[key] != value]
    if different:
        more = f" (and {len(different) - 1} more)" if len(different) > 1 else ""
        raise BadInputError(
            f"{base.root.parent}: holds a table of other settings: {different[0]}{more}: give those again, or "
            f"another --out"
        )


def _flatten(config: RunConfig) -> dict[str, Any]:
    sections = config.model_dump(include={"model": True, "train": True}, exclude={"train": {"max_minutes"}})
    return {f"{section}.{key}": value for section, fields in sections.items() for key, value in fields.items()}


def _configure(base: RunConfig, row: Table3Row, seed: int) -> RunConfig:
    steps = scale_steps(row.preset, base.train.max_steps)
    changes = {"max_steps": steps, "validate_every": steps, "checkpoint_every": steps, "seed": seed}
    return RunConfig(data=base.data, model=scale_preset(row.preset), train=base.train.model_copy(update=changes))


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
