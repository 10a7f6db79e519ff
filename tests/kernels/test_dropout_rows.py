"""What dropout leaves out of a row follows from the row's seed, whatever computes it and whatever stands beside it."""

import pytest
import torch

from transduce.kernels import (
    WHOLE,
    Dropped,
    Heads,
    Mask,
    RaggedAttention,
    RaggedLayout,
    Scoring,
    add_norm,
    attend_ragged,
    chunked,
    derive,
    dropout,
)
from transduce.kernels.chunked import attend_in_chunks
from transduce.kernels.local import attend_locally
from transduce.kernels.scores import attend_plainly

CPU = torch.device("cpu")
SHARE = 0.3
VARIANCE = SHARE * (1 - SHARE)
LENGTHS = (7, 1, 41, 18)


def layout(*lengths, seeds=None):
    seeds = range(101, 101 + len(lengths)) if seeds is None else seeds
    return RaggedLayout.of(torch.tensor(lengths), max(lengths), CPU, torch.tensor([*seeds]))


def left_out(seeds, width=64):
    """1 where something was dropped, less the share."""
    return (dropout(torch.ones(*seeds.shape, width), Dropped(SHARE, seeds)) == 0).float() - SHARE


def assert_independent(one, other):
    """Their products' mean is 0, to five standard deviations."""
    assert one.shape == other.shape
    assert abs((one * other).mean().item()) < 5 * VARIANCE / one.numel() ** 0.5


def assert_right_share(zeros):
    assert abs(zeros.mean().item()) < 5 * (VARIANCE / zeros.numel()) ** 0.5


def test_a_symbols_seed_follows_from_its_rows_and_its_column_alone():
    whole = layout(*LENGTHS)
    by_hand = [derive(torch.tensor(101 + row), column).item() for row, n in enumerate(LENGTHS) for column in range(n)]
    assert whole.seeds.tolist() == by_hand
    parts = torch.cat([layout(18, seeds=[104]).seeds, layout(7, 1, 41, seeds=[101, 102, 103]).seeds])
    assert parts[18:].equal(whole.seeds[:49])
    assert parts[:18].equal(whole.seeds[49:])
    assert RaggedLayout.of(torch.tensor(LENGTHS), 41, CPU).seeds is None


def test_a_row_is_its_seeds_wherever_it_stands():
    seeds = layout(*LENGTHS).seeds
    order = torch.randperm(len(seeds))
    assert left_out(seeds)[order].equal(left_out(seeds[order]))
    assert left_out(seeds)[:, :29].equal(left_out(seeds, 29))
    assert left_out(seeds.view(1, -1)).equal(left_out(seeds).unsqueeze(0))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("width", [1, 3, 64, 259, 1021])
def test_the_sum_drops_what_dropout_drops(width):
    """Bit for bit in every way, and backwards."""
    dropped = Dropped(SHARE, layout(*LENGTHS).seeds)
    x, output, gain, bias = torch.zeros(67, width), torch.ones(67, width), torch.ones(width), torch.zeros(width)
    output.requires_grad_()
    total, _ = add_norm(x, output, gain, bias, 1e-6, dropped, post=False)
    expected = dropout(torch.ones(67, width), dropped)
    assert total.equal(expected)
    assert torch.autograd.grad(total.sum(), output)[0].equal(expected)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("causal", [False, True])
def test_attention_drops_what_dropout_drops(causal):
    """Each head reads the queries' streams from a place of its own; the column is the key's."""
    queries, heads = layout(*LENGTHS), Heads(3, 5, 41)
    value = torch.zeros(67, 3 * 41)
    for row, column in enumerate(queries.columns.tolist()):
        value[row, column::41] = 1
    projected = torch.cat([torch.randn(67, 30), value], dim=1)
    dropped = Dropped(SHARE, queries.seeds)
    found, whole = (
        attend_ragged(projected, None, RaggedAttention(queries, queries, heads, Scoring(), causal=causal, dropped=each))
        for each in (dropped, WHOLE)
    )
    by_head = dropped.heads(3, (1, 67), CPU).seeds[0]
    kept = dropped.keeps(by_head, range(41)).transpose(0, 1)
    assert found.view(67, 3, 41).ne(0).equal(kept & whole.view(67, 3, 41).ne(0))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [0, 5, 13])
