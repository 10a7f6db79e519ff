"""What every sequence-to-sequence model can do: training, search and serving see only this."""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, Literal, Protocol, TypeVar, final, runtime_checkable

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transduce.config import ModelConfig
from transduce.kernels import (
    READS_NOTHING,
    AllowedTokens,
    Choices,
    FlatBeams,
    LogitColumns,
    RaggedLayout,
    projected_cross_entropy,
)


@final
@dataclass(frozen=True)
class Tokens:
    """Sequences of ids, padded on the right: row b's ids are ``ids[b, :lengths[b]]``, and the rest is padding.

    ``seeds``: what dropout leaves out of a row in training follows from the row's seed and the positions in it, so that
    it is the same in whatever batch, at whatever place of it; without them, torch's generator gives some. A pair has
    one seed for both its sides. Lengths and seeds may stay on the CPU, wherever the ids are: the ragged layout is made
    there. ``counted`` are the rows, or the symbols, that count in training (``choose_counted``); without it, all do.
    ``known`` is the layout of symbols that lie without padding already, as one row of ids.
    """

    ids: Int[Tensor, "batch length"]
    lengths: Int[Tensor, " batch"]
    seeds: Int[Tensor, " batch"] | None = None
    counted: Bool[Tensor, " batch"] | Bool[Tensor, "batch length"] | None = None
    known: RaggedLayout | None = None

    def without_ends(self) -> "Tokens":
        """The same rows, the last symbol of each as padding; it stays where a row has no other one."""
        assert self.known is None  # there is no padding in such a layout
        return replace(self, lengths=(self.lengths - 1).clamp(min=1))

    def layout(self) -> RaggedLayout:
        """How the sequences lie without their padding."""
        if self.known is not None:
            return self.known
        layout = RaggedLayout.of(self.lengths, self.ids.shape[1], self.ids.device, self.seeds)
        if self.counted is None:
            return layout
        counted = self.counted if self.counted.ndim == 2 else self.counted.unsqueeze(1).expand_as(self.ids)
        return replace(layout, counted=layout.flatten(counted))


def fill_unread(tokens: Int[Tensor, " rows"]) -> Int[Tensor, " rows"]:
    """A step's symbols for a model that leaves no row out: some symbol in place of ``READS_NOTHING``."""
    return tokens.masked_fill(tokens == READS_NOTHING, 0)


# Numbers of layers, from 0; negative ones count from the last, as in Python. Those that a model has not are left out.
Layers = tuple[int, ...] | Literal["all"]


@final
@dataclass(frozen=True)
class AttentionRequest:
    """Which attention weights are wanted: the layers of each kind, and of those the ``heads`` (None: all).

    ``encoder`` and ``decoder`` are the self-attentions, ``cross`` is the encoder-decoder attention.
    """

    encoder: Layers = ()
    decoder: Layers = ()
    cross: Layers = ()
    heads: tuple[int, ...] | None = None

    def wants(self, kind: Literal["encoder", "decoder", "cross"], layer: int, layers: int) -> bool:
        """Whether a layer of so many is asked for."""
        wanted: Layers = getattr(self, kind)
        return wanted == "all" or layer in wanted or layer - layers in wanted

    def choose(self, weights: Float[Tensor, "rows heads *positions"]) -> Float[Tensor, "rows chosen *positions"]:
        """The weights of the heads that are asked for."""
        return weights if self.heads is None else weights[:, list(self.heads)]


NO_ATTENTION: Final = AttentionRequest()
# The one request that every model's ``step`` knows.
LAST_CROSS: Final = AttentionRequest(cross=(-1,))


@final
@dataclass(frozen=True)
class AttentionWeights:
    """What was asked for, by layer: how each position of a query weighs those of its keys, padding included.

    A model without attention of a kind has no layer of it here, whatever is asked for.
    """

    encoder: dict[int, Float[Tensor, "batch heads source source"]] = field(default_factory=dict)
    decoder: dict[int, Float[Tensor, "batch heads length length"]] = field(default_factory=dict)
    cross: dict[int, Float[Tensor, "batch heads length source"]] = field(default_factory=dict)


