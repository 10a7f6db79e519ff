"""A new model's activations have the mean and the scale that its initial distributions give, layer by layer.

A map whose weights are independent of its input, with mean 0 and variance v, gives from inputs of mean square m outputs
of mean square d_in v m: 2 d_in / (d_in + d_out) m where v is Glorot's 2 / (d_in + d_out), m where it is 1 / d_in.
"""

import math

import pytest
import torch

from transduce.config import ModelConfig, preset
from transduce.kernels.scores import compare
from transduce.layers import FeedForward, FeedForwardShape, MultiHeadAttention
from transduce.models import Tokens, build

D, D_FF, HEADS, D_K, D_V, VOCABULARY, ROWS = 254, 1021, 3, 61, 53, 9973, 499
SIZES = {"d_model": D, "d_ff": D_FF, "heads": HEADS, "d_k": D_K, "d_v": D_V, "vocab_size": VOCABULARY, "dropout": 0.0}
INITIALIZERS = ("glorot_uniform", "unit_scaling")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(5)


def config(**changes) -> ModelConfig:
    return preset("base", {**SIZES, **changes})


def gain(initializer: str, inputs: int, outputs: int) -> float:
    """What a map multiplies a mean square with."""
    return 2 * inputs / (inputs + outputs) if initializer == "glorot_uniform" else 1.0


def tolerance(inputs: int, outputs: int, rows: int = ROWS) -> float:
    """Five standard deviations, relative, of the mean square of what a map makes of ``rows`` normal inputs.

    The weights' own mean square has a variance of 0.8 / (inputs outputs): a uniform number's x^4 is 9 / 5 of its x^2
    squared. A row's is that of x^T A x with A = W^T W: 2 tr A^2 / (tr A)^2 = 2 (1 / inputs + 1 / outputs).
    """
    return 5 * math.sqrt(0.8 / (inputs * outputs) + 2 * (1 / inputs + 1 / outputs) / rows)


def mean_square(x: torch.Tensor) -> float:
    return x.detach().square().mean().item()


def test_embeddings_and_sinusoids():
    """Embeddings have variance 1; of each pair of sine and cosine the squares make 1, so that they add 1/2."""
    model = build(config(encoder_layers=1, decoder_layers=1)).eval()
    embedded = model.embedding(torch.arange(13 * ROWS).view(13, ROWS))
    # Five standard deviations of the mean, and of the mean of squares, whose variance is 2.
    assert embedded.mean().item() == pytest.approx(0, abs=5 / math.sqrt(embedded.numel()))
    assert mean_square(embedded) == pytest.approx(1, abs=5 * math.sqrt(2 / embedded.numel()))
    x = model.encoder_positions(embedded, torch.arange(ROWS).unsqueeze(0), ROWS)
    # (e + s)^2 has a variance of 2 + 4 s^2, on average 4.
    assert mean_square(x) == pytest.approx(1 + 1 / 2, abs=5 * math.sqrt(4 / x.numel()))


@pytest.mark.parametrize("initializer", INITIALIZERS)
def test_maps_of_attention(initializer):
    layer = MultiHeadAttention(config(initializer=initializer))
    x = torch.randn(1, ROWS, D)
    attended = layer.key_values(x)
    for projected, width in ((layer.query(x), D_K), (attended.key, D_K), (attended.value, D_V)):
        outputs = HEADS * width
        assert mean_square(projected) == pytest.approx(gain(initializer, D, outputs), rel=tolerance(D, outputs))
    gathered = torch.randn(1, ROWS, HEADS * D_V)
    expected = gain(initializer, HEADS * D_V, D)
    assert mean_square(layer.output(gathered)) == pytest.approx(expected, rel=tolerance(HEADS * D_V, D))


# E tanh(z)^2 of z = q + k, both of variance 1, by the trapezoidal rule over twelve standard deviations.
_Z = torch.linspace(-12, 12, 10_001, dtype=torch.float64)
TANH_SQUARE = float((torch.tanh(math.sqrt(2) * _Z).square() * torch.exp(-_Z.square() / 2)).sum() * (_Z[1] - _Z[0]))
TANH_SQUARE /= math.sqrt(2 * math.pi)


@pytest.mark.parametrize(
    ("compatibility", "expected"),
    [
        # "Assume that the components of q and k are independent random variables with mean 0 and variance 1. Then their
        # dot product has mean 0 and variance d_k" (section 3.2.1): hence its division by sqrt(d_k).
        ("scaled_dot_product", 1.0),
        ("dot_product", D_K),
        ("multiplicative", D_K),  # W has variance 1 / d_k, so q W is as large as q
        ("additive", D_K * 2 / (D_K + 1) * TANH_SQUARE),  # w is Glorot's from d_k to 1
    ],
)
def test_scores_of_unit_inputs(compatibility, expected):
    layer = MultiHeadAttention(config(compatibility=compatibility, initializer="unit_scaling"))
    query = layer.query(torch.randn(1, 101, D)).view(1, 101, HEADS, D_K).transpose(1, 2)
    key = layer.key_values(torch.randn(1, 103, D)).key
    scores = compare(query, key, None, layer.scoring())
    # 101 queries and 103 keys of HEADS D_K numbers each; and so many in additive's w, and traces of the bilinear W.
    of_rows, of_weights = 2 / 101 + 2 / 103, 0.8 + 4
    spread = 5 * math.sqrt((of_rows + of_weights * (compatibility in {"additive", "multiplicative"})) / (HEADS * D_K))
    assert scores.mean().abs().item() < 0.1 * math.sqrt(expected)
    assert mean_square(scores) == pytest.approx(expected, rel=spread)


