import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.sparing import every
from transduce.config import PRESETS, RecurrentConfig, preset
from transduce.data import Batch
from transduce.models import build
from transduce.training import compute_loss, pair_work, step_work
from transduce.workflows.flops import Flops, count_parts, count_training

TWO_AND_ONE: dict[str, object] = {"encoder_layers": 2, "decoder_layers": 1}
SMALL: dict[str, object] = {
    "encoder_layers": 1,
    "decoder_layers": 1,
    "d_model": 12,
    "d_ff": 17,
    "heads": 3,
    "vocab_size": 101,
}
# As in section 3, and by hand to be counted.
PAPER: dict[str, dict[str, object]] = {
    "post-norm": TWO_AND_ONE,
    "pre-norm": {"norm": "pre"},
    "keys narrower than values": {"d_k": 5, "d_v": 7},
    "a vocabulary for each side": {"source_vocab_size": 89},
    "a projection of its own": {"tied_projection": False},
    "biased attention": {"attention_bias": True},
    "dropout everywhere": {"attention_dropout": 0.1, "activation_dropout": 0.1},
    "learned positions": {"positions": "learned", "max_positions": 29},
    "no positions": {"positions": "none"},
    "restricted to so many that it sees all": {"attention_window": 32},
}
FURTHER: dict[str, dict[str, object]] = {
    "positions beside embeddings": {"position_combination": "concatenate"},
    "the same at every layer": TWO_AND_ONE
    | {
        "positions": "learned",
        "position_combination": "concatenate",
        "positions_at_every_layer": True,
    },
    "relative positions": {"positions": "relative", "max_relative_distance": 4},
    "additive": {"compatibility": "additive"},
    "multiplicative": {"compatibility": "multiplicative"},
    "attention over parameters": {
        "feed_forward": "parameter_attention",
        "parameter_heads": 2,
        "parameter_d_k": 5,
        "parameter_d_v": 7,
        "parameter_keys": 11,
    },
}
VARIANTS = PAPER | FURTHER


def _by_hand(config, length):
    """Section 3, forward: two for each weight and symbol, and each attention's Q K^T and its product with V."""
    d, h = config.d_model, config.heads
    attention = 2 * length * h * 2 * d * (config.d_k + config.d_v) + 2 * length**2 * h * (config.d_k + config.d_v)
    feed_forward = 2 * length * 2 * d * config.d_ff
    return {
        "embeddings": 0,
        **{f"encoder layer {n + 1}": attention + feed_forward for n in range(config.encoder_layers)},
        **{f"decoder layer {n + 1}": 2 * attention + feed_forward for n in range(config.decoder_layers)},
        "projection": 2 * length * d * config.vocab_size,
    }


@pytest.mark.parametrize(
    "config",
    [
        preset("base", TWO_AND_ONE),
        *every(2, {name: preset("base", SMALL | changes) for name, changes in PAPER.items()}),
    ],
)
def test_parts_by_hand(config):
    """Each product forward takes two backward: the gradients of its two factors."""
    expected = {name: Flops(count, 2 * count) for name, count in _by_hand(config, 23).items()}
    assert count_parts(config, 23) == expected


def test_the_parts_of_base_by_hand():
    """25 symbols; 3,145,728 weights and an attention a layer, 4,194,304 and two, 37,000 x 512 of the projection."""
    parts = count_parts(PRESETS["base"], 25)
    assert parts["encoder layer 6"].forward == 2 * 25 * 3_145_728 + 4 * 25**2 * 512
    assert parts["decoder layer 1"].forward == 2 * 25 * 4_194_304 + 2 * 4 * 25**2 * 512
    assert parts["projection"].backward == 2 * 2 * 25 * 37_000 * 512


def test_a_map_of_embeddings_and_positions_is_the_embeddings_or_every_layers():
    """From 2 x 12 to 12, for 23 symbols: once for each side, or before each layer."""
    join = Flops(2 * 23 * 2 * 12 * 12, 2 * 2 * 23 * 2 * 12 * 12)
    beside = SMALL | {"position_combination": "concatenate"}
    plain = count_parts(preset("base", SMALL), 23)
    assert count_parts(preset("base", beside), 23) == plain | {"embeddings": join + join}
    every = count_parts(preset("base", beside | {"positions_at_every_layer": True}), 23)
    assert every == {name: part + join if "layer" in name else part for name, part in plain.items()}


