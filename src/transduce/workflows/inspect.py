"""What a model is and what it costs."""

from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from transduce.bundle import load_bundle
from transduce.config import PRESETS, BadInputError, ModelConfig
from transduce.models import Tokens, Transformer, build


def inspect_model(name: str, length: int = 25) -> dict[str, Any]:
    """Configuration, parameters, floating-point operations and memory of a preset or a model directory.

    FLOPs are of one pair with ``length`` source and ``length`` target tokens, end symbols counted, in training
    (forward and backward), matrix products only, a multiplication and an addition counting as two.

    Raises:
        BadInputError: The name is no preset and no model directory.
    """
    if name not in PRESETS and not Path(name).exists():
        raise BadInputError(f"{name}: neither a model directory nor a preset; presets are {', '.join(sorted(PRESETS))}")
    config = PRESETS[name] if name in PRESETS else load_bundle(Path(name)).config
    with torch.device("meta"):
        model = build(config)
    parameters = _parameters(model)
    return {
        "model": name,
        "configuration": config.model_dump(),
        "parameters": parameters,
        "flops": {
            "forward_and_backward": _flops(model, config, length),
            "source_tokens": length,
            "target_tokens": length,
        },
        "memory": {
            "weights_float32_bytes": 4 * parameters["total"],
            "weights_bfloat16_bytes": 2 * parameters["total"],
            # Weights, gradients and Adam's two moments in float32; activations come on top.
            "training_state_bytes": 16 * parameters["total"],
        },
    }


def _parameters(model: Transformer) -> dict[str, int]:
    parts = {name: sum(weight.numel() for weight in part.parameters()) for name, part in model.named_children()}
    return {"total": sum(weight.numel() for weight in model.parameters()), **{k: v for k, v in parts.items() if v}}


def _flops(model: Transformer, config: ModelConfig, length: int) -> int:
    """Counted as the operations run, on tensors without storage."""
    with torch.device("meta"):
        ids = torch.zeros(1, length, dtype=torch.long)
        tokens = Tokens(ids, torch.full((1,), length))
    counter = FlopCounterMode(display=False)
    with counter:
        hidden = model.decode(model.encode(tokens), tokens).hidden
        model.project(hidden).sum().backward()  # type: ignore[no-untyped-call]
    return counter.get_total_flops()