@pytest.mark.parametrize("initializer", INITIALIZERS)
def test_feed_forward(initializer):
    """ReLU lets half of a symmetric distribution through: half of the mean square.

    Of that half, 1 / pi is the square of its mean, which all rows share: what the outer map makes of it is one vector
    of d_model numbers, whose mean square has a relative variance of 2 / d_model.
    """
    layer = FeedForward(FeedForwardShape.of(config(initializer=initializer)))
    x = torch.randn(ROWS, D)
    inner = gain(initializer, D, D_FF)
    hidden = layer.inner(x)
    assert mean_square(hidden) == pytest.approx(inner, rel=tolerance(D, D_FF))
    assert mean_square(torch.relu(hidden)) == pytest.approx(inner / 2, rel=2 * tolerance(D, D_FF))
    expected = inner / 2 * gain(initializer, D_FF, D)
    assert mean_square(layer(x)) == pytest.approx(expected, rel=tolerance(D_FF, D) + 5 * math.sqrt(2 / D) / math.pi)


def symbols() -> Tokens:
    """Sequences of one symbol each, all different. Attention then is its value, mapped twice, whatever its weights."""
    return Tokens(torch.randperm(VOCABULARY)[:ROWS].unsqueeze(1), torch.ones(ROWS, dtype=torch.long))


@torch.no_grad()
def sums_of(model):
    """The mean squares of the residual sums in front of each layer, and of the last, of encoder and decoder."""
    found = [], []
    for stack, sums in ((model.encoder, found[0]), (model.decoder, found[1])):
        for layer in stack:
            layer.register_forward_pre_hook(lambda _, inputs, sums=sums: sums.append(mean_square(inputs[0].settle())))
        stack[-1].register_forward_hook(lambda _, __, output, sums=sums: sums.append(mean_square(output[0].settle())))
    model.decode(model.encode(symbols()), symbols())
    return found


@pytest.mark.parametrize("initializer", INITIALIZERS)
def test_residual_sums_of_pre_norm_stacks_grow_by_the_same_at_every_layer(initializer):
    """Each sub-layer is given what LayerNorm makes, of mean square 1, and adds something independent of the sum so far.

    Attention's two maps make of 1 the product of their gains; so does a feed-forward network, halved by its ReLU. Two
    directions of d_model dimensions that have nothing to do with each other have a cosine of 1 / sqrt(d_model) or so,
    and a square of a sum holds it twice.
    """
    attention = gain(initializer, D, HEADS * D_V) * gain(initializer, HEADS * D_V, D)
    feed_forward = gain(initializer, D, D_FF) / 2 * gain(initializer, D_FF, D)
    sums = sums_of(build(config(norm="pre", positions="none", initializer=initializer)).eval())
    for found, attentions in zip(sums, (1, 2), strict=True):
        expected = [1 + layers * (attentions * attention + feed_forward) for layers in range(7)]
        assert found == pytest.approx(expected, rel=2 / math.sqrt(D))


@torch.no_grad()
def test_post_norm_gives_every_layer_mean_0_and_variance_1():
    model = build(config(encoder_layers=2, decoder_layers=2)).eval()
    memory = model.encode(symbols())
    for hidden in (memory.hidden, model.decode(memory, symbols()).hidden):
        torch.testing.assert_close(hidden.mean(-1), torch.zeros(ROWS), atol=1e-6, rtol=0)
        torch.testing.assert_close(hidden.var(-1, correction=0), torch.ones(ROWS), rtol=1e-5, atol=0)


@torch.no_grad()
def test_the_first_loss_is_that_of_normal_logits():
    """Hidden states of length sqrt(d_model) and rows of N(0, 1 / d_model) have products of N(0, 1).

    A label's own is 0 on average, and the mean of exp(z) is exp(1/2): nll = log V + 1/2, give or take 1 / sqrt(labels).
    A projection of the output's own leaves out that a symbol that is read scores itself.
    """
    model = build(config(encoder_layers=1, decoder_layers=1, tied_projection=False)).eval()
    hidden = model.decode(model.encode(symbols()), symbols()).hidden
    logits = model.project(hidden)
    assert logits.var().item() == pytest.approx(1, abs=5 * math.sqrt(2 / ROWS / D))
    sums = model(symbols(), symbols(), symbols().ids)
    assert sums.nll.item() / ROWS == pytest.approx(math.log(VOCABULARY) + 1 / 2, abs=5 / math.sqrt(ROWS))
