"""The decoder of a recurrent model: its layers, where attention stands between them, and the readout."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import assert_never, cast, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from transduce.config import RecurrentConfig
from transduce.kernels import RaggedLayout, attend_additively
from transduce.layers import Dropout, Routing
from transduce.layers.cells import CellState, LoopProduct
from transduce.layers.linear import make_linear
from transduce.layers.mixture_of_experts import Choice
from transduce.layers.reading_order import ReadingOrder
from transduce.layers.readout import ReadoutLayer
from transduce.layers.recurrent import LoopLayer, RecurrentLayer
from transduce.layers.recurrent_attention import Alignment, Attended, RecurrentAttention
from transduce.layers.recurrent_stack import Flow, RecurrentStackLayer
from transduce.models.recurrent_state import RecurrentState

Hidden = Float[Tensor, "tokens readout"]
Weights = Float[Tensor, "batch length source"]


@final
@dataclass(frozen=True)
class Memory:
    """The encoder's outputs as a ragged batch, and the last states of its top layer, of all directions.

    ``routings`` say where its mixtures of experts sent the symbols.
    """

    hidden: Float[Tensor, "tokens memory"]
    layout: RaggedLayout
    summary: Float[Tensor, "batch summary"]
    routings: tuple[Routing, ...] = ()


@final
class RecurrentDecoder(nn.Module):
    """From embedded targets y to what scores the symbol behind each.

    none (Cho et al. 2014): the first layer reads [y; c], c = tanh(V e + b) of the encoder's last states e, and the
    readout [s; c; y].
    bahdanau (2015): s_{i-1} of the first layer asks, it reads [y; c_i], and the readout [s_i; c_i; y].
    luong (2015): the top layer's s_i asks; the attentional state tanh(W_c [s_i; c_i] + b) is the output, and with
    input feeding the first layer also reads that of the step before.
    gnmt (Wu et al. 2016): the first layer's state asks, all above read the context, the readout [s_i; c_i; y]. In the
    paper, the state of the step before asks; here the step's own does, so that nothing takes a loop.
    conditional (Sennrich et al. 2017): the first layer is two cells. The first reads y, its state s' asks, and the
    second goes on from s' and reads c_i: s_i = f_2(c_i, f_1(y_i, s_{i-1})). The readout has [s_i; c_i; y].

    Layer k begins from tanh(W_k e + b_k), of c in the place of e where there is no attention, or of the mean of the
    encoder's outputs (``decoder_start``); an LSTM's memory begins from W_k e + b_k. A loop over positions is only where
    a context goes back into what asks: with Bahdanau's and in the conditional decoder the first layer is in it, with
    input feeding all are. Bahdanau's with the score "linear" has none: it is asked in vain.
    """

    def __init__(self, config: RecurrentConfig, numbers: Iterator[int]) -> None:
        super().__init__()
        self.config = config
        hidden, memory, place = config.hidden_size, config.memory_size, config.attention
        self.summary = None
        self.attention = None
        if place == "none":
            self.summary = make_linear(config.summary_size, hidden, bias=True, initializer="glorot_uniform")
        else:
            self.attention = RecurrentAttention(config, query_size=hidden, value_size=memory)
        context = hidden if place == "none" else memory
        readout_dropout = Dropout(config.readout_dropout, next(numbers))
        self.layers = nn.ModuleList(
            RecurrentStackLayer(
                config,
                number,
                config.embedding_size if number == 1 else hidden,
                numbers,
                layers=config.decoder_layers,
                forwarded=0 if number == 1 else config.handed_on,
                also=_width_beside(config, number, context),
            )
            for number in range(1, config.decoder_layers + 1)
        )
        self.second = RecurrentLayer(config.cell, memory, hidden) if place == "conditional" else None
        begun = context if place == "none" or config.decoder_start == "mean" else config.summary_size
        self.begin = make_linear(begun, config.decoder_layers * hidden, bias=True, initializer="glorot_uniform")
        inputs = hidden + config.handed_on + context + (0 if place == "luong" else config.embedding_size)
        kind = "tanh" if place == "luong" else config.readout
        self.readout = ReadoutLayer(kind, inputs, config.readout_size, readout_dropout)

    def forward(
        self, memory: Memory, y: Float[Tensor, "tokens embedding"], layout: RaggedLayout
    ) -> tuple[Hidden, Weights | None, list[Routing]]:
        """What scores the next symbol at all positions, the attention weights, where there is attention, and routings.

        The latter say where its mixtures of experts sent the symbols.
        """
        summary, flow, order = self.summarize(memory), Flow(y), ReadingOrder(layout)
        cells = self.start(summary)
        if self.attention is None:
            context = summary.index_select(0, layout.indices // layout.longest)
            flow, routings = self._climb(flow, order, cells, context)
            return self._read_out(flow, context, y, layout), None, routings
        match self.config.attention:
            case "none":
                raise AssertionError("there is attention")
            case "bahdanau" if self.attention.is_constant:
                context, weights = self._look_once(cells[0][0], layout, memory)
                flow, routings = self._climb(flow, order, cells, context)
            case "bahdanau" | "conditional":
                flow, context, weights = self._loop_through_first(flow, layout, cells[0], memory)
                flow, routings = self._climb(flow, order, cells, skip=1)
            case "gnmt":
                flow, _, _ = self._layers[0](flow, order, start=cells[0])
                context, weights = self._look(flow.hidden, layout, memory)
                flow, routings = self._climb(flow, order, cells, context, context, skip=1)
            case "luong":
                if self.config.input_feeding:
                    return self._loop_through_all(flow, layout, cells, self._attend(memory))
                flow, routings = self._climb(flow, order, cells)
                context, weights = self._look(flow.hidden, layout, memory)
            case _:
                assert_never(self.config.attention)
        return self._read_out(flow, context, y, layout), weights, routings

    def step(
        self, y: Float[Tensor, "rows embedding"], state: RecurrentState
    ) -> tuple[Float[Tensor, "rows readout"], Float[Tensor, "rows source"] | None, RecurrentState]:
        """What scores the next symbol of every row, its attention weights, and the state behind the step."""
        flow, weights, layers = Flow(y), None, range(self.config.decoder_layers)
        match self.config.attention:
            case "none":
                assert state.summary is not None
                context = state.summary.repeat_interleave(state.beam, dim=0)
                flow, state = self._step_up(flow, state, layers, context)
            case "bahdanau":
                context, weights, state = self._ask(state.cells[0][0], state)
                flow, state = self._step_up(flow, state, layers, context)
            case "conditional":
                context, weights, flow, state = self._step_through_first(flow, state)
                flow, state = self._step_up(flow, state, layers[1:])
            case "gnmt":
                flow, state = self._step_up(flow, state, layers[:1])
                context, weights, state = self._ask(flow.hidden, state)
                flow, state = self._step_up(flow, state, layers[1:], context, context)
            case "luong":
                flow, state = self._step_up(flow, state, layers, state.fed)
                context, weights, state = self._ask(flow.hidden, state)
            case _:
                assert_never(self.config.attention)
        hidden = self.readout(*self._parts(flow, context, y), seeds=None)
        return hidden, weights, state if state.fed is None else replace(state, fed=hidden)

    @property
    def has_kernels(self) -> bool:
        """Whether all recurrences are such that, at known targets, the C++ kernels compute them."""
        if self.config.cell != "lstm":
            return False
        match self.config.attention:
            case "none":
                return True
            case "luong" if self.config.input_feeding:
                return False
            case _:
                return self.attention is not None and self.attention.plain_score is not None

    def begin_state(self, memory: Memory, beam: int) -> RecurrentState:
        """Nothing has been read yet, in ``beam`` rows for each sentence."""
        summary = self.summarize(memory)
        cells = tuple(tuple(part.repeat_interleave(beam, dim=0) for part in layer) for layer in self.start(summary))
        if self.attention is None:
            return RecurrentState(cells, beam, summary=summary)
        attended = self._attend(memory)
        feeding = self.config.attention == "luong" and self.config.input_feeding
        fed = summary.new_zeros(len(summary) * beam, self.config.readout_size) if feeding else None
        alignment = self.attention.start(attended, beam)
        return RecurrentState(cells, beam, attended=attended, alignment=alignment, fed=fed)

    def summarize(self, memory: Memory) -> Float[Tensor, "batch context"]:
        """Cho et al.'s c, where there is no attention; else the encoder's last states, or the mean of its outputs."""
        if self.summary is not None:
            return torch.tanh(self.summary(memory.summary))
        if self.config.decoder_start == "last":
            return memory.summary
        lengths = memory.layout.lengths.to(memory.hidden)
        mean: Tensor = memory.layout.pad(memory.hidden).sum(dim=1) / lengths.unsqueeze(1)
        return mean

    def start(self, summary: Float[Tensor, "batch context"]) -> tuple[CellState, ...]:
        """The cells' states before the first symbol."""
        begun = self.begin(summary).chunk(self.config.decoder_layers, dim=-1)
        lstm = self.config.cell == "lstm"
        return tuple((torch.tanh(each), each) if lstm else (torch.tanh(each),) for each in begun)

    def _climb(
        self,
        flow: Flow,
        order: ReadingOrder,
        cells: tuple[CellState, ...],
        first: Tensor | None = None,
        above: Tensor | None = None,
        *,
        skip: int = 0,
    ) -> tuple[Flow, list[Routing]]:
        """All layers but the ``skip`` lowest, at all positions; the lowest of these reads ``first`` beside the flow."""
        routings = []
        for number, (layer, start) in enumerate(zip(self._layers[skip:], cells[skip:], strict=True)):
            flow, _, routing = layer(flow, order, start=start, also=above if number else first)
            routings += [] if routing is None else [routing]
        return flow, routings

    def _step_up(
        self,
        flow: Flow,
        state: RecurrentState,
        layers: range,
        first: Tensor | None = None,
        above: Tensor | None = None,
    ) -> tuple[Flow, RecurrentState]:
        """The same of one position of every row."""
        cells = list(state.cells)
        for number in layers:
            flow, cells[number] = self._layers[number].step(
                flow, cells[number], above if number > layers.start else first
            )
        return flow, replace(state, cells=tuple(cells))

    def _step_through_first(
        self, flow: Flow, state: RecurrentState
    ) -> tuple[Float[Tensor, "rows memory"], Float[Tensor, "rows source"], Flow, RecurrentState]:
        """The two cells of the conditional decoder's first layer, and the attention between them."""
        assert self.second is not None
        layer = self._layers[0]
        cell, forwarded = layer.layer.step(flow.join(), state.cells[0])
        context, weights, state = self._ask(cell[0], state)
        cell, _ = self.second.step(context, cell)
        flow = layer.connect(flow, cell[0], forwarded, None)
        return context, weights, flow, replace(state, cells=(cell, *state.cells[1:]))

    def _attend(self, memory: Memory) -> Attended:
        assert self.attention is not None
        return self.attention.attend(memory.layout.pad(memory.hidden), memory.layout.real)

    def _look(
        self, query: Float[Tensor, "tokens hidden"], layout: RaggedLayout, memory: Memory
    ) -> tuple[Float[Tensor, "tokens memory"], Weights]:
        """The contexts of all positions."""
        assert self.attention is not None
        score, sources = self.attention.plain_score, self.attention.sources(memory.hidden, memory.layout)
        if score is not None and sources is not None:
            contexts, weights = attend_additively(score.query(query), sources, layout.offsets)
            return contexts, layout.pad(weights)
        attended = self._attend(memory)
        contexts, weights, _ = self.attention(layout.pad(query), attended, self.attention.start(attended, 1))
        return layout.flatten(contexts), weights

    def _look_once(
        self, query: Float[Tensor, "batch hidden"], layout: RaggedLayout, memory: Memory
    ) -> tuple[Float[Tensor, "tokens memory"], Weights]:
        """The contexts of all positions, where every step has the same weights, whatever asks."""
        assert self.attention is not None
        attended = self._attend(memory)
        context, weights, _ = self.attention(query.unsqueeze(1), attended, self.attention.start(attended, 1))
        expanded = weights.expand(-1, layout.longest, -1)
        return context.squeeze(1).index_select(0, layout.indices // layout.longest), expanded

    def _ask(
        self, query: Float[Tensor, "rows hidden"], state: RecurrentState
    ) -> tuple[Float[Tensor, "rows memory"], Float[Tensor, "rows source"], RecurrentState]:
        """The contexts of one position of every row."""
        assert self.attention is not None
        assert state.attended is not None
        assert state.alignment is not None
        queries = query.view(len(state.attended.real), state.beam, query.shape[-1])
        context, weights, alignment = self.attention(queries, state.attended, state.alignment)
        return context.flatten(0, 1), weights.flatten(0, 1), replace(state, alignment=alignment)

    def _loop_through_first(
        self, flow: Flow, layout: RaggedLayout, cell: CellState, memory: Memory
    ) -> tuple[Flow, Float[Tensor, "tokens memory"], Weights]:
        """Bahdanau's loop: attention and the first layer; in the conditional one, between its two cells."""
        assert self.attention is not None
        layer = self._layers[0]
        asking, known = self.attention.asking, flow.join()
        if asking is not None and layer.layer.in_kernels(known):
            sources = self.attention.sources(memory.hidden, memory.layout)
            if sources is not None:
                made = layer.layer.attend(known, asking, sources, layout, cell, self.second)
                hidden, context, found, forwarded = made
                return layer.connect(flow, hidden, forwarded, layout.seeds), context, layout.pad(found)
        attended = self._attend(memory)
        alignment = self.attention.start(attended, 1)
        loop = LoopLayer(layer.layer, known, layout)
        second = None if self.second is None else LoopLayer(self.second, None, layout)
        states, handed_on, contexts, weights = [], [], [], []
        for column in range(layout.longest):
            if second is not None:
                cell, forwarded = loop.step(column, cell[0][:, :0], cell)  # all that it reads is known
            context, looked, alignment = self.attention(cell[0].unsqueeze(1), attended, alignment)
            if second is not None:
                cell, _ = second.step(column, context.squeeze(1), cell)
            else:
                cell, forwarded = loop.step(column, context.squeeze(1), cell)
            states.append(cell[0])
            handed_on += [] if forwarded is None else [forwarded]
            contexts.append(context)
            weights.append(looked)
        hidden = layout.flatten(torch.stack(states, dim=1))
        forwarded = layout.flatten(torch.stack(handed_on, dim=1)) if handed_on else None
        flow = layer.connect(flow, hidden, forwarded, layout.seeds)
        return flow, layout.flatten(torch.cat(contexts, dim=1)), torch.cat(weights, dim=1)

    def _loop_through_all(
        self, flow: Flow, layout: RaggedLayout, cells: tuple[CellState, ...], attended: Attended
    ) -> tuple[Hidden, Weights, list[Routing]]:
        """Luong's loop with input feeding: all layers, attention, and the attentional state."""
        assert self.attention is not None
        assert self.readout.map is not None
        alignment: Alignment = self.attention.start(attended, 1)
        loops = [
            LoopLayer(layer.layer, None if number else flow.hidden, layout) for number, layer in enumerate(self._layers)
        ]
        made_by = self.readout.map  # prepacked, it is none to learn
        combine: Callable[[Tensor], Tensor] = made_by
        if isinstance(made_by, nn.Linear):
            combine = LoopProduct(made_by.weight, made_by.bias, steps=layout.longest, rows=len(layout.lengths))
        padded = layout.pad(flow.hidden)
        seeds = None if layout.seeds is None else layout.pad(layout.seeds)
        fed = flow.hidden.new_zeros(len(layout.lengths), self.config.readout_size)
        states, outputs, weights = list(cells), [], []
        choices: list[list[Choice]] = [[] for _ in cells]
        for column in range(layout.longest):
            now = None if seeds is None else seeds[:, column]
            up = Flow(padded[:, column])
            for number, (layer, loop) in enumerate(zip(self._layers, loops, strict=True)):
                up, choice = layer.pass_experts(up, now)
                choices[number] += [] if choice is None else [choice]
                states[number], forwarded = loop.step(column, up.join() if number else fed, states[number])
                up = layer.connect(up, states[number][0], forwarded, now)
            context, looked, alignment = self.attention(up.hidden.unsqueeze(1), attended, alignment)
            made = combine(torch.cat([up.join(), context.squeeze(1)], dim=-1))
            fed = self.readout.dropout(self.readout.activate(made), now)
            outputs.append(fed)
            weights.append(looked)
        joined = [Choice.of_columns(columns, layout) if columns else None for columns in choices]
        found = [layer.routing(choice, layout) for layer, choice in zip(self._layers, joined, strict=True)]
        routings = [routing for routing in found if routing is not None]
        return layout.flatten(torch.stack(outputs, dim=1)), torch.cat(weights, dim=1), routings

    def _read_out(self, flow: Flow, context: Tensor, y: Tensor, layout: RaggedLayout) -> Hidden:
        hidden: Tensor = self.readout(*self._parts(flow, context, y), seeds=layout.seeds)
        return hidden

    def _parts(self, flow: Flow, context: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """What the readout is made of."""
        if self.readout.kind == "state":
            return (flow.hidden,)
        joined = flow.join()
        return (joined, context) if self.config.attention == "luong" else (joined, context, y)

    @property
    def _layers(self) -> list[RecurrentStackLayer]:
        return list(cast(Iterable[RecurrentStackLayer], self.layers))  # nn.ModuleList is not generic


def _width_beside(config: RecurrentConfig, number: int, context: int) -> int:
    """How wide is what a layer reads beside what comes from below."""
    match config.attention:
        case "none" | "bahdanau":
            return context if number == 1 else 0
        case "gnmt":
            return context if number > 1 else 0
        case "conditional":
            return 0
        case "luong":
            return config.readout_size if config.input_feeding and number == 1 else 0
        case _:
            assert_never(config.attention)