@pytest.mark.parametrize("sizes", [(7, 1), (16, 3)])
def test_every_way_of_attention_drops_the_same(causal, window, sizes, monkeypatch):
    """Chunks of keys and blocks of neighbours begin anywhere, at no multiple of the four that share a draw."""
    monkeypatch.setattr(chunked, "_QUERIES", sizes[0])
    monkeypatch.setattr(chunked, "_KEYS", sizes[1])
    inputs = [torch.randn(2, 3, 61, width, dtype=torch.float64).requires_grad_() for width in (5, 5, 7)]
    mask = Mask(torch.arange(61) < torch.tensor([[61], [53]]), causal=causal, window=window)
    dropped = Dropped(SHARE, derive(torch.tensor(5), torch.arange(122)).view(2, 61)).heads(3, (2, 61), CPU)
    real = mask.matrix(61, 61, CPU).any(-1)[:, None, :, None]
    ways = [
        attend_plainly(*inputs, mask.matrix(61, 61, CPU), None, Scoring(), dropped),
        attend_in_chunks(*inputs, mask, dropped),
        attend_locally(*inputs, mask, Scoring(), dropped),
    ]
    gradients = [torch.autograd.grad((way * real).square().sum(), inputs) for way in ways]
    for way, gradient in zip(ways[1:], gradients[1:], strict=True):
        torch.testing.assert_close(way * real, ways[0] * real)
        torch.testing.assert_close(gradient, gradients[0])


def test_symbols_sentences_and_steps_are_independent():
    """Of 101 steps, 97 sentences and 13 positions, those beside each other in each respect."""
    steps = derive(torch.tensor(3), torch.arange(101))
    sentences = derive(steps.unsqueeze(1), torch.arange(97))
    zeros = left_out(derive(sentences.unsqueeze(2), torch.arange(13)), 16)
    assert_right_share(zeros)
    for axis in range(4):
        for lag in (1, 2, 3, 4):
            length = zeros.shape[axis] - lag
            assert_independent(zeros.narrow(axis, 0, length), zeros.narrow(axis, lag, length))
    # Of all that one thing is drawn for, the number left out spreads as a binomial does.
    for axes in ((1, 2, 3), (0, 2, 3), (0, 1, 3), (0, 1, 2)):
        counts = zeros.sum(axes)
        expected = zeros.numel() / len(counts) * VARIANCE
        assert (counts.square().mean() / expected).item() == pytest.approx(1, abs=5 * (2 / len(counts)) ** 0.5)


def test_a_models_dropouts_are_independent():
    dropped = Dropped(SHARE, derive(torch.tensor(7), torch.arange(997)))
    zeros = [left_out(dropped.at(site).seeds) for site in range(50)]
    assert_right_share(torch.stack(zeros))
    for site in range(1, 50):
        assert_independent(zeros[0], zeros[site])
        assert_independent(zeros[site - 1], zeros[site])
        assert_independent(zeros[site - 1][1:], zeros[site][:-1])


def test_heads_are_independent_of_each_other_and_of_other_dropouts():
    dropped = Dropped(SHARE, derive(torch.tensor(7), torch.arange(997)).view(1, -1))
    zeros = left_out(dropped.at(4).heads(8, (1, 997), CPU).seeds)[0]
    assert zeros.shape == (8, 997, 64)
    assert_right_share(zeros)
    for head in range(1, 8):
        assert_independent(zeros[head - 1], zeros[head])
        assert_independent(zeros[0], zeros[head])
        assert_independent(zeros[head], left_out(dropped.at(5).seeds)[0])
    assert zeros[0].equal(left_out(dropped.at(4).seeds)[0])  # the first head begins where the dropout's draws begin


def test_without_seeds_torchs_generator_gives_some():
    x = torch.ones(13, 17)
    torch.manual_seed(1)
    seeds = Dropped(SHARE).rows(13, device=CPU)
    torch.manual_seed(1)
    assert dropout(x, Dropped(SHARE)).equal(dropout(x, Dropped(SHARE, seeds)))
    assert len(set(seeds.tolist())) == 13
    assert Dropped(0.0, seeds).rows(13, device=CPU) is None


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(67, 1), (67, 259), (1, 67, 64), (0, 8)])
def test_every_way_drops_the_same_from_values_and_gradients(shape, dtype):
    """Rows that do not lie end to end, too."""
    torch.manual_seed(13)
    x = torch.randn(*shape[:-1], 2 * shape[-1], dtype=dtype)[..., ::2].requires_grad_()
    seeds = derive(torch.tensor(9), torch.arange(shape[-2])).expand(shape[:-1])
    dropped = Dropped(SHARE, seeds)
    kept = dropped.keeps(seeds.contiguous(), range(shape[-1])).to(dtype)
    found, received = dropout(x, dropped), torch.randn(shape, dtype=dtype)
    assert found.equal((x * kept) * dropped.scale)
    assert torch.autograd.grad(found, x, received)[0].equal((received * kept) * dropped.scale)
