"""Forced scoring: how probable given outputs are."""

from typing import Final, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transduce.models import Model, State, Tokens

M = TypeVar("M")
S = TypeVar("S", bound=State)

# So many logits are a gibibyte in float32. A batch of 4,096 symbols is one piece up to a vocabulary of 65,536.
_LOGITS: Final = 2**28


# A training may ask this of the very model that it trains: what inference_mode made, no gradient could go through.
@torch.no_grad()
def score_tokens(
    model: Model[M, S], source: Tokens, target: Tokens, labels: Int[Tensor, "batch length"]
) -> Float[Tensor, "batch length"]:
    """The natural log-probability of each label, end symbol counted, 0 in the padding; inputs as in training.

    The logits of a large batch are computed in pieces, so that they never exist at once.
    """
    hidden = model.decode(model.encode(source), target).hidden
    layout = target.layout()
    return layout.pad(_chosen(model, hidden, layout.flatten(labels)))


def score_targets(
    model: Model[M, S], source: Tokens, target: Tokens, labels: Int[Tensor, "batch length"]
) -> Float[Tensor, " batch"]:
    """The natural log-probability of each target: the sum of ``score_tokens``."""
    return score_tokens(model, source, target, labels).sum(dim=1)


def _chosen(
    model: Model[M, S], hidden: Float[Tensor, "tokens model"], labels: Int[Tensor, " tokens"]
) -> Float[Tensor, " tokens"]:
    """The log-probability of each label by its hidden state."""
    # How many symbols there are is a model's own matter: its first row of logits says it.
    rows = max(1, _LOGITS // model.project(hidden[:1]).shape[-1])
    parts = []
    for some, wanted in zip(torch.split(hidden, rows), torch.split(labels, rows), strict=True):
        log_probability = torch.log_softmax(model.project(some).float(), dim=-1)
        parts.append(log_probability.gather(-1, wanted.unsqueeze(-1)).squeeze(-1))
    return torch.cat(parts)
