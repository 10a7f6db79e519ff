"""LSTM layers in C++, alone and with attention in every step, against PyTorch's and against loops in float64."""

import pytest
import torch
from torch import nn

from tests.sparing import one_each
from transduce.kernels import (
    RaggedLayout,
    Sources,
    attend_additively,
    attending_lstm,
    conditional_lstm,
    has_lstm,
    has_native,
    lstm,
)
from transduce.kernels.recurrence import _of_weight
from transduce.layers.cells import advance_cell

pytestmark = pytest.mark.usefixtures("compiled")

# Rows of one symbol, of many; one row; as many rows as no block of a product has; and, at last, none at all.
LENGTHS = [[1], [3, 1, 7, 7, 2], [5] * 4, [*range(1, 24), 5, 5]]
# Cells: one, less than a vector, an odd number that is more than one, and blocks of every kind.
HIDDEN = [1, 7, 33, 80]
TOLERANCE = {torch.float32: {"rtol": 1e-4, "atol": 1e-5}, torch.bfloat16: {"rtol": 0.05, "atol": 0.05}}


# Numbers, and whether it goes backwards or has two cells: each number of rows with each size has one of these.
KINDS = {
    "float32-no": (torch.float32, False),
    "bfloat16-yes": (torch.bfloat16, True),
    "float32-yes": (torch.float32, True),
    "bfloat16-no": (torch.bfloat16, False),
}


def lengths_and(sizes):
    """Every list of lengths with every size, and with these one of the kinds, another one for each list."""
    for place, lengths in enumerate(LENGTHS):
        for one in one_each(sizes, KINDS, place):
            size, kind = one.values
            yield pytest.param(lengths, sizes[size], *KINDS[kind], id=f"{len(lengths)}-{one.id}", marks=one.marks)


@pytest.fixture
def compiled(way):
    if way == "plain":
        pytest.skip("the layers' loops are what these kernels are compared with")


def layout_of(lengths):
    return RaggedLayout.of(torch.tensor(lengths), max(lengths), torch.device("cpu"))


