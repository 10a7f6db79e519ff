"""ByteNet: its published sizes, how far it sees, and how the decoder lies over the encoder's columns."""

import pytest
import torch
from torch import nn

from transduce.config import ConvolutionalConfig, preset
from transduce.kernels import RaggedLayout
from transduce.layers.convolution import look_around
from transduce.models import AttentionRequest, AttentionWeights, Tokens, build
from transduce.models.build import build_without_storage

SMALL = {"network": "bytenet", "channels": 5, "encoder_blocks": 3, "decoder_blocks": 3, "vocab_size": 31}


def make(**changes):
    torch.manual_seed(3)
    return build(ConvolutionalConfig(**{"dropout": 0.0, "largest_dilation": 4, **SMALL, **changes})).eval()


def test_the_preset_has_the_published_sizes():
    """30 residual blocks on each side, d = 800, kernels of 3, dilations 1, 2, 4, 8, 16 six times."""
    model = build_without_storage(preset("bytenet"))
    for side, offsets in ((model.encoder, (-1, 0, 1)), (model.decoder, (-2, -1, 0))):
        assert len(side) == 30
        for block, dilation in zip(side, (1, 2, 4, 8, 16) * 6, strict=True):
            assert block.convolution.offsets == tuple(dilation * offset for offset in offsets)
            shapes = [block.reduce.weight.shape, block.convolution.map.weight.shape, block.expand.weight.shape]
            assert [*map(tuple, shapes)] == [(800, 1600), (800, 3 * 800), (1600, 800)]
    # A block has 1600 x 800 + 800 x 2400 + 800 x 1600 weights, 3,200 biases, and two numbers for each of 3,200 norms.
    assert sum(weight.numel() for weight in model.encoder.parameters()) == 30 * (4_480_000 + 3_200 + 6_400)


def test_a_block_is_as_published():
    """Layer norm, ReLU, 1x1 to d; layer norm, ReLU, 1xk; layer norm, ReLU, 1x1 to 2 d; the input added."""
    torch.manual_seed(3)
    model = make().double()
    block, d, dilation = model.decoder[2], 5, 4
    for name, weight in block.named_parameters():
        if "norm" in name or name.endswith("bias"):
            nn.init.normal_(weight)
    x = torch.randn(1, 2 * d, 13, dtype=torch.float64)

    def norm(number, x):
        weights = block.norms[number]
        mean, variance = x.mean(dim=1, keepdim=True), x.var(dim=1, unbiased=False, keepdim=True)
        scaled = (x - mean) / (variance + weights.eps).sqrt()
        return (scaled * weights.weight[:, None] + weights.bias[:, None]).relu()

    y = torch.conv1d(norm(0, x), block.reduce.weight.unsqueeze(2), block.reduce.bias)
    kernel = block.convolution.map.weight.view(d, 3, d).transpose(1, 2)
    masked = nn.functional.pad(norm(1, y), (2 * dilation, 0))
    y = torch.conv1d(masked, kernel, block.convolution.map.bias, dilation=dilation)
    expected = x + torch.conv1d(norm(2, y), block.expand.weight.unsqueeze(2), block.expand.bias)
    layout = RaggedLayout.of(torch.tensor([13]), 13, torch.device("cpu"))
    around = look_around([block.convolution], layout)[block.convolution.offsets]
    torch.testing.assert_close(block(x[0].T, around, None).T, expected[0])


@pytest.mark.parametrize(("dilation", "reach"), [(1, 6), (2, 8), (4, 14)])
def test_how_far_back_the_decoder_sees(dilation, reach):
    """Three blocks of kernels of 3: 2 x 3 symbols back without dilation, 2 (1 + 2 + 1) and 2 (1 + 2 + 4) with it."""
    model = make(largest_dilation=dilation).double()
    read = []
    model.embedding.register_forward_hook(lambda _, __, output: read.append(output.requires_grad_()) or output)
    source = Tokens(torch.tensor([[5, 7, 2]]), torch.tensor([3]))
    target = Tokens(torch.arange(4, 27).unsqueeze(0), torch.tensor([23]))
    hidden = model.decode(model.encode(source), target).hidden
    (gradient,) = torch.autograd.grad(hidden[22].sum(), read[-1])
    assert gradient.ne(0).any(dim=1).nonzero().min() == 22 - reach


