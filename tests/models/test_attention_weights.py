"""Attention weights by kind, layer and head."""

import math

import pytest
import torch

from tests.model_variants import VARIANTS
from tests.sparing import every
from transduce.config import preset
from transduce.models import (
    LAST_CROSS,
    AttentionRequest,
    AttentionWeights,
    Ensemble,
    NativeTransformer,
    Tokens,
    build,
    can_run_natively,
)

pytest_plugins = ["model_variants"]

SIZES = {"encoder_layers": 3, "decoder_layers": 2, "d_model": 28, "d_ff": 44, "heads": 4, "vocab_size": 31}
EVERYTHING = AttentionRequest(encoder="all", decoder="all", cross="all")
SOURCE = Tokens(torch.tensor([[5, 6, 7, 8, 9], [10, 11, 0, 0, 0], [12, 13, 14, 0, 0]]), torch.tensor([5, 2, 3]))
TARGET = Tokens(torch.tensor([[1, 15, 16, 17], [1, 18, 0, 0], [1, 21, 22, 0]]), torch.tensor([4, 2, 3]))


def make(changes=None):
    torch.manual_seed(13)
    return build(preset("base", SIZES | (changes or {}))).eval().requires_grad_(False)


def look(model, request):
    return model.decode(model.encode(SOURCE, attention=request), TARGET, attention=request).attention


def test_the_first_layers_weights_by_the_formula():
    """softmax(Q K^T / sqrt(d_k)) of the embedded symbols (section 3.2.1), a sentence at a time."""
    model = make()
    found = look(model, EVERYTHING)
    for tokens, layer, encoding, weights, causal in (
        (SOURCE, model.encoder[0], model.encoder_positions, found.encoder[0], False),
        (TARGET, model.decoder[0], model.decoder_positions, found.decoder[0], True),
    ):
        for row, length in enumerate(tokens.lengths.tolist()):
            x = encoding(model.embedding(tokens.ids[row, :length]), torch.arange(length), length)
            attention = layer.self_attention
            query, key = (map_(x).view(length, 4, 7).transpose(0, 1) for map_ in (attention.query, attention.key))
            scores = query @ key.transpose(1, 2) / math.sqrt(7)
            if causal:
                scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf)
            torch.testing.assert_close(weights[row, :, :length, :length], scores.softmax(-1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("variant", [*every(2, VARIANTS)], indirect=True)
def test_weights_sum_to_one_over_what_may_be_seen(variant):
    model = make(variant)
    found, window = look(model, EVERYTHING), model.config.attention_window
    assert [*found.encoder] == [*range(model.config.encoder_layers)]
    assert [*found.decoder] == [*found.cross] == [*range(model.config.decoder_layers)]
    for kind, queries, keys in (("encoder", SOURCE, SOURCE), ("decoder", TARGET, TARGET), ("cross", TARGET, SOURCE)):
        for weights in getattr(found, kind).values():
            assert weights.shape == (3, 4, queries.ids.shape[1], keys.ids.shape[1])
            for row in range(3):
                real = weights[row, :, : queries.lengths[row], : keys.lengths[row]]
                torch.testing.assert_close(real.sum(-1), torch.ones(real.shape[:2]))
                distance = torch.arange(real.shape[2]) - torch.arange(real.shape[1]).unsqueeze(1)
                assert kind != "decoder" or real[:, distance > 0].eq(0).all()
                assert kind == "cross" or window is None or real[:, distance.abs() > window // 2].eq(0).all()


def test_what_is_asked_for_is_given_and_no_more():
    model, everything = make(), look(make(), EVERYTHING)
    assert look(model, AttentionRequest()) == AttentionWeights()
    found = look(model, AttentionRequest(encoder=(-1, 0), cross=(1,), heads=(3, 1)))
    assert ([*found.encoder], [*found.decoder], [*found.cross]) == ([0, 2], [], [1])
    for number, weights in found.encoder.items():
        assert torch.equal(weights, everything.encoder[number][:, [3, 1]])
    assert torch.equal(found.cross[1], everything.cross[1][:, [3, 1]])
    assert [*look(model, AttentionRequest(decoder=(-2, -3, 7))).decoder] == [0]  # others are not there


@pytest.mark.parametrize("variant", [*every(2, VARIANTS, 1)], indirect=True)
def test_asking_changes_no_hidden_state(variant):
    model = make(variant)
    asked = model.decode(model.encode(SOURCE, attention=EVERYTHING), TARGET, attention=EVERYTHING)
    assert torch.equal(asked.hidden, model.decode(model.encode(SOURCE), TARGET).hidden)


def test_of_a_step_the_encoder_decoder_attention_is_given():
    model = make()
    request = AttentionRequest(cross="all", heads=(2,))
    step = model.step(model.start(model.encode(SOURCE), 2), TARGET.ids[:, 0].repeat_interleave(2), attention=request)
    expected = look(model, request).cross
    assert [*step.attention] == [*expected] == [0, 1]
    for number, weights in step.attention.items():
        torch.testing.assert_close(weights, expected[number][:, :, 0].repeat_interleave(2, 0), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="ask decode"):
        model.step(step.state, TARGET.ids[:, 1].repeat_interleave(2), attention=AttentionRequest(decoder=(0,)))


def test_an_ensemble_has_the_heads_of_all_and_the_last_layers_of_each():
    deep, shallow = make(), make({"encoder_layers": 2, "decoder_layers": 1})
    found, (one, other) = look(Ensemble([deep, shallow]), EVERYTHING), (look(m, EVERYTHING) for m in (deep, shallow))
    assert ([*found.encoder], [*found.decoder], [*found.cross]) == ([0, 1], [0], [0])
    assert torch.equal(found.encoder[1], torch.cat([one.encoder[2], other.encoder[1]], dim=1))
    assert torch.equal(found.cross[0], torch.cat([one.cross[1], other.cross[0]], dim=1))
    assert look(Ensemble([deep, shallow]), AttentionRequest()) == AttentionWeights()


def test_a_native_model_gives_the_same():
    plain = make()
    if not can_run_natively(plain):
        pytest.skip("installed without a C++ compiler")
    native, expected = NativeTransformer(make(), "float32"), look(plain, EVERYTHING)
    found = look(native, EVERYTHING)
    for kind in ("encoder", "decoder", "cross"):
        torch.testing.assert_close(getattr(found, kind), getattr(expected, kind), rtol=1e-4, atol=1e-5)
    state, tokens = native.start(native.encode(SOURCE, attention=EVERYTHING), 1), TARGET.ids[:, 0]
    step = native.step(state, tokens, attention=AttentionRequest(cross=(1,), heads=(0, 3)))
    torch.testing.assert_close(step.attention, {1: expected.cross[1][:, [0, 3], 0]}, rtol=1e-4, atol=1e-5)
    for request in (AttentionRequest(cross=(0,)), AttentionRequest(encoder=(-1,)), AttentionRequest(cross="all")):
        with pytest.raises(ValueError, match="plain model"):
            native.step(step.state, tokens, attention=request)
    assert native.step(step.state, tokens, attention=LAST_CROSS).attention.keys() == {1}
