"""Products with packed matrices, in every format and way."""

from itertools import product

import pytest
import torch

from transduce.kernels import activate, linear, prepack
from transduce.kernels.interface import ACTIVATIONS
from transduce.kernels.native import call
from transduce.kernels.products import multiply_whole, quantize_inputs, quantize_weights, unpack

FORMATS = ["float32", "bfloat16", "int8"]
# Rows, inputs and outputs: fewer and more than a block of rows, a group of inputs, a tile of either and a panel of
# 64 outputs have.
SIZES = [(1, 1, 1), (5, 7, 3), (13, 101, 67), (6, 64, 128), (37, 131, 67)]


def numbers(*sizes, seed=3):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def rounded_weight(weight, format_):
    """What a product reads of the weights, in float64."""
    if format_ == "int8":
        scale = weight.double().abs().amax(-1, keepdim=True) / 127
        return (weight.double() / scale).round() * scale
    return (weight if format_ == "float32" else weight.bfloat16()).double()


def rounded_input(x, format_):
    """What a product reads of x, in float64."""
    if format_ == "int8":
        low, high = x.double().amin(-1, keepdim=True).clamp(max=0), x.double().amax(-1, keepdim=True).clamp(min=0)
        scale = (high - low) / 255
        return (x.double() / scale).round() * scale
    return rounded_weight(x, format_)


@pytest.mark.usefixtures("own_products")
@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("rows", "inputs", "outputs"), SIZES)
def test_products_are_those_of_rounded_numbers(rows, inputs, outputs, biased, format_):
    x, weight, bias = numbers(rows, inputs), numbers(outputs, inputs, seed=5), numbers(outputs, seed=7)
    expected = rounded_input(x, format_) @ rounded_weight(weight, format_).T + (bias.double() if biased else 0)
    found = linear(x, prepack(weight, bias if biased else None, format_))
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    positive = linear(x, prepack(weight, bias if biased else None, format_), activation="relu")
    assert positive.equal(found.clamp(min=0))
    for activation in ("gelu", "gelu_tanh", "silu"):
        active = linear(x, prepack(weight, bias if biased else None, format_), activation=activation)
        torch.testing.assert_close(active, activate(found.double(), activation).float(), rtol=2e-6, atol=1e-6)


@pytest.mark.usefixtures("own_products")
@pytest.mark.parametrize("inputs", [1, 4, 7, 512])
@pytest.mark.parametrize("low", [0, -100, -255])
def test_whole_numbers_are_multiplied_exactly(inputs, low):
    """A row has a range of 255 and an output's largest is 127: every scale is 1, and every sum a whole number."""
    draw = torch.Generator().manual_seed(11)
    x, weight = torch.randint(low, low + 256, (13, inputs), generator=draw), torch.randint(-127, 128, (67, inputs))
    x[:, 0], x[:, -1], weight[:, 0] = low + 255, low if low else 255, -127
    x[0], weight[0] = low if low else 255, 127  # as large as a sum can be
    x[0, 0] = low + 255
    if inputs == 1 and low == -100:
        pytest.skip("one number has no other that it is apart from")
    assert linear(x.float(), prepack(weight.float(), None, "int8")).long().equal(x @ weight.T)
    assert multiply_whole(x.to(torch.int16), weight.to(torch.int8)).equal(x @ weight.T)


@pytest.mark.parametrize("inputs", [2**16, 2**16 + 1, 70_001])
def test_sums_that_32_bits_do_not_hold(inputs):
    """All as large as they can be: 255 x 127 for each input."""
    x, weight = torch.ones(2, inputs), torch.ones(3, inputs)
    weight[1] = -1
    found = linear(x, prepack(weight, None, "int8"))
    assert found.tolist() == [pytest.approx([inputs, -inputs, inputs], rel=1e-6)] * 2


@pytest.mark.parametrize("format_", FORMATS)
def test_a_row_is_the_same_in_any_company(format_, own_products):
    if own_products == "plain" and format_ != "int8":
        pytest.skip("PyTorch's sums of floating-point numbers depend on how many rows there are")
    x, matrix = numbers(17, 101), prepack(numbers(67, 101, seed=5), None, format_)
    together = linear(x, matrix)
    louder = linear(torch.cat([1000 * x[:3], x[5:6]]), matrix)
    assert linear(x[5:6], matrix).equal(together[5:6])
    assert louder[3:].equal(together[5:6])


@pytest.mark.parametrize("format_", FORMATS)
def test_any_number_of_rows_gives_the_same(format_, own_products):
    """Fewer than a tile has, one and two of them, and such as leave a part of either."""
    if own_products == "plain" and format_ != "int8":
        pytest.skip("PyTorch's sums of floating-point numbers depend on how many rows there are")
    x, matrix = numbers(300, 101), prepack(numbers(67, 101, seed=5), None, format_)
    together = linear(x, matrix)  # many enough for threads
    for rows in (1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 47, 48, 49, 64, 65, 70):
        assert linear(x[:rows], matrix).equal(together[:rows]), rows


