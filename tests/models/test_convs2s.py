"""ConvS2S: its published sizes, its scale from layer to layer, its attention."""

import math

import pytest
import torch

from transduce.config import ConvolutionalConfig, preset
from transduce.models import AttentionRequest, Tokens, build
from transduce.models.build import build_without_storage

SOURCE = Tokens(torch.tensor([[5, 6, 7, 8, 9], [10, 11, 0, 0, 0], [12, 13, 14, 0, 0]]), torch.tensor([5, 2, 3]))
TARGET = Tokens(torch.tensor([[1, 15, 16, 17], [1, 18, 19, 0], [1, 21, 22, 23]]), torch.tensor([4, 3, 4]))
SMALL = {
    "embedding_width": 11,
    "output_width": 7,
    "encoder_convolutions": ((13, 3, 2),),
    "decoder_convolutions": ((13, 3, 2), (5, 1, 1)),
    "vocab_size": 31,
}


def published_maps(embedding, output, convolutions, vocabulary):
    """Inputs and outputs of each map of fairseq's fconv models, both sides alike, as its code (fconv.py) makes them.

    fc1, projections, convolutions (whose outputs a gate halves) and fc2 of both; attention in each layer of the
    decoder; fc3 to the vocabulary.
    """
    maps = []
    for side in ("encoder", "decoder"):
        channels = convolutions[0][0]
        maps.append((embedding, channels))
        for out, kernel in convolutions:
            maps += [(channels, out)] if channels != out else []
            maps.append((channels * kernel, 2 * out))
            maps += [(out, embedding), (embedding, out)] if side == "decoder" else []
            channels = out
        maps.append((channels, embedding if side == "encoder" else output))
    return [*maps, (output, vocabulary)]


def test_the_preset_has_the_published_sizes():
    """fconv_wmt_en_de: embeddings of 768, layers [(512, 3)] * 9 + [(1024, 3)] * 4 + [(2048, 1)] * 2, output of 512."""
    config = preset("convs2s")
    expected = published_maps(768, 512, [(512, 3)] * 9 + [(1024, 3)] * 4 + [(2048, 1)] * 2, config.vocab_size)
    weights = dict(build_without_storage(config).named_parameters())
    found = [tuple(reversed(weight.shape)) for name, weight in weights.items() if name.endswith("direction")]
    assert sorted(found) == sorted(expected)
    assert sum(name.endswith("length") for name in weights) == sum(name.endswith("bias") for name in weights) == 69
    assert len(expected) == 69
    # Of the positions, fairseq has two more, which stand for padding.
    tables = [weight.shape for name, weight in weights.items() if "embedding" in name or "positions" in name]
    assert sorted(map(tuple, tables)) == sorted([(config.vocab_size, 768), (1024, 768)] * 2)
    embedded = 2 * 768 * (config.vocab_size + 1024)
    total = sum(inputs * outputs + 2 * outputs for inputs, outputs in expected) + embedded
    assert sum(weight.numel() for weight in weights.values()) == total


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("training", [False, True])
def test_the_scale_stays_from_layer_to_layer(dropout, training):
    """Section 3.5: the layers' outputs have the variance of what the first one is given, within a fifth a layer.

    In training, where dropout scales up what stays; without it, layers see 1 - dropout of that.
    """
    torch.manual_seed(5)
    convolutions = ((64, 3, 6), (96, 3, 3))
    config = ConvolutionalConfig(
        embedding_width=64,
        output_width=64,
        encoder_convolutions=convolutions,
        decoder_convolutions=convolutions,
        dropout=dropout,
        vocab_size=997,
    )
    model = build(config).train(training)
    seen = []
    for block in (*model.encoder, *model.decoder):
        block.register_forward_hook(lambda _, inputs, outputs: seen.append((outputs[0].var() / inputs[0].var()).item()))
    ids = torch.randint(4, 997, (29, 31))
    tokens = Tokens(ids, torch.full((29,), 31))
    model.decode(model.encode(tokens), tokens)
    assert len(seen) == 18
    if training or not dropout:
        assert 0.8 < math.prod(seen[:9]) ** (1 / 9) < 1.1  # the encoder's
        assert 0.7 < math.prod(seen[9:]) ** (1 / 9) < 1.1  # the decoder's, whose attention finds less than it might
    else:
        assert 0.6 < math.prod(seen) ** (1 / 18) < 0.95


