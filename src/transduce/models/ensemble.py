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
from transduce.models.contract import Decoded, LossSums, SizedModel, Step, Tokens


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
        """The finished sentences leave with all their rows; the others close ranks."""
        return EnsembleState(tuple(part.release(finished) for part in self.parts))

    def admit(self, other: "EnsembleState") -> "EnsembleState":
        """The sentences of another state, of the same beam, come in behind these, however far each of them is."""
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

    def encode(self, source: Tokens) -> tuple[Any, ...]:
        """Read the sources, which end with the end symbol."""
        return tuple(model.encode(source) for model in self._models)

    def decode(self, memory: tuple[Any, ...], target: Tokens, *, want_attention: bool = False) -> Decoded:
        """Hidden states for all positions of known targets, which begin with the begin symbol."""
        decoded = [
            model.decode(part, target, want_attention=want_attention)
            for model, part in zip(self._models, memory, strict=True)
        ]
        layers = min(len(each.attention) for each in decoded)
        heads = zip(*(each.attention[len(each.attention) - layers :] for each in decoded), strict=True)
        hidden = torch.cat([each.hidden for each in decoded], dim=-1)
        return Decoded(hidden, attention=tuple(torch.cat(each, dim=1) for each in heads))

    def project(self, hidden: Float[Tensor, "*positions model"]) -> Float[Tensor, "*positions vocabulary"]:
        """The logarithm of the mean of the models' probabilities."""
        parts = torch.split(hidden, self._widths, dim=-1)
        return _mix([model.project(part) for model, part in zip(self._models, parts, strict=True)])

    def forward(self, source: Tokens, target: Tokens, labels: Int[Tensor, "batch length"]) -> LossSums:
        """The loss of known targets, without label smoothing: no ensemble is trained."""
        scores = self.project(self.decode(self.encode(source), target).hidden)
        nll = -scores.gather(-1, target.layout().flatten(labels).unsqueeze(-1)).sum()
        return LossSums(nll, nll, target.lengths.sum())

    def start(
        self, memory: tuple[Any, ...], beam: int, prefix: Tokens | None = None, allowed: AllowedTokens | None = None
    ) -> EnsembleState:
        """A state for ``beam`` rows a sentence that have read ``prefix`` (begin symbol included), or nothing."""
        parts = zip(self._models, memory, strict=True)
        return EnsembleState(tuple(model.start(part, beam, prefix, allowed) for model, part in parts))

    def step(
        self, state: EnsembleState, tokens: Int[Tensor, " rows"], *, want_attention: bool = False
    ) -> Step[EnsembleState]:
        """Read one symbol in every row."""
        steps = [
            model.step(part, tokens, want_attention=want_attention)
            for model, part in zip(self._models, state.parts, strict=True)
        ]
        attention = [each.attention for each in steps if each.attention is not None]
        columns = steps[0].columns
        return Step(
            _mix([each.over_vocabulary() for each in steps]),
            _beside(attention) if attention else None,
            EnsembleState(tuple(each.state for each in steps)),
            None if columns is None else LogitColumns.whole(columns.allowed),
        )


def _beside(attention: Sequence[Float[Tensor, "rows _ _"]]) -> Float[Tensor, "rows heads source"]:
    """The heads of all models; a state may have columns yet for a longer source, which has left."""
    source = max(each.shape[2] for each in attention)
    return torch.cat([F.pad(each, (0, source - each.shape[2])) for each in attention], dim=1)


def _mix(logits: Sequence[Float[Tensor, "*positions vocabulary"]]) -> Float[Tensor, "*positions vocabulary"]:
    scores = torch.stack([each.float().log_softmax(dim=-1) for each in logits])
    return scores.logsumexp(dim=0) - math.log(len(logits))
