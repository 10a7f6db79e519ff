"""A run directory as a page about its training."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from transduce.config import BadInputError, RunConfig, read_run
from transduce.viewing import ReportPage, TrainingRecord
from transduce.workflows.run_directory import RunDirectory, check_run

_log = logging.getLogger(__name__)

# What says most of a run, as far as its architecture has it.
_MODEL: Final = ("architecture", "encoder_layers", "decoder_layers", "d_model", "d_ff", "heads", "norm", "dropout")
_NAMED: Final = 5  # damaged lines
_REGIME: Final = ("max_steps", "max_minutes", "batch_tokens", "accumulate", "learning_rate", "warmup_steps", "seed")


def view_training(run: RunDirectory) -> ReportPage:
    """The page of a training, finished or under way.

    Raises:
        BadInputError: It is no run directory, or nothing was measured there yet.
    """
    check_run(run)
    if not run.metrics.is_file():
        raise BadInputError(f"{run.metrics}: is missing: nothing was trained yet; transduce train {run.config} does it")
    lines, notes = read_metrics(run.metrics)
    for note in notes:
        _log.warning(f"{run.metrics}: {note}")
    config = read_run(run.config)
    if not lines:
        raise BadInputError(
            f"{run.metrics}: no measurement yet: the first one comes at step {config.train.log_every:,} "
            f"(train.log_every): train further, or wait until then"
        )
    return ReportPage(
        TrainingRecord(
            name=run.root.resolve().name,
            lines=lines,
            best_metric=config.train.best_metric,
            facts=_describe(config),
            settings=run.config.read_text(encoding="utf-8"),
            preparation=run.report.read_text(encoding="utf-8") if run.report.is_file() else "",
            notes=notes,
        )
    )


def read_metrics(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The lines of ``metrics.jsonl`` by step, and what is to be said of those that cannot be read."""
    rows = path.read_bytes().split(b"\n")
    lines, damaged = [], []
    for place, row in enumerate(rows, 1):
        if not row.strip():
            continue
        if (line := _read_line(row)) is None:
            damaged.append(place)
        else:
            lines.append(line)
    lines.sort(key=lambda line: line["step"])
    notes = []
    if damaged and not any(row.strip() for row in rows[damaged[-1] :]):
        notes.append("the last line is cut short, as a crash or a full disk leaves it: left out (--resume repairs it)")
        damaged.pop()
    if damaged:
        more = f" and {len(damaged) - _NAMED:,} more" if len(damaged) > _NAMED else ""
        notes.append(f"damaged lines are left out: {', '.join(map(str, damaged[:_NAMED]))}{more}")
    return lines, notes


def _describe(config: RunConfig) -> dict[str, str]:
    """What is trained, in a few words."""
    model, train = config.model.model_dump(mode="json"), config.train.model_dump(mode="json")
    kinds = [f"{side.kind}, {side.path or f'{side.vocab_size:,}'}" for side in config.tokenizer.sides]
    return {
        "Model": _settings(model, _MODEL),
        "Vocabulary": "; ".join(kinds),
        "Training": _settings(train, _REGIME),
    }


def _settings(section: dict[str, Any], keys: Sequence[str]) -> str:
    return ", ".join(f"{key} {section[key]}" for key in keys if section.get(key) is not None)


def _read_line(row: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(row)
    except (ValueError, RecursionError):
        return None
    match line:
        case {"step": int(step), "split": "train" | "dev"} if step >= 0:
            return dict(line)
        case _:
            return None
