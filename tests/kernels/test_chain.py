from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch
from torch.nn import functional as F

from transduce.kernels import (
    Dropped,
    Heads,
    Maps,
    RaggedAttention,
    RaggedLayout,
    Scoring,
    attend_between,
    derive,
    dropout,
    feed_forward,
    native,
)
from transduce.kernels.chain import Link, chain
from transduce.kernels.feed_forward import Activating
from transduce.kernels.linear_maps import linear_maps

CPU = torch.device("cpu")
LENGTHS, KEYS = (7, 1, 33, 18), (1, 17, 40, 3)


@dataclass(frozen=True)
class Scaled:
    """x times a row, plus another one where there is one, to a power; what is kept is the sum."""

    factor: torch.Tensor
    shift: torch.Tensor | None
    power: int

    @property
    def others(self):
        return self.factor, self.shift

    def forward(self, x, others):
        factor, shift = others
        total = x * factor + (0 if shift is None else shift)
        return total**self.power, [total]

    def backward(self, gradient, x, others, kept, *, want_x):
        factor, shift = others
        of_sum = gradient * self.power * kept[0] ** (self.power - 1)
        return of_sum * factor if want_x else None, ((of_sum * x).sum(0), None if shift is None else of_sum.sum(0))


def draw(*shape):
    return torch.randn(*shape, dtype=torch.float64).requires_grad_()


def test_gradients_are_those_of_one_link_after_the_other():
    torch.manual_seed(1)
    x, links = draw(5, 3), [Scaled(draw(3), draw(3), 2), Scaled(draw(3), None, 1), Scaled(draw(3), draw(3), 3)]
    assert all(isinstance(link, Link) for link in links)
    expected = x
    for link in links:
        expected = link.forward(expected, link.others)[0]
    found = chain(x, *links)
    assert found.equal(expected)
    leaves = [x, *(other for link in links for other in link.others if other is not None)]
    received = torch.randn_like(found)
    right = torch.autograd.grad(expected, leaves, received)
    torch.testing.assert_close(torch.autograd.grad(found, leaves, received), right, rtol=1e-12, atol=0)
    assert torch.autograd.gradcheck(lambda x: chain(x, *links), x)


def test_rows_that_need_no_gradient_get_none():
    x, link = draw(5, 3), Scaled(draw(3), draw(3), 2)
    wanted = []

    @dataclass(frozen=True)
    class Watched(Scaled):
        def backward(self, *args, want_x):
            wanted.append(want_x)
            return super().backward(*args, want_x=want_x)

    watched = Watched(link.factor, link.shift, 2)
    chain(x.detach(), watched, watched).sum().backward()
    assert wanted == [True, False]


def test_what_was_read_may_not_be_changed_before_the_backward_pass():
    x, link = draw(5, 3), Scaled(draw(3), draw(3), 2)
    result = chain(x, link).sum()
    with torch.no_grad():
        link.factor.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()


def draw_maps(inputs, *outputs, bias=True):
    weights = [(torch.randn(each, inputs) / inputs**0.5).requires_grad_() for each in outputs]
    # PyTorch rounds the biases, too.
    biases = [torch.randn(each).bfloat16().float().requires_grad_() if bias else None for each in outputs]
    return Maps(weights, biases)


def leaves(*maps):
    return [each for one in maps for each in one.others if each is not None]


def assert_alike(found, right, inputs):
    """Values and gradients, but for the rounding of bfloat16."""
    torch.testing.assert_close(found.float(), right.float(), rtol=0.03, atol=0.03)
    received = torch.randn(found.shape).to(found.dtype)
    pairs = zip(
        torch.autograd.grad(found, inputs, received, retain_graph=True),
        torch.autograd.grad(right, inputs, received.to(right.dtype), retain_graph=True),
        strict=True,
    )
    for each, one in pairs:
        torch.testing.assert_close(each.float(), one.float(), rtol=0.05, atol=0.02 * one.abs().max().item())


