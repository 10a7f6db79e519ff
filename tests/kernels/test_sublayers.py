"""A layer of training at once, beside its sub-layers one by one."""

from unittest.mock import patch

import pytest
import torch

from transduce.config import TransformerConfig
from transduce.kernels import derive, native
from transduce.models import Tokens, build, stacks

CONFIGS = {
    "as published": {},
    "pre-norm": {"norm": "pre"},
    "without biases, gated": {"attention_bias": False, "feed_forward_bias": False, "feed_forward": "gated"},
    "every dropout": {"dropout": 0.1, "attention_dropout": 0.2, "activation_dropout": 0.3},
    "every dropout, pre-norm, gelu": {
        **{"norm": "pre", "dropout": 0.1, "attention_dropout": 0.2, "activation_dropout": 0.3},
        **{"activation": "gelu", "d_v": 17},
    },
    "norms behind post-norm stacks": {"final_norm": True},
}
# Layers with something that C++ has no part for.
OTHERS = {
    "mixture of experts": {"feed_forward": "mixture_of_experts", "experts": 3, "experts_per_token": 2},
    "relative positions": {"positions": "relative"},
    "a window": {"attention_window": 4},
    "without residual connections": {"residual": False},
    "average attention": {"decoder_self_attention": "average"},
}


def make_model(**settings):
    torch.manual_seed(3)
    sizes = {"d_model": 36, "d_ff": 50, "heads": 2, "d_k": 12, "d_v": 12, "encoder_layers": 2, "decoder_layers": 2}
    return build(TransformerConfig(vocab_size=30, **{**sizes, "dropout": 0.0, **settings})).train()


def make_batch(seeded=True):
    torch.manual_seed(5)
    lengths, targets = torch.tensor([7, 1, 12, 4]), torch.tensor([3, 17, 5, 9])
    seeds = derive(torch.tensor(11), torch.arange(4)) if seeded else None
    ids, labels = torch.randint(4, 30, (4, 12)), torch.randint(4, 30, (2, 4, 17))
    return Tokens(ids, lengths, seeds), Tokens(labels[0], targets, seeds), labels[1]


def learn(model, at_once=True, batch=None, dtype=torch.bfloat16):
    """The objective, all gradients, and how many layers were one operation."""
    done = []

    def run(*arguments):
        behind = original(*arguments) if at_once else None
        done.append(behind is not None)
        return behind

    original = stacks._at_once
    model.zero_grad()
    with patch.object(stacks, "_at_once", run), torch.autocast("cpu", dtype, dtype != torch.float32):
        torch.manual_seed(7)
        sums = model(*(batch or make_batch()))
    sums.objective.backward()
    return sums.objective.detach(), {name: x.grad.clone() for name, x in model.named_parameters()}, sum(done)


def require_equal(one, other):
    assert one[0].equal(other[0])
    assert [name for name, gradient in one[1].items() if not gradient.equal(other[1][name])] == []


@pytest.mark.parametrize("settings", CONFIGS.values(), ids=CONFIGS)
def test_a_layer_at_once_computes_what_its_sub_layers_do_to_the_last_bit(own_maps, settings):
    model = make_model(**settings)
    at_once, one_by_one = learn(model), learn(model, at_once=False)
    assert (at_once[2], one_by_one[2]) == (0 if own_maps is None else 4, 0)
    require_equal(at_once, one_by_one)


@pytest.mark.parametrize("settings", OTHERS.values(), ids=OTHERS)
def test_layers_that_have_to_be_gone_through_one_by_one_are(own_maps, settings):
    model = make_model(**settings)
    at_once = learn(model)
    assert at_once[2] == (2 if "decoder_self_attention" in settings and own_maps else 0)  # the encoder's
    require_equal(at_once, learn(model, at_once=False))


def test_float32_is_gone_through_one_by_one(own_maps):
    assert learn(make_model(), dtype=torch.float32)[2] == 0


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_dropout_without_seeds_is_torchs(own_maps, norm):
    if own_maps is None:
        pytest.skip("only layers at once")
    model = make_model(norm=norm, dropout=0.3, attention_dropout=0.2)
    batch = make_batch(seeded=False)
    first, again = learn(model, batch=batch), learn(model, batch=batch)
    require_equal(first, again)
    without = learn(make_model(norm=norm), batch=batch)
    assert not first[0].equal(without[0])


def test_gradients_are_those_of_the_plain_formulas(own_maps):
    if own_maps is None:
        pytest.skip("only layers at once")
    for norm in ("pre", "post"):
        model = make_model(norm=norm, dropout=0.1)
        objective, gradients, _ = learn(model)
        with patch.object(native, "_library", lambda: None):
            torch.manual_seed(7)
            sums = model(*make_batch())
            model.zero_grad()
            sums.objective.backward()
        torch.testing.assert_close(objective, sums.objective.detach(), rtol=1e-2, atol=0)
        for name, x in model.named_parameters():
            off = (gradients[name] - x.grad).norm() / x.grad.norm().clamp(min=1e-3)
            assert off < 0.1, (norm, name, off)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("used", [(1, 0), (0, 1)], ids=["stream", "what goes along with it"])
def test_one_of_the_two_results_may_go_unused(own_maps, norm, used):
    model = make_model(norm=norm)
    layer, layout = model.encoder[0], make_batch()[0].layout()

    def gradients(at_once):
        torch.manual_seed(2)
        x = torch.randn(24, 36, requires_grad=True)
        with (
            torch.autocast("cpu", torch.bfloat16),
            patch.object(stacks, "_at_once", stacks._at_once if at_once else lambda *_: None),
        ):
            behind, _ = layer(stacks.Stream(x), layout, None)
        both = behind.total, behind.pending if norm == "pre" else behind.ready
        if both[1] is None:
            pytest.skip("float32 has no second result")
        picked = next(part for part, wanted in zip(both, used, strict=True) if wanted)
        known = [x, *layer.parameters()]
        found = torch.autograd.grad((picked.float() * torch.randn(24, 36)).sum(), known, allow_unused=True)
        return [torch.zeros_like(each) if grad is None else grad for each, grad in zip(known, found, strict=True)]

    for one, other in zip(gradients(True), gradients(False), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_parameters_may_move_between_the_passes(own_maps):
    """As those that are sharded do, which are gathered again for the backward pass."""
    model = make_model(norm="pre")
    expected = learn(model)
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        torch.manual_seed(7)
        sums = model(*make_batch())
    taken, moved = [], 0
    for parameter in model.parameters():
        there, place = parameter.data.clone(), parameter.data_ptr()
        parameter.untyped_storage().resize_(0)
        taken.append(torch.empty_like(there))  # what was there, so that the storage comes to lie elsewhere
        parameter.untyped_storage().resize_(there.numel() * 4)
        parameter.data.view(-1).copy_(there.view(-1))
        moved += parameter.data_ptr() != place
    assert moved
    sums.objective.backward()
    require_equal((sums.objective.detach(), {name: x.grad for name, x in model.named_parameters()}), expected)