def draw(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(dtype).requires_grad_()


def draw_matrix(outputs, inputs):
    """Whose products with numbers of variance 1 have that, too."""
    return (torch.randn(outputs, inputs) / inputs**0.5).requires_grad_()


def in_double(*tensors):
    return [each.detach().double().requires_grad_() for each in tensors]


def by_torch(gates, weight, lengths, start, backwards):
    """PyTorch's cells, row by row: what the gates are given of the input is its input, and W is the unit matrix."""
    hidden = weight.shape[1]
    theirs = nn.LSTM(4 * hidden, hidden).double()
    given = {"weight_ih_l0": torch.eye(4 * hidden).double(), "weight_hh_l0": weight}
    given |= {name: torch.zeros(4 * hidden).double() for name in ("bias_ih_l0", "bias_hh_l0")}
    states = []
    for number, row in enumerate(gates.split(lengths)):
        begun = tuple(each[number].view(1, 1, -1) for each in start)
        x = (row.flip(0) if backwards else row).unsqueeze(1)
        made, _ = torch.func.functional_call(theirs, given, (x, begun))
        states.append(made.squeeze(1).flip(0) if backwards else made.squeeze(1))
    return torch.cat(states)


@pytest.mark.parametrize("given", [1e-7, 1e-5, 1e-3, 0.0999, 0.1001, 0.25, 1.0, 9.0])
def test_states_near_zero_keep_their_digits(given):
    gates = torch.zeros(1, 4 * 16)
    gates[:, 2 * 16 : 3 * 16] = torch.tensor([given, -given]).repeat(8)
    state = lstm(gates, torch.zeros(4 * 16, 16), layout_of([1]))
    expected = (gates[:, 2 * 16 : 3 * 16].double().tanh() / 2).tanh() / 2  # of half-open gates
    torch.testing.assert_close(state.double(), expected, rtol=4e-7, atol=0)


@pytest.mark.parametrize(
    ("lengths", "hidden", "dtype", "backwards"), [*lengths_and({str(hidden): hidden for hidden in HIDDEN})]
)
def test_states_and_gradients_are_torch_s(lengths, hidden, dtype, backwards):
    torch.manual_seed(5)
    gates, weight = draw(sum(lengths), 4 * hidden, dtype=dtype), draw_matrix(4 * hidden, hidden)
    begun = not backwards
    start = (draw(len(lengths), hidden), draw(len(lengths), hidden)) if begun else None
    found = lstm(gates, weight, layout_of(lengths), start, backwards=backwards)
    assert found.dtype == torch.float32
    wide, rounded = in_double(gates, weight.to(dtype))
    zeros = torch.zeros(len(lengths), hidden).double()
    wide_start = in_double(*start) if start else [zeros, zeros]
    expected = by_torch(wide, rounded, lengths, wide_start, backwards)
    torch.testing.assert_close(found.double(), expected, **TOLERANCE[dtype])
    received = torch.randn_like(found)
    learned = [gates, weight, *(start or ())]
    right = torch.autograd.grad(expected, [wide, rounded, *(wide_start if start else ())], received.double())
    for each, one in zip(torch.autograd.grad(found, learned, received), right, strict=True):
        scale = 1 + one.abs().max().item()
        torch.testing.assert_close(each.double() / scale, one / scale, **TOLERANCE[dtype])


def attend_by_hand(query, keys, values, vector, sharpness):
    """One query at a time."""
    weights = torch.softmax(sharpness * (torch.tanh(query + keys) @ vector), 0)
    return weights @ values, weights


def draw_sources(lengths, units, memory):
    layout = layout_of(lengths)
    keys, values = draw(layout.tokens, units), draw(layout.tokens, memory)
    return Sources.ragged(keys, values, draw(units), layout, 1.5)


def rows_of(sources, tensors):
    lengths = (sources.ends - sources.begins).tolist()
    keys, values, vector = tensors
    return [(*row, vector, 1.5) for row in zip(keys.split(lengths), values.split(lengths), strict=True)]


@pytest.mark.parametrize(("units", "memory"), [(1, 1), (17, 33), (64, 16)])
@pytest.mark.parametrize("lengths", LENGTHS, ids=len)
def test_queries_look_as_they_do_by_hand(lengths, units, memory):
    torch.manual_seed(5)
    sources, layout = draw_sources([1 + 3 * n % 11 for n in lengths], units, memory), layout_of(lengths)
    queries = draw(layout.tokens, units)
    contexts, weights = attend_additively(queries, sources, layout.offsets)
    asked, *others = in_double(queries, *sources.tensors)
    expected = []
    for number, (rows, row) in enumerate(zip(asked.split(lengths), rows_of(sources, others), strict=True)):
        begin = sum(lengths[:number])
        for place, query in enumerate(rows):
            context, told = attend_by_hand(query, *row)
            expected.append(context)
            torch.testing.assert_close(weights[begin + place, : len(told)].double(), told, rtol=1e-4, atol=1e-6)
            assert not weights[begin + place, len(told) :].any()
    joined = torch.stack(expected)
    torch.testing.assert_close(contexts.double(), joined, rtol=1e-4, atol=1e-5)
    received = torch.randn_like(contexts)
    found = torch.autograd.grad(contexts, [queries, *sources.tensors], received)
    for each, right in zip(found, torch.autograd.grad(joined, [asked, *others], received.double()), strict=True):
        torch.testing.assert_close(each.double(), right, rtol=1e-3, atol=1e-4)


def loop_by_hand(wide, weights, start, lengths, rows, *, twice):
    """Bahdanau's step, or the conditional one, symbol by symbol."""
    states, contexts = [], []
    for number, row in enumerate(wide.split(lengths)):
        cell = tuple(each[number : number + 1] for each in start)
        for given in row:
            if twice:
                first, bias, second, asking = weights
                cell = advance_cell("lstm", (given + first @ cell[0][0]).unsqueeze(0), None, cell)
                given = bias  # noqa: PLW2901 - of the second cell
            else:
                second, asking = weights
            context, _ = attend_by_hand(asking @ cell[0][0], *rows[number])
            of_found = second @ torch.cat([context, cell[0][0]])
            cell = advance_cell("lstm", (given + of_found).unsqueeze(0), None, cell)
            states.append(cell[0][0])
            contexts.append(context)
    return torch.stack(states), torch.stack(contexts)


@pytest.mark.parametrize(
    ("lengths", "sizes", "dtype", "twice"),
    [*lengths_and({"small": (1, 1, 1), "odd": (7, 17, 33), "blocks": (48, 64, 16)})],
)
def test_cells_that_look_are_the_loop(lengths, sizes, dtype, twice):
    torch.manual_seed(5)
    hidden, units, memory = sizes
    sources, layout = draw_sources([1 + 3 * n % 11 for n in lengths], units, memory), layout_of(lengths)
    gates = draw(layout.tokens, 4 * hidden, dtype=dtype)
    first = [draw_matrix(4 * hidden, hidden), draw(4 * hidden, dtype=dtype)] if twice else []
    weights = [*first, draw_matrix(4 * hidden, memory + hidden), draw_matrix(units, hidden)]
    start = [draw(len(lengths), hidden), draw(len(lengths), hidden)]
    compute = conditional_lstm if twice else attending_lstm
    states, contexts, looked = compute(gates, *weights, sources, layout, tuple(start))
    assert not looked.requires_grad
    # Rounded as products have them, so that what is left is what states and contexts are rounded by.
    wide, *others = in_double(gates, *(each.to(dtype) for each in weights), *start, *sources.tensors)
    count = len(weights)
    rows = rows_of(sources, others[-3:])
    expected = loop_by_hand(wide, others[:count], others[count : count + 2], lengths, rows, twice=twice)
    received = torch.randn_like(states), torch.randn_like(contexts)
    for each, right in zip((states, contexts), expected, strict=True):
        torch.testing.assert_close(each.double(), right, **TOLERANCE[dtype])
    found = torch.autograd.grad((states, contexts), [gates, *weights, *start, *sources.tensors], received)
    right_ones = torch.autograd.grad(expected, [wide, *others], [each.double() for each in received])
    for each, right in zip(found, right_ones, strict=True):
        if dtype == torch.float32:
            torch.testing.assert_close(each.double(), right, rtol=1e-3, atol=1e-4 * (1 + right.abs().max().item()))
        else:
            assert (each - right).norm() < 0.1 * (right.norm() + 1e-3)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_row_is_the_same_in_any_batch(dtype):
    torch.manual_seed(5)
    lengths, hidden = [3, 11, 1, 7, 7, 2, 5, 9], 33
    gates, weight = draw(sum(lengths), 4 * hidden, dtype=dtype), draw_matrix(4 * hidden, hidden)
    together = lstm(gates, weight, layout_of(lengths)).split(lengths)
    for number, row in enumerate(gates.split(lengths)):
        assert torch.equal(lstm(row, weight, layout_of(lengths[number : number + 1])), together[number])
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = lstm(gates, weight, layout_of(lengths))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(alone, torch.cat(together))


def test_without_gradients_nothing_is_kept():
    gates, weight = draw(9, 4 * 7), draw_matrix(4 * 7, 7)
    with torch.no_grad():
        alone = lstm(gates, weight, layout_of([4, 5]))
    assert not alone.requires_grad
    assert torch.equal(alone, lstm(gates, weight, layout_of([4, 5])))


def test_a_weight_s_gradient_is_the_product_of_all_steps():
    gradient, x = torch.randn(9, 12), torch.randn(9, 3)
    torch.testing.assert_close(_of_weight(gradient, x, torch.empty(12, 3)), gradient.T @ x)


def test_what_kernels_cannot_take_is_left_to_others():
    x, weight = torch.randn(3, 5), torch.randn(8, 5)
    assert has_lstm(x, weight) == has_native(x)
    assert not has_lstm(x.double(), weight)
    assert not has_lstm(x, weight.bfloat16())
    assert not has_lstm(x[:0], weight)
    with pytest.raises(ValueError, match=r"takes a contiguous torch.float32 tensor of shape \(8, 2\)"):
        lstm(torch.randn(3, 8), torch.randn(8, 2).double(), layout_of([3]))


def test_sources_of_another_batch_and_weights_of_another_width_are_refused():
    """C++ looks where they say."""
    layout, start = layout_of([3, 3, 3]), (torch.zeros(3, 8), torch.zeros(3, 8))
    gates, asking, numbers = torch.randn(9, 32), torch.randn(5, 8), (torch.randn(4, 5), torch.randn(4, 7))
    one = Sources.ragged(*numbers, torch.randn(5), layout_of([4]), 1.0)
    three = Sources.ragged(*numbers, torch.randn(5), layout_of([2, 1, 1]), 1.0)
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        attending_lstm(gates, torch.randn(32, 15), asking, one, layout, start)
    with pytest.raises(ValueError, match="weights of 8 inputs for contexts of 7 and states of 8"):
        attending_lstm(gates, torch.randn(32, 8), asking, three, layout, start)
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        conditional_lstm(gates, torch.randn(32, 8), torch.zeros(32), torch.randn(32, 15), asking, one, layout, start)
    with pytest.raises(ValueError, match="weights of 8 inputs for contexts of 7 and states of 8"):
        conditional_lstm(gates, torch.randn(32, 8), torch.zeros(32), torch.randn(32, 8), asking, three, layout, start)