@pytest.mark.parametrize("inputs", [1, 4, 63, 64, 101, 128, 300])
def test_tiles_and_vectors_of_int8_give_the_same_bits(inputs, way):
    if way == "plain":
        pytest.skip("tiles are the kernels' own")
    for outputs, biased, activation in product((1, 31, 64, 130), (False, True), (None, "relu")):
        x, there = numbers(70, inputs), numbers(70, outputs, seed=11)
        bias = numbers(outputs, seed=7) if biased else None
        matrix = prepack(numbers(outputs, inputs, seed=5), bias, "int8")
        one_by_one = torch.cat([linear(row, matrix, activation=activation) for row in x.split(1)])  # in vectors
        for rows in (1, 2, 13, 16, 17, 31, 32, 33, 48, 70):
            some, expected, before = x[:rows], one_by_one[:rows], there[:rows]
            assert in_tiles(some, matrix, activation).equal(expected), (rows, outputs, biased)
            assert in_tiles(some, matrix, activation, before).equal(before + expected), (rows, outputs, biased)


def in_tiles(x, matrix, activation, there=None):
    """A product by the matrix units, or what stands for them; with ``there``, added to that."""
    result = torch.empty(len(x), matrix.outputs) if there is None else there.clone()
    given = x.data_ptr(), matrix.address, result.data_ptr(), len(x), ACTIVATIONS[activation]
    call("multiply_by_tiles", None, *given, int(there is not None))
    return result


@pytest.mark.usefixtures("own_products")
@pytest.mark.parametrize("format_", FORMATS)
def test_zeros_and_what_is_no_number(format_):
    x, matrix = numbers(3, 7), prepack(numbers(5, 7, seed=5), numbers(5, seed=7), format_)
    x[0], x[1, 2] = 0, torch.nan
    found = linear(x, matrix, activation="relu")
    assert found[0].equal(numbers(5, seed=7).clamp(min=0))
    assert found[1].isnan().all()
    assert found[2].isfinite().all()


@pytest.mark.usefixtures("own_products")
@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("place", [2, 20, 40, 69])
def test_what_is_no_number_wherever_it_stands(format_, place):
    """A row is looked through in parts, and the last is not whole."""
    x, matrix = numbers(3, 70), prepack(numbers(5, 70, seed=5), None, format_)
    x[1, place] = torch.nan
    found = linear(x, matrix)
    assert found[1].isnan().all()
    assert found[[0, 2]].isfinite().all()


@pytest.mark.usefixtures("own_products")
@pytest.mark.parametrize("value", [torch.inf, -torch.inf])
def test_a_row_that_holds_an_infinity_has_no_scale(value):
    """Its int8 numbers are none: they are not added up as if they were."""
    x = numbers(3, 70)
    x[1, 20] = value
    found = linear(x, prepack(numbers(5, 70, seed=5), None, "int8"))
    assert found[1].isnan().all()
    assert found[[0, 2]].isfinite().all()


@pytest.mark.usefixtures("own_products")
@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("bits", [0x7FFFFFFF, -1, 0x7F800001])
def test_no_bits_of_what_is_no_number_are_rounded_to_one(format_, bits):
    """The first are what devices of NVIDIA write."""
    x, matrix = torch.ones(2, 70), prepack(torch.ones(3, 70), None, format_)
    x.view(torch.int32)[1, [0, 69]] = bits
    assert linear(x, matrix).isnan().tolist() == [[False] * 3, [True] * 3]


@pytest.mark.usefixtures("own_products")
@pytest.mark.parametrize("size", [1e-39, 1e-37])
def test_rows_too_small_for_a_scale_are_rows_of_zeros(size):
    ones, small = torch.ones(1, 7), torch.full((1, 7), size)
    assert linear(small, prepack(ones, None, "int8")).tolist() == [[0.0]]
    assert linear(ones, prepack(small, None, "int8")).tolist() == [[0.0]]


def test_weights_by_hand():
    whole, scale = quantize_weights(torch.tensor([[127.0, -63.5, 0.5, 1.5], [0, 0, 0, 0], [-2.54, 1.0, 0, 0]]))
    assert whole.tolist() == [[127, -64, 0, 2], [0, 0, 0, 0], [-127, 50, 0, 0]]
    assert scale.flatten().tolist() == pytest.approx([1, 0, 0.02])


def test_inputs_by_hand():
    """Positive, negative and mixed rows; the last one's ends, 101.5 and -153.5, both go to the even side, 256 apart."""
    rows = [[255.0, 63.5, 0.5, 1.5], [0, 0, 0, 0], [-5.1, -1.0, -2.0, 0], [101.5, -153.5, 1, 0]]
    whole, scale = quantize_inputs(torch.tensor(rows))
    assert whole.tolist() == [[255, 64, 0, 2], [0, 0, 0, 0], [-255, -50, -100, 0], [101, -154, 1, 0]]
    assert scale.flatten().tolist() == pytest.approx([1, 0, 0.02, 1])


@pytest.mark.usefixtures("own_products")
def test_both_ends_of_a_row_rounded_away_from_zero():
    found = linear(torch.tensor([[101.5, -153.5, 1.0]]), prepack(torch.diag(torch.full((3,), 127.0)), None, "int8"))
    assert found.tolist() == [[101 * 127, -154 * 127, 127]]


@pytest.mark.parametrize("format_", FORMATS)
def test_packing_keeps_every_number_in_its_place(format_):
    weight = torch.arange(3.0, 3 + 67 * 7).view(67, 7) % 128
    weight[:, 0] = 127
    matrix = prepack(weight, None, format_)
    assert unpack(matrix).equal(weight.to(matrix.panels.dtype))
    assert matrix.panels.shape[0] == 2
