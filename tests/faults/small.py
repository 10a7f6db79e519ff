"""A small training whose end can be compared: what runs it, and what it leaves behind."""

import shutil
from pathlib import Path
from typing import Any

from transduce.training import list_checkpoints, read_progress

STEPS = 13
SETTINGS = {
    "max_steps": STEPS,
    "checkpoint_every": 2,  # 13 is no multiple: the last step's is one of its own
    "validate_every": 3,
    "log_every": 1,
    "keep_checkpoints": 1,  # an older one that goes too early is missed
    "batch_tokens": 64,
}


def command(run_file: Path, root: Path, **more: Any) -> list[str]:
    """What is typed after ``transduce``."""
    settings = [f"--set=train.{key}={value}" for key, value in (SETTINGS | more).items()]
    return ["train", str(run_file), "--out", str(root), "--resume", *settings]


def copy_prepared(whole: Path, root: Path) -> Path:
    """A run that is prepared and not begun."""
    ignored = shutil.ignore_patterns("checkpoints", "best", "metrics.jsonl")
    return shutil.copytree(whole, root, ignore=ignored)


def ends_alike(root: Path, whole: Path) -> bool:
    """Bit for bit, and the best model too."""
    ends = [list_checkpoints(each / "checkpoints")[-1][1] for each in (root, whole)]
    assert [end.name for end in ends] == [f"step-{STEPS}"] * 2
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert (ends[0] / name).read_bytes() == (ends[1] / name).read_bytes(), name
    assert (root / "best/model.safetensors").read_bytes() == (whole / "best/model.safetensors").read_bytes()
    states = [read_progress(end).model_dump(exclude={"seconds", "checkpoint_seconds"}) for end in ends]
    assert states[0] == states[1]
    # Where the last pruning of all was cut short, a part of an older one is left beside them, and no later one follows.
    kept = [[path.name for _, path in list_checkpoints(each / "checkpoints")] for each in (root, whole)]
    assert kept[0] == kept[1]
    return True