# How much each pair, or each label, counts in training: importance weights, or the rewards of minimum-risk training.
Weights = Float[Tensor, " batch"] | Float[Tensor, "batch length"]


def choose_counted(source: Tokens, target: Tokens, weights: Weights | None) -> tuple[Tokens, Tokens]:
    """Both sides, and which of their symbols count: those of pairs, and of labels, whose weight is not 0.

    A source counts where any of its pair's labels does. What is measured over symbols (an auxiliary loss, experts'
    loads) leaves out what does not count.
    """
    if weights is None:
        return source, target
    counted = weights != 0
    rows = counted if counted.ndim == 1 else counted.any(dim=1)
    return replace(source, counted=rows), replace(target, counted=counted)


@final
@dataclass(frozen=True)
class Decoded:
    """Hidden states of every target position, row after row, and a loss of the model's own where it has one.

    ``auxiliary_loss`` is each target token's share of that loss, so that it can be weighted and summed as the others
    are, whatever micro-batches the pairs are in. ``loads`` counts the symbols that each expert of a mixture got, layer
    by layer, those that do not count left out. ``attention`` is what was asked for, of the encoder too.
    """

    hidden: Float[Tensor, "tokens model"]
    auxiliary_loss: Float[Tensor, " tokens"] | None = None
    loads: Int[Tensor, "layers experts"] | None = None
    attention: AttentionWeights = field(default_factory=AttentionWeights)


@final
@dataclass(frozen=True)
class LossSums:
    """Sums over the target tokens of a batch, in nats.

    ``objective`` is what training minimizes: the cross-entropy with smoothed labels, and the model's auxiliary loss,
    each token's times its weight, of which the auxiliary loss takes the magnitude. ``nll`` is the cross-entropy without
    smoothing and ``auxiliary`` the auxiliary loss, both without weights, so that they stay nats per token; ``tokens``
    counts the labels, end symbols included, padding not. A token of weight 0 is in none of them. ``loads`` counts what
    each expert of a mixture got, layer by layer.
    """

    objective: Float[Tensor, ""]
    nll: Float[Tensor, ""]
    tokens: Int[Tensor, ""]
    auxiliary: Float[Tensor, ""] | None = None
    loads: Int[Tensor, "layers experts"] | None = None

    @classmethod
    def of(
        cls,
        decoded: Decoded,
        output: Float[Tensor, "vocabulary model"],
        target: Tokens,
        labels: Int[Tensor, "batch length"],
        *,
        smoothing: float,
        weights: Weights | None = None,
    ) -> "LossSums":
        """The sums of a model whose logits are ``hidden @ output.T``, with its auxiliary loss where it has one."""
        layout = target.layout()
        by_token = None
        if weights is not None:
            by_token = layout.flatten(weights if weights.ndim == 2 else weights.unsqueeze(1).expand_as(labels)).float()
        flat = layout.flatten(labels)
        objective, nll = projected_cross_entropy(decoded.hidden, output, flat, smoothing, by_token)
        tokens = target.lengths.sum() if by_token is None else (by_token != 0).sum()
        if (own := decoded.auxiliary_loss) is None:
            return cls(objective, nll, tokens, loads=decoded.loads)
        own = own.float() if by_token is None else own.float().where(by_token != 0, 0)
        # A weight below 0 says that an output is to become less probable, not that experts are to be uneven.
        weighted = own if by_token is None else by_token.abs() * own
        return cls(objective + weighted.sum(), nll, tokens, own.detach().sum(), decoded.loads)

    def detach(self) -> "LossSums":
        """The same without the graph behind the objective."""
        return replace(self, objective=self.objective.detach())

    def __add__(self, other: "LossSums") -> "LossSums":
        auxiliary, loads = self.auxiliary, self.loads
        if auxiliary is not None and other.auxiliary is not None:
            auxiliary = auxiliary + other.auxiliary
        if loads is not None and other.loads is not None:
            loads = loads + other.loads
        sums = self.objective + other.objective, self.nll + other.nll, self.tokens + other.tokens
        return LossSums(*sums, auxiliary, loads)


