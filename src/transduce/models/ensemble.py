"""Several models as one: the mean of their probabilities."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from transduce.kernels import AllowedTokens, LogitColumns
from transduce.models.contract import (
    NO_ATTENTION,
    AttentionRequest,
    AttentionWeights,
    Decoded,
    LossSums,
    SizedModel,
    Step,
    Tokens,
    Weights,
)


@final
@dataclass(frozen=True)
class EnsembleState:
    """Every model's own state; they go the same way."""

    parts: tuple[Any, ...]  # each model has a kind of its own

    @property
    def beam(self) -> int:
        """Rows for each sentence."""
        beam: int = self.parts[0].beam
        return beam

    def reorder(self, rows: Int[Tensor, " rows"]) -> "EnsembleState":
        """Row i goes on from row ``rows[i]``, which belongs to the same sentence."""
        return EnsembleState(tuple(part.reorder(rows) for part in self.parts))

    def release(self, finished: Bool[Tensor, " sentences"]) -> "EnsembleState":
        """Remove the finished sentences with all their rows; the others keep their order."""
        return EnsembleState(tuple(part.release(finished) for part in self.parts))

    def admit(self, other: "EnsembleState") -> "EnsembleState":
        """Append the sentences of another state of the same beam; they may have read different numbers of symbols."""
        return EnsembleState(tuple(a.admit(b) for a, b in zip(self.parts, other.parts, strict=True)))


@final
class Ensemble:
    """Models with the same vocabularies; it keeps the contract of ``models.contract.Model``.

    p(symbol) = sum_m p_m(symbol) / M: a mixture, whose probabilities sum to 1 as they are. The hidden states of all
    models are concatenated, and so are their attention's heads; of layers, there are as many as all models have.
    """

    def __init__(self, models: Sequence[SizedModel[Any, Any]]) -> None:
        self._models = tuple(models)
        self._widths = [model.width for model in models]
        # Of each model's hidden states; together they are of the widest.
        self._formats: list[torch.dtype] | None = None

    def encode(self, source: Tokens, *, attention: AttentionRequest = NO_ATTENTION) -> tuple[Any, ...]:
        """Read the sources, which end with the end symbol."""
        return tuple(model.encode(source, attention=attention) for model in self._models)

    def decode(self, memory: tuple[Any, ...], target: Tokens, *, attention: AttentionRequest = NO_ATTENTION) -> Decoded:
        """Hidden states for all positions of known targets, which begin with the begin symbol."""
        decoded = [
            model.decode(part, target, attention=attention) for model, part in zip(self._models, memory, strict=True)
        ]
        self._formats = [each.hidden.dtype for each in decoded]
        hidden = torch.cat([each.hidden for each in decoded], dim=-1)
        kinds = ("encoder", "decoder", "cross")
        weights = {kind: _join_heads([getattr(each.attention, kind) for each in decoded]) for kind in kinds}
        return Decoded(hidden, attention=AttentionWeights(**weights))

    def project(self, hidden: Float[Tensor, "*positions model"]) -> Float[Tensor, "*positions vocabulary"]:
        """The logarithm of the mean of the models' probabilities; ``hidden`` is of ``decode``."""
        assert self._formats is not None
        parts = torch.split(hidden, self._widths, dim=-1)
        models = zip(self._models, parts, self._formats, strict=True)
        return _mix([model.project(part.to(format_)) for model, part, format_ in models])

    def forward(
        self, source: Tokens, target: Tokens, labels: Int[Tensor, "batch length"], weights: Weights | None = None
    ) -> LossSums:
        """The loss of known targets, without label smoothing and without weights: no ensemble is trained."""
        if weights is not None:
            raise ValueError("no ensemble is trained: it takes no weights")
        scores = self.project(self.decode(self.encode(source), target).hidden)
        nll = -scores.gather(-1, target.layout().flatten(labels).unsqueeze(-1)).sum()
        return LossSums(nll, nll, target.lengths.sum())

    def start(self, memory: tuple[Any, ...], beam: int, allowed: AllowedTokens | None = None) -> EnsembleState:
        """A state for ``beam`` rows a sentence that have read nothing yet."""
        parts = zip(self._models, memory, strict=True)
        return EnsembleState(tuple(model.start(part, beam, allowed) for model, part in parts))

    def step(
        self, state: EnsembleState, tokens: Int[Tensor, " rows"], *, attention: AttentionRequest = NO_ATTENTION
    ) -> Step[EnsembleState]:
        """Read one symbol in every row."""
        steps = [
            model.step(part, tokens, attention=attention) for model, part in zip(self._models, state.parts, strict=True)
        ]
        columns = steps[0].columns
        return Step(
            _mix([each.over_vocabulary() for each in steps]),
            _join_heads([each.attention for each in steps]),
            EnsembleState(tuple(each.state for each in steps)),
            None if columns is None else LogitColumns.whole(columns.allowed),
        )


def _join_heads(models: Sequence[dict[int, Tensor]]) -> dict[int, Tensor]:
    """The heads of all models; where one has fewer layers, the last ones of each, by that one's numbers."""
    fewest = min(models, key=len)
    layers = zip(*(list(each.values())[len(each) - len(fewest) :] for each in models), strict=True)
    # A state may have columns yet for a longer source, which has left.
    columns = max((weights.shape[-1] for each in models for weights in each.values()), default=0)
    padded = ([F.pad(weights, (0, columns - weights.shape[-1])) for weights in each] for each in layers)
    return {number: torch.cat(each, dim=1) for number, each in zip(fewest, padded, strict=True)}


def _mix(logits: Sequence[Float[Tensor, "*positions vocabulary"]]) -> Float[Tensor, "*positions vocabulary"]:
    scores = torch.stack([each.float().log_softmax(dim=-1) for each in logits])
    return scores.logsumexp(dim=0) - math.log(len(logits))
