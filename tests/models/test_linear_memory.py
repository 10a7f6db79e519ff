"""With an attention window, a whole model's memory is linear in the length, masks included, forward and backward."""

import pytest
import torch

from tests.sparing import one_each
from transduce.config import preset
from transduce.models import Tokens, build

pytest_plugins = ["allocations"]

N, HEADS, SHORT = 2003, 2, 3
SIZES = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 12, "d_ff": 20, "heads": HEADS, "vocab_size": 31}
VARIANTS = {
    "base": {},
    "dropout": {"attention_dropout": 0.3},
    "relative": {"positions": "relative", "max_relative_distance": 5},
    "additive": {"compatibility": "additive"},
    "parameter attention": {"feed_forward": "parameter_attention", "parameter_keys": 37, "parameter_heads": 3},
}


def tokens(length):
    """Two sequences, one of which is a bit shorter."""
    return Tokens(torch.randint(4, 31, (2, length)), torch.tensor([length, length - 2]))


def train(allocations, source, target, **changes):
    """What a training step makes, and the gradients that it leaves."""
    torch.manual_seed(2)
    model = build(preset("base", {**SIZES, **changes})).train()
    with allocations() as made:
        model(tokens(source), tokens(target), tokens(target).ids).objective.backward()
    return made


@pytest.mark.parametrize(("variant", "side"), [*one_each(VARIANTS, ["source", "target"])])
def test_no_tensor_has_a_place_for_every_pair_of_positions(allocations, side, variant):
    """Only one side is long: attention between the two is never restricted (section 4 restricts self-attention)."""
    lengths = {"source": SHORT, "target": SHORT}
    once, twice = (
        train(allocations, **(lengths | {side: length}), attention_window=23, **VARIANTS[variant])
        for length in (N, 2 * N)
    )
    assert once.largest < N * N
    assert twice.largest / once.largest == pytest.approx(2, rel=0.02)
    assert twice.total / once.total == pytest.approx(2, rel=0.02)


@pytest.mark.parametrize("side", ["source", "target"])
def test_without_a_window_there_is_one(allocations, side):
    """What the test above is worth: it would see the weights, and the decoder's causal mask."""
    made = train(allocations, **({"source": SHORT, "target": SHORT} | {side: 499}), attention_dropout=0.3)
    assert made.largest == 2 * HEADS * 499 * 499
