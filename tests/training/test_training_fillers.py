from dataclasses import replace

import numpy as np
import pytest

from transduce.data import Batch
from transduce.training.fillers import fill_up


def made_up_batch(draw, pairs, longest):
    """Random ids in pairs of at most so many symbols, one at least."""
    source, target = (draw.integers(1, longest + 1, pairs) for _ in range(2))
    widths = int(source.max()), int(target.max())
    ids = [draw.integers(5, 50, (pairs, width)) for width in (*widths, widths[1])]
    return Batch(ids[0], source, ids[1], ids[2], target, rows=np.arange(pairs))


@pytest.mark.parametrize("longest", [8, 9, 40, 700])
@pytest.mark.parametrize("pairs", [1, 2, 7, 60, 400])
def test_symbols_are_a_round_number(pairs, longest):
    batch = made_up_batch(np.random.default_rng([pairs, longest]), pairs, longest)
    full = fill_up(batch)
    if min(batch.source.shape[1], batch.target.shape[1]) < 8:
        assert full is batch
        return
    for name in ("source", "target"):
        ids, lengths = getattr(full, name), getattr(full, f"{name}_lengths")
        before, after = int(getattr(batch, f"{name}_lengths").sum()), int(lengths.sum())
        place = max(1, 1 << (max(1, before // 32)).bit_length() - 1)
        assert after % place == 0
        assert ids.shape == (len(full.rows), ids.shape[1])
        assert lengths.min() >= 1
        assert lengths.max() <= ids.shape[1]
        assert np.array_equal(ids[:pairs], getattr(batch, name))
    assert full.weights is None or full.weights.tolist() == [1] * pairs + [0] * (len(full.labels) - pairs)
    assert len(full.labels) == len(full.rows)
    assert full.target_tokens == batch.target_tokens


def test_little_is_added():
    batches = [made_up_batch(np.random.default_rng(seed), 100, 30) for seed in range(50)]
    real, full = (
        sum(int(each.source_lengths.sum() + each.target_lengths.sum()) for each in some)
        for some in (batches, map(fill_up, batches))
    )
    assert real < full < 1.02 * real


def test_few_sizes_are_left():
    batches = [made_up_batch(np.random.default_rng(seed), 100, 30) for seed in range(200)]
    real, full = (len({int(each.source_lengths.sum()) for each in some}) for some in (batches, map(fill_up, batches)))
    assert full < real / 5


def test_a_round_one_and_one_that_is_filled_up_are_left_alone():
    filled = fill_up(made_up_batch(np.random.default_rng(3), 60, 30))
    assert filled.weights is not None
    assert fill_up(filled) is filled
    lengths = np.full(32, 16)
    ids = np.ones((32, 16), np.int64)
    batch = Batch(ids, lengths, ids, ids, lengths)
    assert fill_up(batch) is batch


@pytest.mark.parametrize("shape", [(60,), (60, 30)])
def test_weights_stay_and_fillers_have_none(shape):
    batch = made_up_batch(np.random.default_rng(3), 60, 30)
    weights = np.random.default_rng(4).normal(size=(60, batch.labels.shape[1])).astype(np.float32)
    weights = weights if len(shape) == 2 else weights[:, 0]
    full = fill_up(replace(batch, weights=weights))
    assert len(full.labels) > 60
    assert full.weights.shape == (len(full.labels), *weights.shape[1:])
    assert np.array_equal(full.weights[:60], weights)
    assert not full.weights[60:].any()
    assert full.target_tokens == batch.target_tokens == batch.target_lengths.sum()