def test_embeddings_and_maps_begin_as_published():
    """Embeddings N(0, 0.1^2); what a gate follows N(0, 4 p / n), other maps N(0, 1 / n), those behind dropout p / n."""
    torch.manual_seed(5)
    config = ConvolutionalConfig(
        embedding_width=61,
        output_width=53,
        encoder_convolutions=((67, 3, 1), (71, 3, 1)),
        decoder_convolutions=((67, 3, 1),),
        dropout=0.4,
        vocab_size=1009,
        weight_normalization=False,
    )
    model, p = build(config), 0.6
    expected = {
        model.source_embedding.weight: 0.1**2,
        model.decoder_positions.table.weight: 0.1**2,
        model.encoder[0].convolution.map.weight: 4 * p / (3 * 67),
        model.encoder[1].match.weight: 1 / 67,
        model.encoder_input.weight: p / 61,
        model.encoder_output.weight: 1 / 71,
        model.decoder[0].attention.query.weight: 1 / 67,
        model.decoder[0].attention.output.weight: 1 / 61,
        model.decoder_output.weight: 1 / 67,
        model.projection.weight: p / 53,
    }
    for weight, variance in expected.items():
        five = 5 * math.sqrt(2 / weight.numel())
        assert weight.var().item() == pytest.approx(variance, rel=five)


@torch.no_grad()
def test_attention_of_every_layer():
    torch.manual_seed(3)
    model = build(ConvolutionalConfig(**SMALL)).eval()
    memory = model.encode(SOURCE)
    request = AttentionRequest(cross="all")
    found = model.decode(memory, TARGET, attention=request).attention
    assert (found.encoder, found.decoder) == ({}, {})
    assert {number: tuple(weights.shape) for number, weights in found.cross.items()} == dict.fromkeys(
        range(3), (3, 1, 4, 5)
    )
    for weights in found.cross.values():
        torch.testing.assert_close(weights[0].sum(-1), torch.ones(1, 4))
        assert weights[1, ..., 2:].eq(0).all()  # the second source has two symbols
    state = model.start(memory, 2)
    for time in range(3):
        step = model.step(state, TARGET.ids[:, time].repeat_interleave(2), attention=request)
        state = step.state
        for number, weights in step.attention.items():
            torch.testing.assert_close(weights[::2], found.cross[number][:, :, time], rtol=1e-4, atol=1e-6)


def test_the_encoder_gets_a_part_of_its_gradient():
    """1 / (2 x decoder layers) of it, but its embeddings all of what reaches them beside (section 3.5)."""
    torch.manual_seed(3)
    model = build(ConvolutionalConfig(**SMALL)).eval()
    memory = model.encode(SOURCE)
    keys, values = (x.detach().requires_grad_() for x in (memory.keys, memory.values))
    loss = model.decode(type(memory)(keys, values, memory.layout), TARGET).hidden.square().sum()
    of_keys, of_values = torch.autograd.grad(loss, (keys, values))
    whole = of_keys + of_values * math.sqrt(0.5)
    expected = whole.sum(dim=0) / (2 * 3)
    model.decode(memory, TARGET).hidden.square().sum().backward()
    torch.testing.assert_close(model.encoder_output.bias.grad, expected)


def test_more_positions_than_were_learned():
    model = build(ConvolutionalConfig(**SMALL, max_positions=4)).eval()
    assert model.config.longest == 4
    with pytest.raises(ValueError, match="5 symbols: this model has learned max_positions = 4"):
        model.encode(SOURCE)
    state = model.start(model.encode(Tokens(SOURCE.ids[:, :4], SOURCE.lengths.clamp(max=4))), 1)
    for _ in range(4):
        state = model.step(state, torch.ones(3, dtype=torch.long)).state
    with pytest.raises(ValueError, match="5 symbols"):
        model.step(state, torch.ones(3, dtype=torch.long))