def test_the_target_length_is_estimated():
    """|t^| = a |s| + b, rounded up, and never less than |s|."""
    lengths = torch.tensor([1, 5, 7, 35])
    assert make().unfolded(lengths).tolist() == [2, 6, 9, 42]
    assert make(unfold_factor=1.0).unfolded(lengths).tolist() == [1, 5, 7, 35]
    assert make(unfold_factor=1.0, unfold_extra=2.5).unfolded(lengths).tolist() == [4, 8, 10, 38]


@torch.no_grad()
def test_the_decoder_unfolds_over_the_columns():
    """Step i reads column i of |t^|; those behind the source begin as zeros, and there are none beyond |t^|."""
    model = make(unfold_factor=1.5).double()
    source = Tokens(torch.tensor([[5, 7, 11, 2], [13, 2, 0, 0]]), torch.tensor([4, 2]))
    memory = model.encode(source)
    assert memory.layout.lengths.tolist() == [6, 3]
    # The encoder's own input, by hand: the embeddings, then zeros.
    x = torch.zeros(9, 10, dtype=torch.float64)
    x[:4], x[6:8] = model.source_embedding(source.ids[0]), model.source_embedding(source.ids[1, :2])
    around = look_around((block.convolution for block in model.encoder), memory.layout)
    for block in model.encoder:
        x = block(x, around[block.convolution.offsets], None)
    torch.testing.assert_close(memory.hidden, x)
    target = torch.randint(4, 31, (2, 8))
    read = []
    model.join.register_forward_hook(lambda _, inputs, __: read.append(inputs[0][:, 10:]))
    model.decode(memory, Tokens(target, torch.tensor([8, 8])))
    expected = torch.zeros(2, 8, 10, dtype=torch.float64)
    expected[0, :6], expected[1, :3] = memory.hidden[:6], memory.hidden[6:]
    torch.testing.assert_close(read.pop().view(2, 8, 10), expected)
    state = model.start(memory, 1)
    for time in range(8):
        state = model.step(state, target[:, time]).state
    torch.testing.assert_close(torch.stack(read, 1), expected)


def test_the_scale_stays_inside_the_blocks():
    """Every map behind a ReLU gives a variance of 1 from a normalized input, and each block adds 1 to the stream's."""
    torch.manual_seed(5)
    config = ConvolutionalConfig(
        **{**SMALL, "channels": 128, "vocab_size": 997}, dropout=0.0, largest_dilation=4, unfold_factor=1.0
    )
    model = build(config)
    seen = []
    for block in model.encoder:
        for layer in (block.reduce, block.convolution, block.expand, block):
            layer.register_forward_hook(lambda _, __, output: seen.append(output.var().item()))
    ids = torch.randint(4, 997, (17, 61))
    model.encode(Tokens(ids, torch.full((17,), 61)))
    for number in range(3):
        reduced, convolved, expanded, stream = seen[4 * number : 4 * number + 4]
        assert [reduced, convolved, expanded] == pytest.approx([1, 1, 1], abs=0.3)
        assert stream == pytest.approx(2 + number, rel=0.2)


@torch.no_grad()
def test_there_is_no_attention_to_tell_of():
    model = make()
    source = Tokens(torch.tensor([[5, 7, 2]]), torch.tensor([3]))
    memory = model.encode(source, attention=AttentionRequest("all", "all", "all"))
    found = model.decode(memory, source, attention=AttentionRequest("all", "all", "all"))
    assert found.attention == AttentionWeights()