# typing.Self would say the same, but the run-time checkers of the tests cannot read it.
Same = TypeVar("Same", bound="State")


@runtime_checkable
class State(Protocol):
    """What decoding has to remember: ``sentences`` times ``beam`` rows; a sentence's rows are adjacent.

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
        """Remove the finished sentences with all their rows; the others keep their order."""
        ...

    def admit(self: Same, other: Same) -> Same:
        """Append the sentences of another state of the same beam; they may have read different numbers of symbols."""
        ...


S = TypeVar("S", bound=State)
M = TypeVar("M")


@final
@dataclass(frozen=True)
class Step(Generic[S]):
    """One more position of every row: the logits of its next symbol, and the state after it.

    Where the state was told what is allowed, ``columns`` says which symbols the scores are of, and which of them are a
    sentence's own: the scores of the others mean nothing to it. Else they are those of the vocabulary in its order.
    ``attention`` is what was asked for of the encoder-decoder attention, by layer.
    """

    logits: Float[Tensor, "rows columns"]
    attention: dict[int, Float[Tensor, "rows heads source"]]
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
    """An encoder-decoder model; ``M`` is its encoder's output, ``S`` its decoder's state."""

    def encode(self, source: Tokens, *, attention: AttentionRequest = NO_ATTENTION) -> M:
        """Read the sources, which end with the end symbol.

        What is asked for of the encoder's attention is kept in the memory: ``decode`` hands it over.
        """
        ...

    def decode(self, memory: M, target: Tokens, *, attention: AttentionRequest = NO_ATTENTION) -> Decoded:
        """Hidden states for all positions of known targets, which begin with the begin symbol."""
        ...

    def project(self, hidden: Float[Tensor, "*positions model"]) -> Float[Tensor, "*positions vocabulary"]:
        """The logits of the next symbol."""
        ...

    def forward(
        self, source: Tokens, target: Tokens, labels: Int[Tensor, "batch length"], weights: Weights | None = None
    ) -> LossSums:
        """The loss of known targets; ``labels`` is ``target`` shifted left by one, ending with the end symbol.

        ``weights`` multiply the objective of each pair or label, and may be negative. 0 leaves it out of all sums; 2 is
        as if the pair was there twice.
        """
        ...

    def start(self, memory: M, beam: int, allowed: AllowedTokens | None = None) -> S:
        """A state for ``beam`` rows a sentence that have read nothing yet: the first ``step`` reads the begin symbol.

        ``allowed`` are the symbols that each sentence can be continued with; left out, all of the vocabulary.
        """
        ...

    def step(self, state: S, tokens: Int[Tensor, " rows"], *, attention: AttentionRequest = NO_ATTENTION) -> Step[S]:
        """Read one symbol in every row; ``state`` is used up.

        A row with ``READS_NOTHING`` in place of a symbol is left out, or at least does no harm: no other row goes on
        from it, and its scores and weights are numbers without a meaning.

        Raises:
            ValueError: More is asked for than the model's step can say of its attention: ``LAST_CROSS`` it always can.
        """
        ...


@runtime_checkable
class SearchingModel(Model[M, S], Protocol[M, S]):
    """A model that makes the rounds of a plain search by itself: what it saves is Python between steps."""

    @property
    def vocabulary(self) -> int:
        """How many symbols outputs are made of."""
        ...

    def search(self, state: S, beams: FlatBeams, seconds: float, choices: Choices | None = None) -> S:
        """Make one round or more, each a ``step``, an advance of the beams and a reordering; ``state`` is used up.

        It ends once so many seconds are over, all outputs are certain or the beams have failed; rows of a sentence
        whose outputs are certain go on no more. Where there are ``choices`` of what each row may be continued with,
        it is one round.
        """
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
