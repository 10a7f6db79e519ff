"""A toy architecture beside the Transformer, as the code would have it: a settings section, a model, a line in build.

The next symbol follows from the mean of the source's embeddings and from the symbol and the position before it. Its
auxiliary loss is a penalty on large hidden states.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, final

import pytest
import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor, nn

from transduce.config import architectures
from transduce.config.section import ALLOWED, REFUSED, Section
from transduce.kernels import AllowedTokens, LogitColumns, join_allowed
from transduce.models import Decoded, LossSums, Step, Tokens, TrainableModel, fill_unread

POSITIONS = 16


class BagConfig(Section):
    """The settings of a bag of words."""

    architecture: Annotated[Literal["bag"], REFUSED] = "bag"
    size: Annotated[int, REFUSED] = Field(16, ge=1)
    penalty: Annotated[float, ALLOWED] = Field(0.0, ge=0)
    label_smoothing: Annotated[float, ALLOWED] = Field(0.0, ge=0, lt=1)
    vocab_size: Annotated[int, REFUSED] = Field(100, ge=1)
    source_vocab_size: Annotated[int | None, REFUSED] = None

    @property
    def longest(self) -> int | None:
        return None

    @property
    def least_tensors(self) -> int:
        return 1

    @property
    def summary(self) -> str:
        return f"a bag of size {self.size}"


@final
@dataclass(frozen=True)
class BagState:
    """The sentences' bags, and how many symbols each has read."""

    bags: Float[Tensor, "sentences model"]
    lengths: Int[Tensor, " sentences"]
    beam: int
    allowed: AllowedTokens | None = None

    def reorder(self, rows: Int[Tensor, " rows"]) -> "BagState":
        return self

    def release(self, finished: Bool[Tensor, " sentences"]) -> "BagState":
        staying = (~finished).nonzero().squeeze(1)
        allowed = None if self.allowed is None else self.allowed.keep(staying)
        return replace(self, bags=self.bags[staying], lengths=self.lengths[staying], allowed=allowed)

    def admit(self, other: "BagState") -> "BagState":
        bags, lengths = torch.cat([self.bags, other.bags]), torch.cat([self.lengths, other.lengths])
        return replace(self, bags=bags, lengths=lengths, allowed=join_allowed(self.allowed, other.allowed))


@final
class BagOfWords(TrainableModel):
    """Keeps the contract of ``models.contract.Model``."""

    config: Any

    def __init__(self, config: BagConfig) -> None:
        super().__init__()
        self.config = config
        self.source = nn.Embedding(config.source_vocab_size or config.vocab_size, config.size)
        self.target = nn.Embedding(config.vocab_size, config.size)
        self.positions = nn.Embedding(POSITIONS, config.size)
        self.hidden = nn.Linear(3 * config.size, config.size)
        self.output = nn.Linear(config.size, config.vocab_size, bias=False)

    @property
    def width(self) -> int:
        return self.hidden.out_features

    def layers(self) -> Iterable[nn.Module]:
        return [self.hidden]

    def encode(self, source: Tokens, **_: Any) -> Tensor:
        lengths = source.lengths.to(source.ids.device).unsqueeze(1)
        real = torch.arange(source.ids.shape[1], device=source.ids.device) < lengths
        mean: Tensor = (self.source(source.ids) * real.unsqueeze(2)).sum(dim=1) / lengths
        return mean

    def decode(self, memory: Tensor, target: Tokens, **_: Any) -> Decoded:
        layout = target.layout()
        rows = layout.indices // layout.longest
        hidden = self._look(memory[rows], layout.flatten(target.ids), layout.columns)
        penalty = self.config.penalty
        return Decoded(hidden, auxiliary_loss=penalty * hidden.pow(2).mean(dim=1) if penalty else None)

    def project(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.output(hidden)
        return logits

    def forward(self, source: Tokens, target: Tokens, labels: Tensor, weights: Tensor | None = None) -> LossSums:
        decoded, smoothing = self.decode(self.encode(source), target), self.config.label_smoothing
        return LossSums.of(decoded, self.output.weight, target, labels, smoothing=smoothing, weights=weights)

    def start(self, memory: Tensor, beam: int, allowed: AllowedTokens | None = None) -> BagState:
        return BagState(memory, torch.zeros(len(memory), dtype=torch.long), beam, allowed)

    def step(self, state: BagState, tokens: Tensor, **_: Any) -> Step[BagState]:
        bags, columns = (each.repeat_interleave(state.beam, dim=0) for each in (state.bags, state.lengths))
        logits = self.project(self._look(bags, fill_unread(tokens), columns))
        allowed = None if state.allowed is None else LogitColumns.whole(state.allowed)
        return Step(logits, {}, replace(state, lengths=state.lengths + 1), allowed)

    def _look(self, bags: Tensor, symbols: Tensor, columns: Tensor) -> Tensor:
        known = self.positions(columns.clamp(max=POSITIONS - 1))
        return torch.tanh(self.hidden(torch.cat([bags, self.target(symbols), known], dim=-1)))


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add it in the two places that know the architectures: ``config.architectures`` and ``models.build``."""
    monkeypatch.setattr(architectures, "SECTIONS", {**architectures.SECTIONS, "bag": BagConfig})
    build = sys.modules["transduce.models.build"]
    choose = build._choose
    for verb in (build.build, build.build_unfilled, build.build_without_storage):
        # Types are checked as the tests run, and ``ModelConfig`` would be a union with this section.
        monkeypatch.setattr(verb, "__no_type_check__", True, raising=False)
    monkeypatch.setattr(build, "_choose", lambda c: BagOfWords(c) if isinstance(c, BagConfig) else choose(c))
