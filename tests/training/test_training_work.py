import numpy as np

from transduce.data import Batch
from transduce.training import Progress, Work, padded, step_work


def _batch(source_lengths, target_lengths):
    def ids(lengths):
        return np.zeros((len(lengths), max(lengths)), np.int64)

    target = ids(target_lengths)
    return Batch(ids(source_lengths), np.array(source_lengths), target, target, np.array(target_lengths))


def test_a_batch_is_its_padded_shape_and_its_real_labels():
    """Two pairs, padded to 5 and 7 symbols; 7 + 3 labels."""
    assert step_work([_batch([5, 2], [7, 3])]) == Work(
        steps=1,
        labels=10,
        source=2 * 5,
        target=2 * 7,
        source_source=2 * 5 * 5,
        source_target=2 * 5 * 7,
        target_target=2 * 7 * 7,
    )


def test_accumulated_batches_are_one_step_and_keep_their_own_widths():
    both = step_work([_batch([5, 2], [7, 3]), _batch([11], [13])])
    assert (both.steps, both.labels) == (1, 10 + 13)
    assert both.terms == (10 + 11, 14 + 13, 50 + 121, 70 + 143, 98 + 169)


def test_steps_add_up():
    step = step_work([_batch([5, 2], [7, 3])])
    assert (step + step + padded(3, 2, 1)).terms == (20 + 6, 28 + 3, 100 + 12, 140 + 6, 196 + 3)
    assert (step + step).steps == 2


def test_a_checkpoint_of_an_older_version_has_counted_nothing():
    state = Progress(step=7, target_tokens=11).model_dump(exclude={"work"})
    assert Progress.model_validate(state).work == Work()
