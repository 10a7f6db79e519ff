"""Mixtures of experts against loops over symbols and experts, and against numbers worked out by hand."""

import math
from dataclasses import replace
from statistics import NormalDist

import pytest
import torch
from torch import nn

from transduce.config import BadInputError, TransformerConfig, preset
from transduce.kernels import RaggedLayout, derive
from transduce.layers import FeedForward, Gating, MixtureOfExperts, feed_forward, join_routings
from transduce.layers.mixture_of_experts import _variation

D_MODEL, D_FF, EXPERTS, CHOSEN = 7, 11, 5, 2
SIZES = {
    "d_model": D_MODEL,
    "d_ff": D_FF,
    "heads": 1,
    "positions": "none",
    "feed_forward": "mixture_of_experts",
    "experts": EXPERTS,
    "experts_per_token": CHOSEN,
}
LENGTHS = torch.tensor([3, 1, 4])  # eight symbols
SEEDS = derive(torch.tensor(3), torch.tensor([41, 43, 47]))


def make(**changes):
    torch.manual_seed(3)
    layer = feed_forward(preset("base", {**SIZES, **changes}), number=13)
    assert isinstance(layer, MixtureOfExperts)
    for matrix in (layer.gate, layer.noise):
        if matrix is not None:
            nn.init.normal_(matrix)
    return layer.double().eval()


def layout(lengths=LENGTHS, seeds=SEEDS, counted=None):
    ragged = RaggedLayout.of(lengths, int(lengths.max()), torch.device("cpu"), seeds)
    return ragged if counted is None else replace(ragged, counted=counted.repeat_interleave(lengths))


