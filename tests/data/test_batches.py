import threading
import time

import numpy as np
import pytest

from transduce.config import SpecialIds
from transduce.data import Batch, Store, drop_symbols, make_batch, pad, read_batches, write_store

SPECIAL = SpecialIds(pad=0, begin=1, end=2, unknown=3)
PAIRS = [([11, 13], [17], 0), ([19], [23, 29, 31], 0), ([], [], 0), ([37, 41, 43], [47, 53], 0)]


@pytest.fixture
def store(tmp_path):
    write_store(tmp_path / "train.arrow", PAIRS, {})
    return Store(tmp_path / "train.arrow")


def plan(*batches):
    return [np.array(rows, np.int64) for rows in batches]


def readers():
    return [thread for thread in threading.enumerate() if thread.name == "read-ahead"]


def wait_until_gone(threads, seconds=5.0):
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


class TestPad:
    def test_by_hand(self):
        rows, lengths = pad([[3, 5], [], np.array([7, 11, 13], np.int32)], 9)
        assert rows.tolist() == [[3, 5, 9], [9, 9, 9], [7, 11, 13]]
        assert lengths.tolist() == [2, 0, 3]
        assert rows.dtype == lengths.dtype == np.int64

    def test_nothing(self):
        assert pad([], 9)[0].shape == (0, 0)
        assert pad([[], []], 9)[0].shape == (2, 0)


class TestMakeBatch:
    def test_by_hand(self, store):
        batch = make_batch(store, np.array([1, 0]), SPECIAL)
        assert batch.source.tolist() == [[19, 2, 0], [11, 13, 2]]
        assert batch.source_lengths.tolist() == [2, 3]
        assert batch.target.tolist() == [[1, 23, 29, 31], [1, 17, 0, 0]]
        assert batch.labels.tolist() == [[23, 29, 31, 2], [17, 2, 0, 0]]
        assert batch.target_lengths.tolist() == [4, 2]

    def test_an_empty_pair_is_its_symbols(self, store):
        batch = make_batch(store, np.array([2]), SPECIAL)
        assert (batch.source.tolist(), batch.target.tolist(), batch.labels.tolist()) == ([[2]], [[1]], [[2]])

    def test_labels_are_the_target_shifted_left(self, store):
        batch = make_batch(store, np.arange(4), SPECIAL)
        for target, labels, length in zip(batch.target, batch.labels, batch.target_lengths, strict=True):
            assert labels[: length - 1].tolist() == target[1:length].tolist()
            assert labels[length - 1] == SPECIAL.end


class TestReadBatches:
    @pytest.mark.parametrize("ahead", [1, 2, 8])
    def test_gives_what_the_plan_says_in_its_order(self, store, ahead):
        entries = plan([3, 1], [0], [2], [1, 2, 0])
        batches = list(read_batches(store, entries, SPECIAL, ahead=ahead))
        expected = [make_batch(store, rows, SPECIAL) for rows in entries]
        assert [batch.source.tolist() for batch in batches] == [batch.source.tolist() for batch in expected]
        assert [batch.labels.tolist() for batch in batches] == [batch.labels.tolist() for batch in expected]

    def test_an_empty_plan(self, store):
        assert list(read_batches(store, [], SPECIAL)) == []

    def test_an_error_of_the_reader_reaches_the_consumer_behind_the_batches_before_it(self, store):
        batches = read_batches(store, plan([0], [1], [len(PAIRS) + 1], [2]), SPECIAL)
        assert [next(batches).source_lengths.tolist() for _ in range(2)] == [[3], [2]]
        with pytest.raises((IndexError, ValueError)):
            next(batches)

    def test_the_reader_stops_when_abandoned(self, store):
        before = set(readers())
        batches = read_batches(store, plan(*[[0]] * 101), SPECIAL, ahead=2)
        next(batches)
        started = set(readers()) - before
        assert len(started) == 1
        batches.close()
        assert wait_until_gone(started)

    def test_the_reader_stops_at_the_end(self, store):
        before = set(readers())
        batches = read_batches(store, plan([0], [1]), SPECIAL)
        next(batches)
        started = set(readers()) - before
        list(batches)
        assert wait_until_gone(started)

    def test_no_more_than_asked_for_is_prepared(self, store):
        prepared = []

        class Counted(list[np.ndarray]):
            def __iter__(self):
                for rows in super().__iter__():
                    prepared.append(rows)
                    yield rows

        batches = read_batches(store, Counted(plan(*[[0]] * 101)), SPECIAL, ahead=3)
        next(batches)
        time.sleep(0.3)
        # One is consumed, three wait, and one is in the reader's hand.
        assert 4 <= len(prepared) <= 5
        batches.close()


def test_symbol_dropout_spares_what_is_to_be_written():
    ids = np.full((97, 101), 7)
    lengths = np.full(97, 101)
    batch = Batch(ids, lengths, ids, ids, lengths, np.arange(1000, 1097))
    dropped = drop_symbols(batch, 0.3, 3, (1, 2))
    for side in (dropped.source, dropped.target):
        assert set(np.unique(side)) == {3, 7}
        assert abs((side == 3).mean() - 0.3) < 0.02  # four standard deviations of 9,797 draws
    assert (dropped.source != dropped.target).any()
    assert dropped.labels is ids
    assert (drop_symbols(batch, 0.3, 3, (1, 2)).source == dropped.source).all()
    assert (drop_symbols(batch, 0.3, 3, (1, 3)).source != dropped.source).any()
    assert len({tuple(row) for row in dropped.source}) == 97


def test_symbol_dropout_of_a_pair_is_the_same_in_any_batch(tmp_path):
    write_store(tmp_path / "train.arrow", [([7] * (11 + row), [9] * (31 - row), 0) for row in range(19)], {})
    store = Store(tmp_path / "train.arrow")
    rows = np.array([2, 3, 5, 7, 11, 13])
    whole = drop_symbols(make_batch(store, rows, SPECIAL), 0.3, 3, (1, 2))
    parts = [drop_symbols(make_batch(store, part, SPECIAL), 0.3, 3, (1, 2)) for part in (rows[:1:-1], rows[:2])]
    for part in parts:
        for mine, row in enumerate(part.rows):
            other = whole.rows.tolist().index(row)
            for side, lengths in (("source", "source_lengths"), ("target", "target_lengths")):
                length = getattr(part, lengths)[mine]
                assert (getattr(part, side)[mine, :length] == getattr(whole, side)[other, :length]).all()
                assert (getattr(part, side)[mine, length:] == SPECIAL.pad).all()
