"""Forward and backward passes as CUDA graphs: what they launch is recorded once for each shape and then replayed.

A step of base size launches about a thousand kernels, which takes Python longer than the device is at work on them; a
graph is one launch. Its shapes are fixed, so batches lie in it without padding, filled up to one of a few numbers of
symbols and of sequences by such as weigh nothing.
"""

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple, final
from weakref import WeakKeyDictionary, ref

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from transduce.config import TransformerConfig
from transduce.data import Batch
from transduce.kernels import WIDEST_HEAD, RaggedLayout, RoundedWeights, derive, gpu, is_out_of_memory, send
from transduce.models import LossSums, Tokens, Transformer

_log = logging.getLogger(__name__)

_MOST: Final = 512  # graphs; shapes beyond that are launched one by one
_FREE: Final = 0.3  # of the device's memory, without which no graph is added
_SIZES: Final = 16  # numbers of symbols, from any one to twice as much: 3% more symbols in the mean
_PAIRS: Final = 8  # the same of sequences
_SHORT, _STEP, _LONGEST = 32, 64, 256  # lengths that attention tells apart (kernels.gpu.sizes), and its longest


class Shape(NamedTuple):
    """What a graph is for: numbers of symbols of both sides and of pairs, the greatest lengths, and who draws.

    Dropout follows from the pairs' seeds where it is ``seeded``, and else from torch's generator.
    """

    source: int
    target: int
    pairs: int
    source_longest: int
    target_longest: int
    seeded: bool

    @classmethod
    def of(cls, batch: Batch, seed: Int[Tensor, ""] | None) -> "Shape":
        """The smallest that holds a batch."""
        lengths = batch.source_lengths, batch.target_lengths
        source, target = (_round_up(int(each.sum()), _SIZES) for each in lengths)
        longest = tuple(_round_length(int(each.max())) for each in lengths)
        missing = (source - int(lengths[0].sum()), longest[0]), (target - int(lengths[1].sum()), longest[1])
        fillers = max(-(-symbols // most) for symbols, most in missing)
        pairs = _round_up(len(lengths[0]) + fillers, _PAIRS)
        return cls(source, target, pairs, longest[0], longest[1], seed is not None and batch.rows is not None)


@final
class Inputs:
    """A batch in the form of a shape, where the passes find it: always at the same place."""

    def __init__(self, shape: Shape, device: torch.device) -> None:
        self.shape = shape
        # Of each side, symbols, columns and rows; labels; the pairs' seeds, and where sequences begin and end.
        self._sizes = [*[shape.source] * 3, *[shape.target] * 4, shape.pairs, *[shape.pairs + 1] * 2]
        self._numbers = torch.zeros(sum(self._sizes), dtype=torch.int64, device=device)
        self._weights = torch.zeros(shape.target, device=device)
        self.factor = torch.zeros((), device=device)
        self._offsets = [torch.zeros(shape.pairs + 1, dtype=torch.int64)] * 2

    def fill(self, batch: Batch, seed: Int[Tensor, ""] | None, factor: float) -> None:
        """Put a batch there; ``factor`` is what its objective is multiplied with, ``seed`` for its dropout."""
        shape, device = self.shape, self._numbers.device
        missing = shape.source - int(batch.source_lengths.sum()), shape.target - int(batch.target_lengths.sum())
        source = _Side.of(batch.source_lengths, missing[0], shape.pairs, shape.source_longest)
        target = _Side.of(batch.target_lengths, missing[1], shape.pairs, shape.target_longest)
        self._offsets = [torch.from_numpy(side.offsets) for side in (source, target)]
        seeds = np.zeros(shape.pairs, np.int64)
        if seed is not None and batch.rows is not None:
            seeds[: len(batch.rows)] = derive(seed, torch.from_numpy(batch.rows)).numpy()
        parts = [
            *(source.flatten(batch.source), source.columns, source.rows),
            *(target.flatten(batch.target), target.flatten(batch.labels), target.columns, target.rows),
            *(seeds, source.offsets, target.offsets),
        ]
        weights = np.ones(len(batch.target), np.float32) if batch.weights is None else batch.weights
        weights = np.broadcast_to(weights.reshape(len(weights), -1), batch.labels.shape).astype(np.float32)
        self._numbers.copy_(send(torch.from_numpy(np.concatenate(parts)), device))
        self._weights.copy_(send(torch.from_numpy(target.flatten(weights)), device))
        self.factor.fill_(factor)

    def read(self) -> tuple[Tokens, Tokens, Int[Tensor, "1 target"], Float[Tensor, "1 target"]]:
        """Source, target, labels and weights, as a model takes them."""
        parts = torch.split(self._numbers, self._sizes)
        (seeds, *ends), weights = parts[7:], self._weights.unsqueeze(0)
        source = self._tokens(parts[:3], seeds, ends[0], self._offsets[0], self.shape.source_longest)
        target = self._tokens((parts[3], *parts[5:7]), seeds, ends[1], self._offsets[1], self.shape.target_longest)
        return source, target, parts[4].unsqueeze(0), weights

    def _tokens(self, side: tuple[Tensor, ...], seeds: Tensor, ends: Tensor, offsets: Tensor, longest: int) -> Tokens:
        ids, columns, rows = side
        of_symbols = derive(seeds.index_select(0, rows), columns) if self.shape.seeded else None
        layout = RaggedLayout.flat(offsets, longest, ends.int(), columns, of_symbols)
        return Tokens(ids.unsqueeze(0), torch.tensor([len(ids)]), known=layout)


@final
@dataclass(frozen=True)
class _Side:
    """The rows of one side and fillers behind them, in a row: where each begins, and each symbol's row and column."""

    lengths: NDArray[np.int64]
    real: int
    offsets: NDArray[np.int64]
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]

    @classmethod
    def of(cls, lengths: NDArray[np.integer], missing: int, pairs: int, longest: int) -> "_Side":
        """``missing`` symbols in as many sequences of at most ``longest`` as are needed, and empty ones behind them."""
        whole, rest = divmod(missing, longest)
        fillers = [longest] * whole + [rest] * bool(rest)
        empty = pairs - len(lengths) - len(fillers)
        every = np.concatenate([lengths, np.array(fillers + [0] * empty, np.int64)]).astype(np.int64)
        offsets = np.zeros(pairs + 1, np.int64)
        every.cumsum(out=offsets[1:])
        rows = np.repeat(np.arange(pairs), every)
        return cls(every, len(lengths), offsets, rows, np.arange(offsets[-1]) - offsets[rows])

    def flatten(self, padded: NDArray[np.generic]) -> NDArray[np.generic]:
        """What lies in a padded batch, zeros for the fillers."""
        real = padded[np.arange(padded.shape[1]) < self.lengths[: self.real, np.newaxis]]
        return np.concatenate([real, np.zeros(self.offsets[-1] - len(real), padded.dtype)])


@final
@dataclass(frozen=True)
class _Graph:
    """A recorded pass, what it reads and the sums that it writes."""

    inputs: Inputs
    graph: "torch.cuda.CUDAGraph"
    sums: LossSums


@final
class GraphedPasses:
    """A model's passes over batches, whose gradients are added to what the weights have."""

    def __init__(self, model: Transformer, dtype: torch.dtype) -> None:
        self._model, self._dtype = ref(model), dtype  # which has these for as long as it lives
        self._weights = [weight for weight in model.parameters() if weight.requires_grad]
        self._places = self._find_places()
        # Passes write where they wrote when they were recorded.
        self._gradients = [torch.zeros_like(weight) for weight in self._weights]
        self._rounded = RoundedWeights(self._weights, dtype)
        self._inputs: dict[Shape, Inputs] = {}
        self._graphs: dict[Shape, _Graph] = {}
        self._stream: torch.cuda.Stream | None = None
        self._recording = self._weights[0].device.type == "cuda"

    def run(self, batch: Batch, seed: Int[Tensor, ""] | None, factor: float) -> LossSums:
        """The losses of a batch; adds the gradients of the objective times ``factor``.

        A shape is launched one by one when it comes for the first time, which also loads what it needs, and recorded
        when it comes again.
        """
        self._attach_gradients()
        shape = Shape.of(batch, seed)
        graph = self._graphs.get(shape)
        inputs = self._inputs.pop(shape, None) if graph is None else graph.inputs
        again, inputs = inputs is not None, inputs or Inputs(shape, self._weights[0].device)
        inputs.fill(batch, seed, factor)
        if graph is None and again and self._may_record():
            graph = self._record(inputs)
        if graph is not None:
            graph.graph.replay()
            return _copy(graph.sums)
        if len(self._inputs) >= _MOST:
            self._inputs.clear()
        self._inputs[shape] = inputs
        try:
            return self._pass(inputs)
        except RuntimeError as error:
            if self._graphs and is_out_of_memory(error):
                self._give_up()  # what they held is there for whoever tries again
            raise

    def _may_record(self) -> bool:
        """Whether a graph more is allowed, and would leave memory for batches of other shapes."""
        if not self._recording or len(self._graphs) >= _MOST:
            return False
        free, total = torch.cuda.mem_get_info(self._weights[0].device)
        return free > total * _FREE

    def _give_up(self) -> None:
        _log.warning("steps are launched one by one from here on: CUDA graphs need more memory than there is")
        self._recording = False
        self._graphs.clear()
        torch.cuda.empty_cache()

    @property
    def valid(self) -> bool:
        """Whether all still lies where graphs read it, and the same weights learn: a moved model has its elsewhere.

        So has one that has met a longer sequence than any before its table of positions.
        """
        return self._places == self._find_places()

    def _find_places(self) -> list[tuple[int, bool]]:
        model = self._model()
        if model is None:
            return []
        return [(each.data_ptr(), each.requires_grad) for each in (*model.parameters(), *model.buffers())]

    def _attach_gradients(self) -> None:
        """Whoever sets gradients to none takes them away from here."""
        if self._weights[0].grad is self._gradients[0]:
            return
        for weight, gradient in zip(self._weights, self._gradients, strict=True):
            if weight.grad is None:
                gradient.zero_()
            else:
                gradient.copy_(weight.grad)  # of passes that were launched one by one
            weight.grad = gradient

    def _pass(self, inputs: Inputs) -> LossSums:
        source, target, labels, weights = inputs.read()
        model = self._model()
        assert model is not None
        device = self._weights[0].device.type
        autocast = torch.autocast(device, dtype=self._dtype, enabled=self._dtype != torch.float32, cache_enabled=False)
        with autocast, self._rounded.used():
            sums: LossSums = model(source, target, labels, weights)
        gradients = torch.autograd.grad(sums.objective * inputs.factor, self._weights, allow_unused=True)
        # All at once: autograd would add them one by one, by a launch for each.
        # What is no contiguous tensor would make it one by one again.
        known = [
            (to, each.contiguous()) for to, each in zip(self._gradients, gradients, strict=True) if each is not None
        ]
        torch._foreach_add_([to for to, _ in known], [each for _, each in known])
        return sums.detach()

    def _record(self, inputs: Inputs) -> _Graph | None:
        """What a pass launches; None, and never again, where memory does not suffice for what a graph holds on to."""
        graph, device = torch.cuda.CUDAGraph(), self._weights[0].device
        # One for all: libraries keep memory of their own for every stream.
        stream = self._stream = self._stream or torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        pool = next((each.graph.pool() for each in self._graphs.values()), None)
        stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(stream), _without_collector():
                graph.capture_begin(pool, capture_error_mode="thread_local")
                try:
                    sums = self._pass(inputs)
                finally:
                    graph.capture_end()
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            self._give_up()
            return None
        torch.cuda.current_stream().wait_stream(stream)
        self._graphs[inputs.shape] = recorded = _Graph(inputs, graph, sums)
        return recorded


@contextmanager
def _without_collector() -> Iterator[None]:
    """What Python's garbage collector finds may be a graph, or else of the device: to free it would end a recording."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def passes_of(model: nn.Module, dtype: torch.dtype) -> GraphedPasses | None:
    """A model's own, the same ones for as long as it lives; None where passes are launched one by one.

    Graphs know one Transformer of one process, with the attention that ``kernels.gpu`` has.
    """
    # A model that is spread over processes is of a class of its own, made of this one.
    if type(model) is not Transformer or not _fits(model.config) or dtype != torch.bfloat16:
        return None
    if not gpu.has_triton(model.embedding.weight):
        return None
    passes = _PASSES.get(model)
    if passes is None or not passes.valid:
        passes = _PASSES[model] = GraphedPasses(model, dtype)
    return passes


_PASSES: Final[WeakKeyDictionary[nn.Module, GraphedPasses]] = WeakKeyDictionary()


def takes(batch: Batch) -> bool:
    """Whether a batch is short enough."""
    longest = max(batch.source.shape[1], batch.target.shape[1])
    return bool(longest <= _LONGEST and min(batch.source_lengths.min(), batch.target_lengths.min()) > 0)


def _fits(config: TransformerConfig) -> bool:
    return (
        config.source_end
        and config.attention_dropout == 0
        and config.attention_window is None
        and config.compatibility == "scaled_dot_product"
        and config.decoder_self_attention == "multi_head"
        and config.feed_forward in ("mlp", "gated")
        and config.positions in ("sinusoidal", "none")
        and max(config.d_k, config.d_v) <= WIDEST_HEAD
    )


def _round_up(number: int, sizes: int) -> int:
    """To one of so many numbers between a power of two and the next."""
    unit = 1 << max(0, number.bit_length() - 1 - (sizes.bit_length() - 1))
    return -(-number // unit) * unit


def _round_length(length: int) -> int:
    return _SHORT if length <= _SHORT else -(-length // _STEP) * _STEP


def _copy(sums: LossSums) -> LossSums:
    """What the next replay does not overwrite."""
    return LossSums(sums.objective.clone(), sums.nll.clone(), sums.tokens.clone())