def symbols(number=8):
    return torch.randn(number, D_MODEL, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


def network(expert, x):
    hidden = (expert.inner.weight @ x + expert.inner.bias).clamp(min=0)
    return expert.outer.weight @ hidden + expert.outer.bias


def by_formula(layer, x, chosen):
    """One symbol: the softmax of the largest scores, times what these experts make of it."""
    scores = [row @ x for row in layer.gate]
    best = sorted(range(len(scores)), key=lambda i: -scores[i].item())[:chosen]
    among = best if chosen > 1 else range(len(scores))
    total = sum(scores[i].exp() for i in among)
    return sum(scores[i].exp() / total * network(layer.experts[i], x) for i in best), best


@pytest.mark.parametrize("chosen", [1, 2, 3, EXPERTS])
def test_it_equals_the_formula_for_every_symbol(chosen):
    layer, x = make(experts_per_token=chosen), symbols()
    found, routing = layer.route(x, layout())
    expected, chosen_by = zip(*(by_formula(layer, each, chosen) for each in x), strict=True)
    torch.testing.assert_close(found, torch.stack(expected))
    assert routing.loads.tolist() == [sum(e in best for best in chosen_by) for e in range(EXPERTS)]
    assert layer(x.view(2, 4, -1)).equal(found.view(2, 4, -1))
    received = torch.randn_like(found)
    # Of a switch, too, the gate is told something, though only one expert is asked.
    weights = [layer.gate, *layer.experts.parameters()]
    gradients = [
        torch.autograd.grad((each * received).sum(), weights, allow_unused=True, materialize_grads=True)
        for each in (found, torch.stack(expected))
    ]
    torch.testing.assert_close(*gradients)
    assert gradients[0][0].abs().max() > 1e-3


def test_of_all_experts_with_equal_scores_it_is_the_mean():
    layer, x = make(experts_per_token=EXPERTS), symbols()
    nn.init.zeros_(layer.gate)
    torch.testing.assert_close(layer(x), torch.stack([expert(x) for expert in layer.experts]).mean(0))


def test_gradients():
    layer = make(d_model=3, d_ff=2, experts=3)
    weights, x = dict(layer.named_parameters()), symbols()[:, :3].clone().requires_grad_()

    def run(x, *values):
        y, routing = torch.func.functional_call(
            _Route(layer), {f"layer.{name}": value for name, value in zip(weights, values, strict=True)}, (x,)
        )
        return y, routing

    assert torch.autograd.gradcheck(run, (x, *weights.values()))
    layer.train()  # with noise, which is the same each time
    assert torch.autograd.gradcheck(run, (x, *weights.values()))


class _Route(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        y, routing = self.layer.route(x, layout())
        return y, routing.balance_loss


# Five symbols, three experts, two of them chosen. A symbol's scores are its elements.
SCORES = [[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [1.0, 0.0, 4.0], [5.0, 2.0, 1.0], [1.0, 2.0, 0.0]]
FIVE = torch.tensor(SCORES, dtype=torch.float64)


def gate_by_elements(**changes):
    """The gate is the identity; the noise has a standard deviation of softplus(0) = log 2 everywhere."""
    settings = {"chosen": 2, "noise": True, "importance_loss": 1.0, "load_loss": 0.0, "balance": "batch"} | changes
    layer = MixtureOfExperts([nn.Identity() for _ in range(3)], 3, Gating(**settings)).double().eval()
    nn.init.eye_(layer.gate)
    for place, expert in enumerate(layer.experts):  # called with rows and their seeds
        expert.forward = lambda x, seeds=None, place=place: x * (place + 1)
    return layer


def variation(values):
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / len(values) / mean**2


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


# By hand: the better of two with scores a > b has the weight sigmoid(a - b).
GATES = [
    [sigmoid(1), 1 - sigmoid(1), 0],
    [0, sigmoid(2), 1 - sigmoid(2)],
    [1 - sigmoid(3), 0, sigmoid(3)],
    [sigmoid(3), 1 - sigmoid(3), 0],
    [1 - sigmoid(1), sigmoid(1), 0],
]


def importance(rows):
    return variation([sum(GATES[row][expert] for row in rows) for expert in range(3)])


def load(rows):
    """P(x, i): an expert has to beat the second of the others; with two chosen of three, the least of all but it."""

    def of(scores, expert):
        others = sorted(score for place, score in enumerate(scores) if place != expert)
        return NormalDist().cdf((scores[expert] - others[0]) / math.log(2))

    return variation([sum(of(SCORES[row], expert) for row in rows) for expert in range(3)])


LAYOUT = layout(torch.tensor([2, 3]), None)


def test_gating_by_hand():
    y, routing = gate_by_elements().route(FIVE, LAYOUT)
    expected = [sum((e + 1) * gate for e, gate in enumerate(gates)) for gates in GATES]
    torch.testing.assert_close(y, FIVE * torch.tensor(expected, dtype=torch.float64).unsqueeze(1))
    assert routing.loads.tolist() == [4, 4, 2]


@pytest.mark.parametrize(("name", "value"), [("importance_loss", importance), ("load_loss", load)])
def test_losses_by_hand(name, value):
    none = {"importance_loss": 0.0, "load_loss": 0.0}
    batch, pair = (gate_by_elements(**none | {name: 0.3}, balance=each) for each in ("batch", "pair"))
    assert batch.route(FIVE, LAYOUT)[1].balance_loss.tolist() == pytest.approx([0.3 * value(range(5))] * 2)
    assert pair.route(FIVE, LAYOUT)[1].balance_loss.tolist() == pytest.approx(
        [0.3 * value(range(2)), 0.3 * value(range(2, 5))]
    )
    # A pair that does not count is balanced with no other, and in no count.
    part = layout(torch.tensor([2, 3]), None, torch.tensor([True, False]))
    routing = batch.route(FIVE, part)[1]
    assert routing.balance_loss[0].item() == pytest.approx(0.3 * value(range(2)))
    assert routing.loads.tolist() == [1, 2, 1]
    assert gate_by_elements(**none).route(FIVE, LAYOUT)[1].balance_loss is None


def test_nothing_that_counts_has_no_loss():
    none = layout(torch.tensor([2, 3]), None, torch.tensor([False, False]))
    routing = gate_by_elements(load_loss=1.0).route(FIVE, none)[1]
    assert routing.balance_loss.isfinite().all()
    assert routing.loads.sum() == 0


def test_layers_losses_are_those_of_target_symbols():
    routings = [gate_by_elements(balance="pair").route(FIVE, LAYOUT)[1] for _ in range(2)]
    loss, loads = join_routings(routings, layout(torch.tensor([3, 1]), None))
    rows = 2 * routings[0].balance_loss
    torch.testing.assert_close(loss, rows[[0, 0, 0, 1]])
    assert loads.tolist() == [[4, 4, 2], [4, 4, 2]]
    assert join_routings([], LAYOUT) == (None, None)


def test_load_is_how_often_an_expert_would_be_chosen():
    """Of 20,000 draws of one symbol's noise: five standard deviations of a share are 5 sqrt(1/4 / 20,000) = 0.018."""
    layer = gate_by_elements(chosen=1).train()
    x = FIVE[:1].expand(20_000, 3)
    wide = layout(torch.full((20_000,), 1), derive(torch.tensor(7), torch.arange(20_000)))
    loads = layer.route(x, wide)[1].loads / 20_000
    noise = NormalDist(0, math.log(2))
    draws = torch.tensor([noise.samples(20_000, seed=seed) for seed in range(3)]) + FIVE[0].unsqueeze(1)
    expected = torch.bincount(draws.argmax(0), minlength=3) / 20_000
    torch.testing.assert_close(loads, expected, rtol=0, atol=0.018 * math.sqrt(2))


def test_noise_and_dropout_follow_from_seeds_in_whatever_batch():
    layer, x = make(activation_dropout=0.4).train(), symbols()
    together, routing = layer.route(x, layout())
    parts, starts = [], [0, 3, 4]
    for row, start in enumerate(starts):
        length = int(LENGTHS[row])
        alone = layout(LENGTHS[row : row + 1], SEEDS[row : row + 1])
        parts.append(layer.route(x[start : start + length], alone))
    torch.testing.assert_close(torch.cat([y for y, _ in parts]), together)
    assert torch.stack([each.loads for _, each in parts]).sum(0).equal(routing.loads)
    other = layer.route(x, layout(seeds=SEEDS + 1))[0]
    assert not other.isclose(together).all(dim=1).any()
    # Of two symbols alike, each has draws of its own; so has each expert's dropout at one symbol.
    twice = layer(torch.ones(2, D_MODEL, dtype=torch.float64), torch.tensor([1, 2]))
    assert not twice[0].equal(twice[1])


def test_two_experts_leave_out_different_things_at_one_symbol():
    layer = make(activation_dropout=0.5, experts=2).train()
    for weight in layer.parameters():
        nn.init.zeros_(weight)
    for expert in layer.experts:
        assert isinstance(expert, FeedForward)
        nn.init.ones_(expert.inner.bias)
        nn.init.eye_(expert.outer.weight)
    nn.init.constant_(layer.noise, -1e4)  # no noise: each expert's weight is 1/2
    y = layer(torch.ones(997, D_MODEL, dtype=torch.float64), torch.arange(997))
    # Each output is 1/2 (a + b), a and b being 0 or 2: 0 or 2 each in a quarter, 1 in half of 6,979 cases.
    share = (y.isclose(torch.ones_like(y), atol=1e-3)).double().mean().item()
    assert share == pytest.approx(0.5, abs=5 * 0.5 / math.sqrt(y.numel()))


def test_noise_is_for_training_alone():
    layer, x = make(), symbols()
    assert layer(x, layout().seeds).equal(layer(x))
    assert not layer.train()(x, layout().seeds).isclose(layer.eval()(x)).all()
    still = make(expert_noise=False)
    assert still.noise is None
    assert still.train()(x).equal(still.eval()(x))
    torch.manual_seed(1)
    one, same = layer.train()(x), layer(x)
    assert not one.equal(same)  # without seeds, torch draws
    torch.manual_seed(1)
    assert layer(x).equal(one)


def test_a_symbols_experts_hang_on_no_other_symbol():
    layer, x = make(experts=17, experts_per_token=3).float(), symbols(211).float()
    together = layer(x)
    for part in (slice(0, 1), slice(5, 12), slice(100, 211)):
        torch.testing.assert_close(layer(x[part]), together[part])


def test_an_expert_that_no_symbol_chose_has_a_gradient_of_zeros():
    """So that all processes of a training exchange the same gradients, and Adam does the same for any number."""
    layer = make()
    nn.init.zeros_(layer.gate)
    layer(symbols(1)).sum().backward()
    gradients = [weight.grad for expert in layer.experts[CHOSEN:] for weight in expert.parameters()]
    assert all(gradient is not None and not gradient.any() for gradient in gradients)
    assert all(weight.grad.any() for weight in layer.experts[0].outer.parameters())


def test_it_starts_without_a_preference():
    torch.manual_seed(3)
    layer = feed_forward(preset("base", SIZES))
    assert not layer.gate.any()
    assert not layer.noise.any()
    names = {name for name, _ in make(expert_noise=False).named_parameters() if not name.startswith("experts.")}
    assert names == {"gate"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"experts": 3, "experts_per_token": 5}, "experts_per_token = 5, but there are experts = 3"),
        ({"expert_noise": False, "load_loss": 0.1}, "load_loss = 0.1 needs expert_noise = true"),
        ({"feed_forward": "mlp"}, "experts = 5 is for feed_forward = 'mixture_of_experts'"),
        ({"experts": 4_001}, "less than or equal to 4000"),
    ],
)
def test_settings_that_do_not_fit_are_named(changes, words):
    with pytest.raises((BadInputError, ValueError), match=words):
        TransformerConfig.model_validate({**SIZES, **changes})


def test_a_layer_of_one_expert_is_that_expert():
    layer, x = make(experts=1, experts_per_token=1), symbols()
    torch.testing.assert_close(layer(x), layer.experts[0](x))
    assert replace(layer.gating, chosen=1) == layer.gating
    assert layer.route(x, layout())[1].balance_loss.tolist() == pytest.approx([0, 0, 0])


def test_balance_of_very_many_experts_is_that_of_few():
    """CV^2 of n experts of which one is chosen is n - 1: also where the mean of their sums is as small as 1 / n^2."""
    number = 4_000
    sums = torch.zeros(2, number, dtype=torch.float64)
    sums[0, 7] = 1 / number
    assert _variation(sums).tolist() == pytest.approx([number - 1, 0])
