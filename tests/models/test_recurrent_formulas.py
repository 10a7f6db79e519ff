"""Recurrent models against torch.nn's layers, and against their formulas, written out in loops over plain numbers."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.recurrent_variants import SOURCE_ROWS, TARGET_ROWS, VARIANTS, make, tokens

pytest_plugins = ["recurrent_variants"]

SOURCE, TARGET = tokens(*SOURCE_ROWS), tokens(*TARGET_ROWS)


def copy_cells(ours, theirs, suffix=""):
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        getattr(theirs, f"{name}_l0{suffix}").copy_(getattr(ours.cells, f"{name}_l0"))


@torch.no_grad()
def test_the_encoder_is_torch_s_in_both_directions(recurrent_cell):
    model = make(VARIANTS["bahdanau"], cell=recurrent_cell).eval()
    (layer,) = model.encoder[0]
    theirs = (nn.LSTM if recurrent_cell == "lstm" else nn.GRU)(5, 7, bidirectional=True, batch_first=True).double()
    copy_cells(layer.directions[0], theirs)
    copy_cells(layer.directions[1], theirs, "_reverse")
    embedded = model.embedding(SOURCE.ids)
    packed = pack_padded_sequence(embedded, SOURCE.lengths, batch_first=True, enforce_sorted=False)
    outputs, last = theirs(packed)
    expected, _ = pad_packed_sequence(outputs, batch_first=True)
    memory = model.encode(SOURCE)
    torch.testing.assert_close(memory.layout.pad(memory.hidden), expected)
    last = last[0] if recurrent_cell == "lstm" else last
    torch.testing.assert_close(memory.summary, torch.cat([last[0], last[1]], dim=1))


class ByHand:
    """A model's weights, and the cells' formulas, row by row and symbol by symbol."""

    def __init__(self, model):
        self.model, self.config = model, model.config
        self.weights = dict(model.named_parameters())

    def map(self, name, x):
        bias = self.weights.get(f"{name}.bias")
        return self.weights[f"{name}.weight"] @ x + (0 if bias is None else bias)

    def embed(self, symbol):
        return self.weights["embedding.weight"][symbol] * self.config.embedding_size**0.5

    def cell(self, name, x, state):
        of_input = self.weights[f"{name}.cells.weight_ih_l0"] @ x + self.weights[f"{name}.cells.bias_ih_l0"]
        of_state = self.weights[f"{name}.cells.weight_hh_l0"] @ state[0] + self.weights[f"{name}.cells.bias_hh_l0"]
        if self.config.cell == "lstm":
            i, f, g, o = (of_input + of_state).split(len(state[0]))
            memory = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
            return torch.sigmoid(o) * torch.tanh(memory), memory
        (ir, iz, new), (hr, hz, hn) = of_input.split(len(state[0])), of_state.split(len(state[0]))
        update = torch.sigmoid(iz + hz)
        return ((1 - update) * torch.tanh(new + torch.sigmoid(ir + hr) * hn) + update * state[0],)

    def handed_on(self, name, x):
        """The last half of what gates add up of an input."""
        biases = ("bias_ih", "bias_hh") if self.config.cell == "lstm" else ("bias_ih",)
        cells = f"{name}.cells"
        gates = self.weights[f"{cells}.weight_ih_l0"] @ x + sum(self.weights[f"{cells}.{each}_l0"] for each in biases)
        return gates[len(gates) - len(gates) // 2 :]

    def begin(self, number, begun):
        hidden = self.config.hidden_size
        start = self.map("decoder.begin", begun)[number * hidden : (number + 1) * hidden]
        return (torch.tanh(start), start) if self.config.cell == "lstm" else (torch.tanh(start),)

    def zeros(self):
        return (torch.zeros(self.config.hidden_size, dtype=torch.float64),) * (2 if self.config.cell == "lstm" else 1)

    def run(self, name, inputs):
        states, state = [], self.zeros()
        for x in inputs:
            state = self.cell(name, x, state)
            states.append(state[0])
        return states

    def layer(self, stack, number, inputs, *, both=False, turned=False):
        """Outputs of one layer of the encoder, and its last states."""
        name = f"encoder.{stack}.{number}.directions"
        first = self.run(f"{name}.0", inputs[::-1] if turned else inputs)
        outputs, last = first[::-1] if turned else first, first[-1]
        if both:
            other = self.run(f"{name}.1", inputs[::-1])
            outputs = [torch.cat(pair) for pair in zip(outputs, other[::-1], strict=True)]
            last = torch.cat([last, other[-1]])
        return outputs, last

    def additive(self, query, memory):
        score = "decoder.attention.score"
        vector = self.weights[f"{score}.vector"]
        asked = self.map(f"{score}.query", query)
        scores = [vector @ torch.tanh(asked + self.map(f"{score}.value", h)) for h in memory]
        return sum(w * h for w, h in zip(torch.softmax(torch.stack(scores), 0), memory, strict=True))

    def general(self, query, memory):
        scores = [query @ self.map("decoder.attention.score.value", h) for h in memory]
        return sum(w * h for w, h in zip(torch.softmax(torch.stack(scores), 0), memory, strict=True))

    def experts(self, name, x):
        """x + sigmoid(sum of the k best experts' outputs), weighed by the softmax of these experts' scores."""
        scores = self.weights[f"{name}.gate"] @ x
        best = sorted(range(len(scores)), key=lambda i: -scores[i].item())[: self.config.experts_per_token]
        total = sum(scores[i].exp() for i in best)
        mixed = 0
        for i in best:
            hidden = self.map(f"{name}.experts.{i}.inner", x).clamp(min=0)
            mixed = mixed + scores[i].exp() / total * self.map(f"{name}.experts.{i}.outer", hidden)
        return x + 1 / (1 + torch.exp(-mixed))

    def read_out(self, *parts):
        made = self.map("decoder.readout.map", torch.cat(parts))
        return made.view(-1, 2).amax(1) if self.config.readout == "maxout" else torch.tanh(made)


def none(hand, source, target):
    """Cho et al. 2014: c in the cell and in the readout, and s_0 of it."""
    _, last = hand.layer(0, 0, list(map(hand.embed, source)), both=True)
    c = torch.tanh(hand.map("decoder.summary", last))
    state = hand.begin(0, c)
    for symbol in target:
        y = hand.embed(symbol)
        state = hand.cell("decoder.layers.0.directions.0", torch.cat([y, c]), state)
        yield hand.read_out(state[0], c, y)


def bahdanau(hand, source, target):
    """Bahdanau et al. 2015: s_{i-1} asks; here with a second layer on top, and maxout."""
    outputs, last = list(map(hand.embed, source)), None
    for number in range(hand.config.encoder_layers):
        outputs, last = hand.layer(0, number, outputs, both=True)
    states = [hand.begin(number, last) for number in range(hand.config.decoder_layers)]
    for symbol in target:
        y = hand.embed(symbol)
        context = hand.additive(states[0][0], outputs)
        x = torch.cat([y, context])
        for number, state in enumerate(states):
            states[number] = hand.cell(f"decoder.layers.{number}.directions.0", x, state)
            x = states[number][0]
        yield hand.read_out(x, context, y)


def conditional(hand, source, target):
    """Sennrich et al. 2017: two cells in a step, and attention between them; the decoder begins from the mean."""
    outputs, _ = hand.layer(0, 0, list(map(hand.embed, source)), both=True)
    state = hand.begin(0, sum(outputs) / len(outputs))
    for symbol in target:
        y = hand.embed(symbol)
        state = hand.cell("decoder.layers.0.directions.0", y, state)
        context = hand.additive(state[0], outputs)
        state = hand.cell("decoder.second", context, state)
        yield hand.read_out(state[0], context, y)


def luong(hand, source, target):
    """Luong et al. 2015: s_i asks; with input feeding the cell reads the attentional state before."""
    outputs, last = hand.layer(0, 0, list(map(hand.embed, source)), both=True)
    states = [hand.begin(number, last) for number in range(hand.config.decoder_layers)]
    fed = torch.zeros(hand.config.readout_size, dtype=torch.float64)
    for symbol in target:
        x = torch.cat([hand.embed(symbol), fed]) if hand.config.input_feeding else hand.embed(symbol)
        for number, state in enumerate(states):
            states[number] = hand.cell(f"decoder.layers.{number}.directions.0", x, state)
            x = states[number][0]
        fed = hand.read_out(x, hand.general(x, outputs))
        yield fed


def gnmt(hand, source, target):
    """Wu et al. 2016: the first layer both ways, residuals from the third on; the context goes to all but the first."""
    outputs, last = list(map(hand.embed, source)), None
    for number in range(4):
        made, last = hand.layer(0, number, outputs, both=number == 0)
        outputs = [a + b for a, b in zip(made, outputs, strict=True)] if number >= 2 else made
    states = [hand.begin(number, last) for number in range(3)]
    for symbol in target:
        states[0] = hand.cell("decoder.layers.0.directions.0", hand.embed(symbol), states[0])
        x = states[0][0]
        context = hand.additive(x, outputs)
        for number in (1, 2):
            read = torch.cat([x, context])
            states[number] = hand.cell(f"decoder.layers.{number}.directions.0", read, states[number])
            x = states[number][0] + (x if number == 2 else 0)
        yield x


def shazeer(hand, source, target):
    """Shazeer et al. 2017: experts below the third layer of the encoder and the second of the decoder, whose own

    attention looks before them; here with a residual around the third layer.
    """
    outputs, last = list(map(hand.embed, source)), None
    for number in range(3):
        if number == 2:
            outputs = [hand.experts("encoder.0.2.between.mixture", x) for x in outputs]
        made, last = hand.layer(0, number, outputs, both=number == 0)
        outputs = [a + b for a, b in zip(made, outputs, strict=True)] if number == 2 else made
    states = [hand.begin(number, last) for number in range(2)]
    for symbol in target:
        states[0] = hand.cell("decoder.layers.0.directions.0", hand.embed(symbol), states[0])
        context = hand.additive(states[0][0], outputs)
        read = torch.cat([hand.experts("decoder.layers.1.between.mixture", states[0][0]), context])
        states[1] = hand.cell("decoder.layers.1.directions.0", read, states[1])
        yield states[1][0]


def fed_experts(hand, source, target):
    """Experts between all layers, beside connections that go by them, in a loop of input feeding."""
    memory, last = [], []
    for stack in range(2):
        hidden, forwarded = list(map(hand.embed, source)), None
        for number in range(2):
            if number:
                hidden = [hand.experts(f"encoder.{stack}.1.between.mixture", x) for x in hidden]
            read = [torch.cat(pair) for pair in zip(hidden, forwarded, strict=True)] if forwarded else hidden
            forwarded = [hand.handed_on(f"encoder.{stack}.{number}.directions.0", x) for x in read]
            hidden, end = hand.layer(stack, number, read, turned=(number + stack) % 2 == 1)
        memory.append([torch.cat(pair) for pair in zip(hidden, forwarded, strict=True)])
        last.append(end)
    memory = [torch.cat(pair) for pair in zip(*memory, strict=True)]
    states = [hand.begin(number, torch.cat(last)) for number in range(3)]
    fed = torch.zeros(hand.config.readout_size, dtype=torch.float64)
    for symbol in target:
        x, f = hand.embed(symbol), None
        for number, state in enumerate(states):
            layer = f"decoder.layers.{number}"
            x = hand.experts(f"{layer}.between.mixture", x) if number else x
            read = torch.cat([x, fed if f is None else f])
            f = hand.handed_on(f"{layer}.directions.0", read)
            states[number] = hand.cell(f"{layer}.directions.0", read, state)
            x = states[number][0]
        fed = hand.read_out(x, f, hand.general(x, memory))
        yield fed


def deep_att(hand, source, target):
    """Zhou et al. 2016: half of f_k = W_k [h_{k-1}; half of f_{k-1}] goes on, in stacks that turn at each layer."""
    memory, last = [], []
    for stack in range(2):
        hidden, forwarded = list(map(hand.embed, source)), None
        for number in range(3):
            read = [torch.cat(pair) for pair in zip(hidden, forwarded, strict=True)] if forwarded else hidden
            forwarded = [hand.handed_on(f"encoder.{stack}.{number}.directions.0", x) for x in read]
            hidden, end = hand.layer(stack, number, read, turned=(number + stack) % 2 == 1)
        memory.append([torch.cat(pair) for pair in zip(hidden, forwarded, strict=True)])
        last.append(end)
    memory = [torch.cat(pair) for pair in zip(*memory, strict=True)]
    states = [hand.begin(number, torch.cat(last)) for number in range(2)]
    for symbol in target:
        y = hand.embed(symbol)
        context = hand.additive(states[0][0], memory)
        first, second = (f"decoder.layers.{number}.directions.0" for number in range(2))
        read = torch.cat([y, context])
        states[0] = hand.cell(first, read, states[0])
        read = torch.cat([states[0][0], hand.handed_on(first, read)])
        states[1] = hand.cell(second, read, states[1])
        yield hand.read_out(states[1][0], hand.handed_on(second, read), context, y)


FORMULAS = {
    "none": none,
    "bahdanau": bahdanau,
    "bahdanau, maxout, deep": bahdanau,
    "conditional": conditional,
    "luong": luong,
    "luong without feeding": luong,
    "gnmt": gnmt,
    "fast-forward": deep_att,
    "experts, gnmt": shazeer,
    "experts, feeding": fed_experts,
}


@pytest.mark.parametrize("name", FORMULAS)
@torch.no_grad()
def test_the_formulas_written_out(name, recurrent_cell):
    model = make(VARIANTS[name], cell=recurrent_cell).eval()
    hand = ByHand(model)
    expected = [
        hidden
        for source, target in zip(SOURCE_ROWS, TARGET_ROWS, strict=True)
        for hidden in FORMULAS[name](hand, source, target)
    ]
    torch.testing.assert_close(model.decode(model.encode(SOURCE), TARGET).hidden, torch.stack(expected))


def test_an_lstm_s_forget_gate_begins_open():
    from transduce.layers.recurrent import RecurrentLayer

    weights = RecurrentLayer("lstm", 5, 7).weights()
    assert weights.input_bias.tolist() == [0] * 7 + [1] * 7 + [0] * 14
    assert not weights.state_bias.any()
    limit = (6 / 12) ** 0.5  # of one gate, 7 outputs of 5 inputs
    assert limit * 0.8 < weights.of_input.abs().max() <= limit
    assert not RecurrentLayer("gru", 5, 7).weights().input_bias.any()
