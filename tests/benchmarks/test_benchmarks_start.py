import math

import pytest
import torch

from benchmarks.start import expect_attention, expect_feed_forward, similarity, starts
from transduce.config import TransformerConfig

SMALL = {"encoder_layers": 3, "decoder_layers": 1, "d_model": 128, "d_ff": 384, "heads": 4, "vocab_size": 211}


def test_similarity_by_hand():
    same, across = torch.tensor([3.0, 4.0]), torch.tensor([-4.0, 3.0])
    assert similarity(torch.stack([same, 2 * same, same]).unsqueeze(0)) == pytest.approx(1)
    assert similarity(torch.stack([same, across]).unsqueeze(0)) == pytest.approx(0, abs=1e-6)
    assert similarity(torch.stack([same, same, across]).unsqueeze(0)) == pytest.approx(1 / 3)


def test_attention_keeps_what_all_positions_share():
    alike = torch.full((2, 7, 5), math.sqrt(3))
    assert expect_attention(alike) == pytest.approx(3)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize(("initializer", "kept"), [("glorot_uniform", 3 / 8), ("unit_scaling", 1 / 2)])
def test_a_fresh_model_is_spread_as_expected(norm, initializer, kept):
    """d_ff = 3 d_model: Glorot's two maps have (2 / 4) (6 / 4) of their input's mean square, and a ReLU half of it."""
    config = TransformerConfig.model_validate({**SMALL, "norm": norm, "initializer": initializer})
    assert expect_feed_forward(torch.ones(1, 2, 128), config) == pytest.approx(kept)
    found = starts(config, range(1, 6), rows=3, length=47)
    torch.testing.assert_close(found.feed_forward.mean(0), torch.full((3,), kept), rtol=0.15, atol=0)
    torch.testing.assert_close(found.attention.mean(0), found.attention_expected.mean(0), rtol=0.25, atol=0)
    torch.testing.assert_close(found.variance.mean(0), found.expected.mean(0), rtol=0.06, atol=0)
    if norm == "post":
        torch.testing.assert_close(found.variance[:, 1:], torch.ones(5, 3), rtol=0.001, atol=0)
    else:
        assert (found.variance.diff(dim=1) > 0.3).all()
