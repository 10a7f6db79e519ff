"""What was given in the place of a model directory, and what to do with it."""

import json
from pathlib import Path
from typing import Any, Final

from transduce.config.files import ANEW

CONFIG: Final = "config.json"
WEIGHTS: Final = "model.safetensors"
BEST: Final = "best"
CHECKPOINTS: Final = "checkpoints"  # of a run
RUN_FILE: Final = "run.toml"
_STORE: Final = "store"  # of a run
# Where a folder of models, or of runs, has their settings.
_MODELS: Final = (f"*/{CONFIG}", f"*/{BEST}/{CONFIG}")
_NAMED: Final = 3
_FILES: Final = {
    ".npz": "a model of Marian",
    ".pt": "a checkpoint of PyTorch",
    ".ckpt": "a checkpoint of JoeyNMT",
}


def advise(path: Path) -> str:
    """How a message about a path goes on that is no model directory: with a colon, or not at all."""
    what = (_advise_of_file if path.is_file() else _advise_of_folder)(path)
    return f": {what}" if what else ""


def find_other_format(folder: Path) -> str | None:
    """What a folder is that is not ours, if another library's format is known by its files; and what to do."""
    if is_for_onnx(folder):
        return "a model for ONNX Runtime, which no verb reads back: give the model that it was exported from"
    if (folder / "model.bin").is_file():
        return f"a model of CTranslate2: {_import(folder)}"
    if "model_type" in _read(folder / CONFIG):
        return f"a model of transformers: {_import(folder)}"
    if (folder / "config.yaml").is_file() and any(folder.glob("*.ckpt")):
        return f"a model of JoeyNMT: {_import(folder)}"
    for suffix, what in _FILES.items():
        if found := sorted(folder.glob(f"*{suffix}")):
            return f"a folder with {what}: {_import(found[0])}"
    return None


def is_for_onnx(folder: Path) -> bool:
    """Whether a folder has models of that format alone, as ``export --to onnx`` and others lay them out."""
    if (folder / WEIGHTS).is_file() or (folder / "pytorch_model.bin").is_file():
        return False
    return any(folder.glob("*.onnx")) or any(folder.glob("onnx/*.onnx"))


def _import(path: Path) -> str:
    return f"transduce import {path} --out MODEL makes a model directory of it"


def _read(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _advise_of_file(path: Path) -> str | None:
    if path.name == WEIGHTS:
        return f"give the folder that it is in, {path.parent}"
    if path.suffix == ".toml":
        return f"a run file, which transduce train {path} makes a run of"
    what = _FILES.get(path.suffix)
    return f"it is {what}: {_import(path)}" if what else None


def _advise_of_folder(path: Path) -> str | None:
    """Of a training's checkpoints (tokenizer and settings lie elsewhere), a folder of models, or another format."""
    deep = path if len(path.parts) > 2 else path.absolute()
    run, what = path, "it has checkpoints"
    if deep.name == CHECKPOINTS:
        run, what = deep.parent, "these are checkpoints"
    elif deep.parent.name == CHECKPOINTS:
        run, what = deep.parent.parent, "this is a checkpoint"
    if any((run / CHECKPOINTS).glob("step-*")):
        return f"{what}, and transduce average {run} --last 1 --out MODEL makes a model of the newest one"
    models = sorted(path / file.relative_to(path).parts[0] for place in _MODELS for file in path.glob(place))
    if models:
        more = ", ..." if len(models) > _NAMED else ""
        return f"there are some in it: {', '.join(map(str, models[:_NAMED]))}{more}"
    if (path / RUN_FILE).is_file() and ((path / _STORE).is_dir() or (path / CHECKPOINTS).is_dir()):
        return f"its training came to no checkpoint: transduce train {path / RUN_FILE} --resume trains it"
    if (path / WEIGHTS).is_file():
        return ANEW
    other = find_other_format(path)
    return f"it is {other}" if other else None
