import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from transduce.config import PRESETS, preset
from transduce.data import Batch
from transduce.models import build
from transduce.training import Work, compute_loss, padded, step_work
from transduce.workflows.flops import Flops, count_parts, count_training

SMALL: dict[str, object] = {
    "encoder_layers": 2,
    "decoder_layers": 1,
    "d_model": 12,
    "d_ff": 17,
    "heads": 3,
    "vocab_size": 101,
}
VARIANTS: dict[str, dict[str, object]] = {
    "post-norm": {},
    "pre-norm": {"norm": "pre"},
    "keys narrower than values": {"d_k": 5, "d_v": 7},
    "a vocabulary for each side": {"source_vocab_size": 89},
    "biased attention": {"attention_bias": True},
    "no positions": {"positions": "none"},
}


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
    [PRESETS["base"], *(preset("base", SMALL | changes) for changes in VARIANTS.values())],
    ids=["base", *VARIANTS],
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


def _ids(lengths):
    return np.ones((len(lengths), max(lengths)), np.int64), np.array(lengths)


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_training_is_counted_as_it_runs(changes):
    """Two batches with padding, on the processor: loss and gradients as a step computes them."""
    config = preset("base", SMALL | changes)
    model, batches = build(config), []
    for sources, targets in (([5, 2, 4], [7, 3, 1]), ([11, 9], [2, 13])):
        (source, source_lengths), (target, target_lengths) = _ids(sources), _ids(targets)
        batches.append(Batch(source, source_lengths, target, target, target_lengths))
    with FlopCounterMode(display=False) as counter:
        for batch in batches:
            compute_loss(model, batch, torch.float32).objective.backward()
    assert count_training(config, step_work(batches)) == counter.get_total_flops()


def test_a_training_on_pairs_without_padding_costs_what_its_parts_do():
    """A billion pairs of 25 symbols a side, which no floating-point number blurs."""
    pair = sum(count_parts(PRESETS["tiny"], 25).values(), Flops(0, 0)).both
    work = padded(10**9, 25, 25) + Work(labels=25 * 10**9)
    assert count_training(PRESETS["tiny"], work) == 10**9 * pair
