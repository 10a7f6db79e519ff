"""What a model is and what it costs."""

from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from transduce.bundle import load_bundle
from transduce.config import PRESETS, PUBLISHED, BadInputError, ModelConfig
from transduce.models import TrainableModel, build_without_storage
from transduce.workflows.flops import Flops, count_parts


def inspect_model(name: str, length: int = 25) -> dict[str, Any]:
    """Configuration, parameters, floating-point operations and memory of a preset or a model directory.

    A preset also has its ``meaning``, and its ``regime``: what it changes of a run file's other sections.

    FLOPs are of one pair with ``length`` source and ``length`` target tokens (or as many as there are positions), end
    symbols counted, in training (forward and backward), as a whole and by part: matrix products only, a multiplication
    and an addition counting as two.

    Raises:
        BadInputError: The name is no preset and no model directory.
    """
    if name not in PRESETS and not Path(name).exists():
        nearest = get_close_matches(name, PRESETS, n=1)
        meant = f" (did you mean {nearest[0]!r}?)" if nearest else ""
        raise BadInputError(f"{name}: neither a model directory nor a preset{meant}; presets are {', '.join(PRESETS)}")
    config = PRESETS[name] if name in PRESETS else load_bundle(Path(name)).config
    parameters = _parameters(build_without_storage(config))
    return {
        "model": name,
        **_publication(name),
        "configuration": config.model_dump(),
        "parameters": parameters,
        "flops": _flops(config, length),
        "memory": {
            "weights_float32_bytes": 4 * parameters["total"],
            "weights_bfloat16_bytes": 2 * parameters["total"],
            # Weights, gradients and Adam's two moments in float32; activations come on top.
            "training_state_bytes": 16 * parameters["total"],
        },
    }


def _publication(name: str) -> dict[str, Any]:
    if name not in PUBLISHED:
        return {}
    regime = PUBLISHED[name].regime
    changes = {f"{section}.{key}": value for section, fields in regime.items() for key, value in fields.items()}
    return {"meaning": PUBLISHED[name].meaning, "regime": changes}


def _parameters(model: TrainableModel) -> dict[str, int]:
    parts = {name: sum(weight.numel() for weight in part.parameters()) for name, part in model.named_children()}
    return {"total": sum(weight.numel() for weight in model.parameters()), **{k: v for k, v in parts.items() if v}}


def _flops(config: ModelConfig, length: int) -> dict[str, Any]:
    length = min(length, config.longest or length)
    parts = count_parts(config, length)
    total = sum(parts.values(), Flops(0, 0))
    return {
        "source_tokens": length,
        "target_tokens": length,
        "forward": total.forward,
        "backward": total.backward,
        "forward_and_backward": total.both,
        "parts": {name: asdict(part) for name, part in parts.items()},
    }
