import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.config import BadInputError
from transduce.data import Share, deal, divide


def _taken(number: int, accumulate: int, plan: list[np.ndarray], tokens: np.ndarray) -> list[list[np.ndarray]]:
    return [list(deal(plan, Share(rank, number, accumulate), tokens.__getitem__, 0)) for rank in range(number)]


def test_a_batch_alone_in_its_step_is_cut_by_tokens():
    rows, tokens = np.array([31, 37, 41, 43, 47]), np.array([2, 11, 3, 5, 7])
    # Sorted: 2 3 5 7 11, 28 in all. A pair is of the half that its middle lies in: 1, 3.5, 7.5, 13.5 and 22.5 of 14.
    first, second = divide(rows, tokens, 2)
    assert (first.tolist(), second.tolist()) == ([31, 41, 43, 47], [37])


@given(st.lists(st.integers(1, 300), min_size=1, max_size=60), st.integers(1, 7))
def test_every_pair_is_in_one_part_and_the_parts_are_alike(tokens, parts):
    sizes = np.array(tokens)
    found = divide(np.arange(len(tokens)), sizes, parts)
    assert len(found) == parts
    assert sorted(np.concatenate(found)) == list(range(len(tokens)))
    assert all(abs(sizes[part].sum() - sum(tokens) / parts) <= max(tokens) for part in found)


@pytest.mark.parametrize("number", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("accumulate", [1, 2, 4, 6])
def test_a_step_is_the_same_pairs_for_any_number_of_processes(number, accumulate):
    random = np.random.default_rng(number)
    tokens = random.integers(3, 40, 240)
    plan = np.split(random.permutation(240), 12)
    taken = _taken(number, accumulate, plan, tokens)
    counts = {len(parts) for parts in taken}
    assert len(counts) == 1  # all go through equally many, or a backward pass would wait for ever
    each = counts.pop() * accumulate // len(plan)
    for step in range(len(plan) // accumulate):
        together = [row for parts in taken for part in parts[step * each : (step + 1) * each] for row in part]
        wanted = np.concatenate(plan[step * accumulate : (step + 1) * accumulate])
        assert sorted(together) == sorted(wanted)


def test_as_many_batches_as_processes_stay_whole():
    plan = [np.array([3, 1]), np.array([2]), np.array([5, 4]), np.array([7])]
    tokens = np.ones(8, np.int64)
    first, second = _taken(2, 2, plan, tokens)
    assert [part.tolist() for part in first] == [[3, 1], [5, 4]]
    assert [part.tolist() for part in second] == [[2], [7]]


def test_the_turn_goes_on_over_the_end_of_an_epoch():
    """Three batches of a step of two: the first of the next epoch is the second of its step."""
    share, tokens = Share(1, 2, 2), np.ones(9, np.int64)
    assert [part.tolist() for part in deal([np.array([8])], share, tokens.__getitem__, 3)] == [[8]]
    assert list(deal([np.array([8])], share, tokens.__getitem__, 2)) == []


def test_fewer_pairs_than_processes_leave_some_without():
    parts = divide(np.array([5, 6]), np.array([9, 9]), 3)
    assert sorted(len(part) for part in parts) == [0, 1, 1]


def test_batches_too_small_to_divide_are_refused():
    plan = [np.arange(3), np.arange(4)]
    Share(0, 3, 1).check(plan)
    Share(0, 4, 4).check(plan)
    with pytest.raises(BadInputError, match=r"4 of them share a batch, .* 3\.5 pairs .* multiple of 4"):
        Share(0, 4, 1).check(plan)
