"""What every sequence-to-sequence model can do: training, search and serving see only this."""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, final, runtime_checkable

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transduce.config import ModelConfig
from transduce.kernels import AllowedTokens, LogitColumns, RaggedLayout


@final
@dataclass(frozen=True)
class Tokens:
    """Sequences of ids, padded on the right: row b's ids are ``ids[b, :lengths[b]]``, whatever stands behind them.

    ``seeds``: what dropout leaves out of a row in training follows from the row's seed and the positions in it, so that
    it is the same in whatever batch, at whatever place of it; without them, torch's generator gives some. A pair has
    one seed for both its sides. Lengths and seeds may stay on the CPU, wherever the ids are: how the sequences are laid
    end to end is worked out there. The last ``fillers`` rows are there to make up a size: no loss counts them.
    """

    ids: Int[Tensor, "batch length"]
    lengths: Int[Tensor, " batch"]
    seeds: Int[Tensor, " batch"] | None = None
    fillers: int = 0

    @property
    def counted(self) -> Int[Tensor, ""]:
        """How many symbols there are before the fillers."""
        return self.lengths[: len(self.lengths) - self.fillers].sum()

    def layout(self) -> RaggedLayout:
        """How the sequences lie without their padding."""
        return RaggedLayout.of(self.lengths, self.ids.shape[1], self.ids.device, self.seeds)


@final
@dataclass(frozen=True)
class Decoded:
    """Hidden states of every target position, row after row, and a loss of the model's own where it has one.

    ``attention``, where it was asked for, holds the weights of every decoder layer's encoder-decoder attention.
    """

    hidden: Float[Tensor, "tokens model"]
    auxiliary_loss: Float[Tensor, ""] | None = None
    attention: tuple[Float[Tensor, "batch heads length source"], ...] = ()


@final
@dataclass(frozen=True)
class LossSums:
    """Sums over the target tokens of a batch, in nats.

    ``objective`` is what training minimizes (smoothed labels, auxiliary losses); ``nll`` is the cross-entropy without
    smoothing; ``tokens`` counts the labels, end symbols included, padding not.
    """

    objective: Float[Tensor, ""]
    nll: Float[Tensor, ""]
    tokens: Int[Tensor, ""]

    def __add__(self, other: "LossSums") -> "LossSums":
        return LossSums(self.objective + other.objective, self.nll + other.nll, self.tokens + other.tokens)


# typing.Self would say the same, but the run-time checkers of the tests cannot read it.
Same = TypeVar("Same", bound="State")


@runtime_checkable
class State(Protocol):
    """What decoding has to remember: ``sentences`` times ``beam`` rows, a sentence's rows standing together.

    Every verb uses the state up: only the one that it returns may be used again, so that a model may write in place.
    """

    @property
    def beam(self) -> int:
        """Rows for each sentence."""
        ...

    def reorder(self: Same, rows: Int[Tensor, " rows"]) -> Same:
        """Row i goes on from row ``rows[i]``, which belongs to the same sentence."""
        ...

    def release(self: Same, finished: Bool[Tensor, " sentences"]) -> Same:
        """The finished sentences leave with all their rows; the others close ranks."""
        ...

    def admit(self: Same, other: Same) -> Same:
        """The sentences of another state, of the same beam, come in behind these, however far each of them is."""
        ...


S = TypeVar("S", bound=State)
M = TypeVar("M")


@final
@dataclass(frozen=True)
class Step(Generic[S]):
    """One more position of every row: the scores of its next symbol, and the state behind it.

    Where the state was told what is allowed, ``columns`` says which symbols the scores are of, and which of them are a
    sentence's own: the scores of the others mean nothing to it. Else they are those of the vocabulary in its order.
    ``attention``, where it was asked for, holds the weights of the last decoder layer's encoder-decoder attention.
    """

    logits: Float[Tensor, "rows columns"]
    attention: Float[Tensor, "rows heads source"] | None
    state: S
    columns: LogitColumns | None = None

    @property
    def vocabulary(self) -> int:
        """How many symbols there are, scored or not."""
        return self.logits.shape[1] if self.columns is None else self.columns.allowed.vocabulary

    def over_vocabulary(self) -> Float[Tensor, "rows vocabulary"]:
        """The scores of every symbol in its order, minus infinity where a sentence may not write it."""
        return self.logits if self.columns is None else self.columns.spread(self.logits)


@runtime_checkable
class Model(Protocol[M, S]):
    """An encoder-decoder model; ``M`` is what its encoder leaves behind, ``S`` what its decoder remembers."""

    def encode(self, source: Tokens) -> M:
        """Read the sources, which end with the end symbol."""
        ...

    def decode(self, memory: M, target: Tokens, *, want_attention: bool = False) -> Decoded:
        """Hidden states for all positions of known targets, which begin with the begin symbol."""
        ...

    def project(self, hidden: Float[Tensor, "*positions model"]) -> Float[Tensor, "*positions vocabulary"]:
        """The logits of the next symbol."""
        ...

    def forward(self, source: Tokens, target: Tokens, labels: Int[Tensor, "batch length"]) -> LossSums:
        """The loss of known targets; ``labels`` is ``target`` shifted left by one, ending with the end symbol."""
        ...

    def start(self, memory: M, beam: int, prefix: Tokens | None = None, allowed: AllowedTokens | None = None) -> S:
        """A state for ``beam`` rows a sentence that have read ``prefix`` (begin symbol included), or nothing.

        ``allowed`` are the symbols that each sentence can be continued with; left out, all of the vocabulary.

        The scores behind what has been read come with the next ``step``: a caller holds back the prefix's last symbol.
        """
        ...

    def step(self, state: S, tokens: Int[Tensor, " rows"], *, want_attention: bool = False) -> Step[S]:
        """Read one symbol in every row; ``state`` is used up."""
        ...


class SizedModel(Model[M, S], Protocol[M, S]):
    """A model that says how wide its hidden states are: an ``Ensemble`` is made of such."""

    @property
    def width(self) -> int:
        """Numbers of a hidden state, as ``decode`` gives and ``project`` takes it."""
        ...


class TrainableModel(nn.Module, SizedModel[Any, Any]):
    """A model with weights: an ``nn.Module`` that keeps the contract.

    An interface, which implements nothing: what training, the model directory and the engine take a model as. The
    ``width`` is the d_model of the learning rate's schedule (section 5.3).
    """

    config: ModelConfig

    @abstractmethod
    def layers(self) -> Iterable[nn.Module]:
        """What is gathered one at a time where the weights are sharded over processes (FSDP); each is called once."""