def test_attention_over_parameters_by_hand():
    """Section on AOP: two maps, and eight heads of 1,536 keys and values of width 64 for each of 25 symbols."""
    feed_forward = 2 * 25 * 2 * 512 * 2048
    attention = 2 * 25 * (2 * 512 * 512 + 8 * 1536 * (64 + 64))
    one = {"encoder_layers": 1, "decoder_layers": 1}
    base, aop = (count_parts(preset(name, one), 25)["encoder layer 1"] for name in ("base", "aop1"))
    assert aop.forward - base.forward == attention - feed_forward
    assert aop.backward == 2 * aop.forward


def _batch(sources, targets):
    source, target = (np.ones((len(lengths), max(lengths)), np.int64) for lengths in (sources, targets))
    return Batch(source, np.array(sources), target, target, np.array(targets))


@pytest.mark.parametrize("changes", [*every(2, VARIANTS)])
def test_training_is_counted_as_it_runs(changes, monkeypatch):
    """Pair by pair on the processor, in PyTorch's own operations: loss and gradients as a step computes them."""
    monkeypatch.setattr("transduce.kernels.native._library", lambda: None)
    config = preset("base", SMALL | changes)
    model, lengths = build(config), (([5, 2], [7, 3]), ([11], [2]))
    pairs = [([s], [t]) for sources, targets in lengths for s, t in zip(sources, targets, strict=True)]
    with FlopCounterMode(display=False) as counter:
        for pair in pairs:
            compute_loss(model, _batch(*pair), torch.float32).objective.backward()
    assert count_training(config, step_work(_batch(*each) for each in lengths)) == counter.get_total_flops()


RECURRENT: dict[str, dict[str, object]] = {
    "LSTM, additive attention": {"attention_size": 11},
    "GRU without attention": {"cell": "gru", "attention": "none", "decoder_layers": 2},
    "two cells in a step": {
        **{"attention": "conditional", "attention_size": 11, "decoder_start": "mean", "cell": "gru"},
    },
    "input feeding": {"attention": "luong", "attention_score": "general", "decoder_layers": 2},
    "all at once, experts": {
        **{"attention": "gnmt", "attention_size": 11, "encoder_layers": 2, "decoder_layers": 2},
        **{"feed_forward": "mixture_of_experts", "d_ff": 13, "experts": 3},
    },
}


@pytest.mark.parametrize("changes", [*every(2, RECURRENT)])
def test_recurrent_training_is_counted_as_it_runs(changes, monkeypatch):
    """Where a decoder begins costs the same for each pair, however long: a term of its own."""
    monkeypatch.setattr("transduce.kernels.native._library", lambda: None)
    config = RecurrentConfig.model_validate({"hidden_size": 7, "embedding_size": 5, "vocab_size": 101} | changes)
    model, lengths = build(config), (([5, 2], [3, 2]), ([3], [7]))
    pairs = [([s], [t]) for sources, targets in lengths for s, t in zip(sources, targets, strict=True)]
    # oneDNN's LSTM is one operation, whose products nobody counts.
    with torch.backends.mkldnn.flags(enabled=False), FlopCounterMode(display=False) as counter:
        for pair in pairs:
            compute_loss(model, _batch(*pair), torch.float32).objective.backward()
    assert counter.get_total_flops() > 100_000
    assert count_training(config, step_work(_batch(*each) for each in lengths)) == counter.get_total_flops()


def test_a_training_on_pairs_without_padding_costs_what_its_parts_do():
    """A billion pairs of 25 symbols a side, which no floating-point number blurs."""
    config = preset("big", {"encoder_layers": 1, "decoder_layers": 1})
    pair = sum(count_parts(config, 25).values(), Flops(0, 0)).both
    assert count_training(config, pair_work(25, 25, 10**9)) == 10**9 * pair