@pytest.mark.usefixtures("own_maps")
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("rows", "inputs", "hidden"), [(1, 1, 1), (67, 33, 70), (301, 64, 128)])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_a_feed_forward_network_is_its_formula(rows, inputs, hidden, bias, share):
    torch.manual_seed(rows)
    x = torch.randn(rows, inputs).requires_grad_()
    inner, outer = draw_maps(inputs, hidden, bias=bias), draw_maps(hidden, inputs, bias=bias)
    dropped = Dropped(share, derive(torch.tensor(5), torch.arange(rows)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = feed_forward(x, inner, outer, dropped=dropped)
    assert found.dtype == torch.bfloat16

    def narrow(tensor):
        return None if tensor is None else tensor.bfloat16().float()

    first = torch.relu(F.linear(narrow(x), narrow(inner.weights[0]), inner.biases[0]))
    right = F.linear(dropout(first, dropped), narrow(outer.weights[0]), outer.biases[0])
    # Where the sums are as good as zero, rounding decides whether the ReLU lets a gradient through.
    assert (first.abs().lt(1e-3) & first.gt(0)).float().mean() < 0.01
    assert_alike(found, right, [x, *leaves(inner, outer)])


@pytest.mark.usefixtures("own_maps")
def test_without_seeds_the_backward_pass_drops_what_the_forward_pass_dropped():
    """Where all hidden numbers are 1 and all gradients of theirs, two sums of what is kept are one."""
    inner, outer = (
        Maps([torch.full(size, value).requires_grad_()], [bias])
        for size, value, bias in (
            ((70, 33), 0.0, torch.ones(70, requires_grad=True)),
            ((1, 70), 1.0, torch.zeros(1, requires_grad=True)),
        )
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = feed_forward(torch.randn(101, 33), inner, outer, dropped=Dropped(0.5))
    kept = torch.autograd.grad(found.float().sum(), (inner.biases[0], outer.weights[0]))
    torch.testing.assert_close(kept[0], kept[1][0], rtol=0.01, atol=0)
    assert len(kept[0].unique()) > 1


@pytest.mark.usefixtures("own_maps")
def test_what_is_no_number_goes_through_the_relu():
    x, inner, outer = torch.randn(13, 33), draw_maps(33, 70), draw_maps(70, 33)
    x[5, 7] = torch.nan
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = feed_forward(x.requires_grad_(), inner, outer)
    assert found.isnan().any(1).nonzero().flatten().tolist() == [5]
    (of_x,) = torch.autograd.grad(found.float().sum(), x)
    assert of_x[torch.arange(13) != 5].isfinite().all()


@pytest.mark.usefixtures("own_maps")
@pytest.mark.parametrize(("own", "causal"), [(True, False), (True, True), (False, False)])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_attention_between_maps_is_its_parts(own, causal, share):
    torch.manual_seed(7)
    heads, model = Heads(3, 5, 19), 33
    queries, keys = (
        RaggedLayout.of(torch.tensor(each), max(each), CPU) for each in (LENGTHS, LENGTHS if own else KEYS)
    )
    x, memory = torch.randn(queries.tokens, model).requires_grad_(), torch.randn(keys.tokens, model).requires_grad_()
    widths = heads.widths
    # Without biases: that of the keys changes nothing, and has gradients of nothing but rounding.
    before, attended = (draw_maps(model, *each, bias=False) for each in (widths if own else widths[:1], widths[1:]))
    after = draw_maps(widths[2], model)
    dropped = Dropped(share, derive(torch.tensor(5), torch.arange(queries.tokens)))

    def run():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            read = None if own else linear_maps(memory, attended.weights, attended.biases)
            attention = RaggedAttention(queries, keys, heads, Scoring(scale=0.3), causal=causal, dropped=dropped)
            return attend_between(x, before, read, attention, after)

    found = run()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "_library", lambda: None)
        right = run()
    inputs = [x, *leaves(before, after), *([] if own else [memory, *leaves(attended)])]
    assert_alike(found, right, inputs)


ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "gelu_tanh": partial(F.gelu, approximate="tanh"), "silu": F.silu}


@pytest.mark.usefixtures("own_maps")
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_every_activation_is_its_formula(activation, gated, share):
    torch.manual_seed(11)
    rows, inputs, hidden = 67, 33, 70
    x = torch.randn(rows, inputs).requires_grad_()
    inner, outer = draw_maps(inputs, *([hidden, hidden] if gated else [hidden])), draw_maps(hidden, inputs)
    dropped = Dropped(share, derive(torch.tensor(5), torch.arange(rows)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = feed_forward(x, inner, outer, activation, dropped)
    assert found.dtype == torch.bfloat16

    def rounded(tensor):
        return tensor.bfloat16().float()

    first = [F.linear(rounded(x), rounded(w), b) for w, b in zip(inner.weights, inner.biases, strict=True)]
    made = ACTIVATIONS[activation](first[0]) * (first[1] if gated else 1)
    right = F.linear(dropout(made, dropped), rounded(outer.weights[0]), outer.biases[0])
    assert_alike(found, right, [x, *leaves(inner, outer)])


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_an_activation_and_its_slope_are_right_to_the_last_digit_of_bfloat16(way, activation, gated):
    if way == "plain":
        pytest.skip("there is nothing but PyTorch's own")
    # Every number of bfloat16 between -12 and 12, and 0.
    bits = torch.arange(-(2**15), 2**15).to(torch.int16).view(torch.bfloat16)
    x = bits[bits.abs() < 12].view(1, -1)
    other = torch.linspace(-3, 3, x.shape[1]).bfloat16().view(1, -1)
    given = (torch.cat([x, other], dim=1) if gated else x).requires_grad_()
    exact = given.detach().double().requires_grad_()
    found = chain(given, Activating(activation, gated))
    own, *gates = exact.chunk(2 if gated else 1, dim=1)
    right = ACTIVATIONS[activation](own) * (gates[0] if gated else 1)
    received = torch.linspace(1, 2, x.shape[1]).bfloat16().view(1, -1)
    pairs = [(found, right)]
    pairs += zip(
        torch.autograd.grad(found, given, received), torch.autograd.grad(right, exact, received.double()), strict=True
    )
    for mine, theirs in pairs:
        # Rounded to the nearest, a number is at most 2^-8 of itself off; the formulas are good to 1e-6.
        torch.testing.assert_close(mine.double(), theirs, rtol=2**-8 * 1.01, atol=3e-6)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_nan_goes_through_every_activation(way, activation):
    if way == "plain":
        pytest.skip("there is nothing but PyTorch's own")
    x = torch.tensor([[1.0, torch.nan, -2.0]]).bfloat16().requires_grad_()
    found = chain(x, Activating(activation, False))
    assert found.isnan().tolist() == [[False, True, False]]
    (of_x,) = torch.autograd.grad(found.sum(), x)
    assert of_x[0, [0, 2]].isfinite().all()


def test_a_chain_of_maps_needs_no_autocast_to_be_float32s():
    x, inner, outer = torch.randn(13, 33), draw_maps(33, 70), draw_maps(70, 33)
    found = feed_forward(x, inner, outer)
    right = torch.relu(x @ inner.weights[0].T + inner.biases[0]) @ outer.weights[0].T + outer.biases[0]
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-5)
    assert replace(inner, activation="relu").others == inner.others
