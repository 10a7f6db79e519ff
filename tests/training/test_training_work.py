import numpy as np

from transduce.data import Batch
from transduce.training import Progress, Work, pair_work, step_work


def _batch(source_lengths, target_lengths):
    def ids(lengths):
        return np.zeros((len(lengths), max(lengths)), np.int64)

    target = ids(target_lengths)
    return Batch(ids(source_lengths), np.array(source_lengths), target, target, np.array(target_lengths))


def test_a_batch_is_its_pairs_without_their_padding():
    """Two pairs, of 5 and 2 source and 7 and 3 target symbols."""
    assert step_work([_batch([5, 2], [7, 3])]) == Work(
        steps=1,
        pairs=2,
        source=5 + 2,
        target=7 + 3,
        source_source=5 * 5 + 2 * 2,
        source_target=5 * 7 + 2 * 3,
        target_target=7 * 7 + 3 * 3,
    )


def test_accumulated_batches_are_one_step():
    both = step_work([_batch([5, 2], [7, 3]), _batch([11], [13])])
    assert both == pair_work(5, 7) + pair_work(2, 3) + pair_work(11, 13) + Work(steps=1)


def test_steps_add_up():
    step = step_work([_batch([5, 2], [7, 3])])
    assert step + step + pair_work(2, 1, pairs=3) == Work(
        steps=2,
        pairs=7,
        source=14 + 6,
        target=20 + 3,
        source_source=58 + 12,
        source_target=82 + 6,
        target_target=116 + 3,
    )


def test_short_lengths_are_kept_in_few_bits_and_summed_in_many():
    batch = _batch([300] * 3, [200] * 3)
    narrow = Batch(
        batch.source,
        batch.source_lengths.astype(np.int16),
        batch.target,
        batch.labels,
        batch.target_lengths.astype(np.int16),
    )
    assert step_work([narrow]) == pair_work(300, 200, pairs=3) + Work(steps=1)


def test_a_checkpoint_of_an_older_version_has_counted_nothing():
    state = Progress(step=7, target_tokens=11).model_dump(exclude={"work"})
    assert Progress.model_validate(state).work == Work()
    with_padding = Work(steps=7, source=10, target=14).model_dump() | {"labels": 10}
    assert Progress.model_validate(state | {"work": with_padding}).work == Work()
