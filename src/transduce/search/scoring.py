"""Forced scoring: how probable given outputs are."""

from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transduce.models import Model, State, Tokens

M = TypeVar("M")
S = TypeVar("S", bound=State)


@torch.inference_mode()
def score_targets(
    model: Model[M, S], source: Tokens, target: Tokens, labels: Int[Tensor, "batch length"]
) -> Float[Tensor, " batch"]:
    """The natural log-probability of each target, end symbol counted; ``target`` and ``labels`` as in training."""
    hidden = model.decode(model.encode(source), target).hidden
    packing = target.packing()
    log_probability = torch.log_softmax(model.project(hidden).float(), dim=-1)
    chosen = log_probability.gather(-1, packing.pack(labels).unsqueeze(-1)).squeeze(-1)
    return packing.pad(chosen).sum(dim=1)
