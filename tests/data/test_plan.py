from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.config import BadInputError
from transduce.data import Store, padding_share, plan_epoch, plan_window, write_store
from transduce.data.plan import draw_rows


def sentence_lengths(count, seed=5):
    """Lengths as captions have them, 13 on average; a target is about as long as its source."""
    random = np.random.default_rng(seed)
    source = np.clip(random.gamma(9, 1.5, count), 2, 60)
    target = np.clip(source * random.normal(1.05, 0.15, count), 2, 60)
    return source.astype(np.int32), target.astype(np.int32)


def plain(plan):
    return [rows.tolist() for rows in plan]


def test_by_hand():
    # Budget 12: the three pairs of longest side 4 share a batch, the 5 and the 6 another, 12 fills one alone.
    source = np.array([4, 12, 5, 3, 4], np.int32)
    target = np.array([3, 11, 6, 4, 4], np.int32)
    plan = plan_window(source, target, 12, key=(1, 0))
    assert sorted(sorted(rows) for rows in plain(plan)) == [[0, 3, 4], [1], [2]]


@given(
    lengths=st.lists(st.tuples(st.integers(1, 47), st.integers(1, 47))),
    batch_tokens=st.integers(47, 307),
    seed=st.integers(0, 2**63),
    epoch=st.integers(0, 1009),
)
def test_every_pair_once_within_the_budget_of_either_side(lengths, batch_tokens, seed, epoch):
    source, target = np.array(lengths, np.int32).reshape(-1, 2).T
    plan = plan_window(source, target, batch_tokens, (seed, epoch))
    assert sorted(row for rows in plain(plan) for row in rows) == list(range(len(lengths)))
    for rows in plan:
        assert len(rows) * source[rows].max() <= batch_tokens
        assert len(rows) * target[rows].max() <= batch_tokens


def test_is_a_function_of_seed_and_epoch():
    source, target = sentence_lengths(997)

    def plan(seed, epoch):
        np.random.seed(seed + 17 * epoch)  # what others draw must not matter
        return plain(plan_window(source, target, 512, (seed, epoch)))

    first = plan(3, 7)
    others = [plan(3, 8), plan(4, 7), plan(7, 3)]
    assert plan(3, 7) == first
    assert first not in others


def test_epochs_differ_in_batches_not_only_in_their_order():
    source, target = sentence_lengths(997)
    plans = [plan_window(source, target, 512, (1, epoch)) for epoch in (0, 1)]
    batches = [{tuple(sorted(rows)) for rows in plain(plan)} for plan in plans]
    assert len(batches[0] & batches[1]) < len(batches[0]) / 2


def test_can_be_sought():
    source, target = sentence_lengths(997)
    whole = plain(plan_window(source, target, 512, (1, 2)))
    again = plan_window(source, target, 512, (1, 2))
    assert plain(again[11:]) == whole[11:]


def test_short_and_long_batches_come_mixed():
    source, target = sentence_lengths(9973)
    longest = [int(target[rows].max()) for rows in plan_window(source, target, 512, (1, 0))]
    ascending = sum(after >= before for before, after in pairwise(longest))
    assert 0.4 < ascending / len(longest) < 0.65


def test_little_of_a_batch_is_padding():
    source, target = sentence_lengths(9973)
    plan = plan_window(source, target, 1024, (1, 0))
    for side in (source, target):
        assert side.sum() / sum(len(rows) * int(side[rows].max()) for rows in plan) > 0.95
    assert padding_share(source, target, plan) < 0.03


def test_batches_are_full():
    source, target = sentence_lengths(9973)
    plan = plan_window(source, target, 1024, (1, 0))
    wide = np.maximum(source, target)
    assert np.mean([len(rows) * int(wide[rows].max()) / 1024 for rows in plan]) > 0.95


@pytest.fixture
def make_store(tmp_path, monkeypatch):
    """A store of made-up pairs of these lengths, in blocks of 31 pairs, for windows of 150."""
    monkeypatch.setattr("transduce.data.store._ROWS_PER_BLOCK", 31)
    monkeypatch.setattr("transduce.data.plan._WINDOW", 150)

    def make(source, target, corpora=None):
        corpora = [0] * len(source) if corpora is None else corpora
        pairs = (([7] * s, [7] * t, corpus) for s, t, corpus in zip(source, target, corpora, strict=True))
        write_store(tmp_path / "store", pairs, {})
        return Store(tmp_path / "store")

    return make


@pytest.mark.parametrize("side", [0, 1])
def test_a_pair_longer_than_the_budget_is_refused(make_store, side):
    sides = [[4, 6], [4, 6]]
    sides[side][1] = 30
    with pytest.raises(BadInputError, match=r"train.batch_tokens = 30: a training pair has 31 tokens"):
        plan_epoch(make_store(*sides), 30, 1, 0)
    assert plan_epoch(make_store(*sides), 31, 1, 0).count_batches() == 2


def test_no_pairs_no_batches(make_store):
    nothing = np.zeros(0, np.int32)
    assert plan_window(nothing, nothing, 29, (1, 0)) == []
    assert list(plan_epoch(make_store([], []), 29, 1, 0)) == []


def test_a_budget_of_billions_does_not_overflow():
    lengths = np.full(3, 2**30, np.int32)
    assert [len(rows) for rows in plan_window(lengths, lengths, 2**31, (1, 0))] in ([2, 1], [1, 2])


def test_an_epoch_of_some_rows_has_each_as_often_as_given():
    source, target = sentence_lengths(97)
    rows = np.array([3, 5, 3, 89, 3])
    plan = plan_window(source, target, 64, (1, 0), rows)
    assert sorted(row for batch in plain(plan) for row in batch) == [3, 3, 3, 5, 89]
    assert all(len(batch) * max(source[batch].max(), target[batch].max()) <= 64 for batch in plan)


def draw(corpora, weights, seed, epoch):
    """Rows by weights, as a plan of one window draws them."""
    counts = [int((corpora == corpus).sum()) for corpus in range(len(weights))]
    times = [(int(weight), round(weight % 1 * count)) for weight, count in zip(weights, counts, strict=True)]
    return draw_rows(corpora, times, (seed, epoch))


def test_all_rows_once_give_the_plan_without_rows():
    source, target = sentence_lengths(997)
    rows = draw(np.zeros(997, np.uint8), (1.0,), 3, 7)
    assert plain(plan_window(source, target, 512, (3, 7), rows)) == plain(plan_window(source, target, 512, (3, 7)))


class TestWindows:
    """997 pairs in 33 blocks of 31: seven windows of 150 at the most."""

    @pytest.fixture
    def store(self, make_store):
        return make_store(*sentence_lengths(997))

    def test_all_of_a_corpus_that_is_no_larger_is_one_planned_by_its_lengths_alone(self, store, monkeypatch):
        monkeypatch.setattr("transduce.data.plan._WINDOW", 997)
        source, target = sentence_lengths(997)
        plan = plan_epoch(store, 512, 3, 7)
        assert plan.windows == 1
        assert plain(plan) == plain(plan_window(source + 1, target + 1, 512, (3, 7)))

    def test_an_epoch_has_every_pair_once_within_the_budget(self, store):
        plan = plan_epoch(store, 256, 3, 7)
        assert plan.windows == 7
        assert sorted(row for rows in plan for row in rows) == list(range(997))
        for rows in plan:
            assert len(rows) * max(max(len(side) + 1 for side in store.pair(row)) for row in rows) <= 256
        assert plan.count_batches() == len(list(plan))

    def test_a_window_has_whole_blocks_about_as_many_as_the_others(self, store):
        plan = plan_epoch(store, 512, 3, 7)
        for index in range(7):
            rows = [row for batch in plan.window(index).batches for row in batch]
            blocks = {row // 31 for row in rows}
            assert abs(len(rows) - 997 / 7) < 31
            assert len(rows) == sum(31 if block < 32 else 5 for block in blocks)

    def test_one_can_be_planned_without_those_before_it(self, store):
        whole = plan_epoch(store, 512, 3, 7)
        batches = [plain(whole.window(index).batches) for index in range(7)]
        again = plan_epoch(Store(store.path), 512, 3, 7)
        assert plain(again.window(5).batches) == batches[5]
        assert plain(whole) == [batch for window in batches for batch in window]

    def test_another_epoch_or_seed_has_other_blocks_together(self, store):
        def blocks(seed, epoch):
            plan = plan_epoch(store, 512, seed, epoch)
            return [{row // 31 for batch in plan.window(index).batches for row in batch} for index in range(7)]

        assert blocks(3, 7) == blocks(3, 7)
        assert blocks(3, 7)[0] not in (*blocks(3, 8), *blocks(4, 7))

    def test_all_windows_together_have_what_the_weights_say(self, make_store):
        # Blocks 0 to 15 are of the first corpus, 16 of both, the others of the second.
        source, target = sentence_lengths(997)
        store = make_store(source, target, [int(row >= 500) for row in range(997)])
        plan = plan_epoch(store, 512, 3, 7, (0.25, 2.5))
        times = np.bincount([row for rows in plan for row in rows], minlength=997)
        assert sorted(times[:500]) == [0] * 375 + [1] * 125
        assert sorted(times[500:]) == [2] * 249 + [3] * 248  # half of 497 is rounded to the even number
        assert plan.windows == 10  # 125 and 1,242.5 pairs
        sizes = [sum(map(len, plan.window(index).batches)) for index in range(10)]
        assert max(sizes) - min(sizes) <= 2 * 2.5 * 31

    def test_a_block_that_weighs_more_than_a_window_is_one(self, make_store):
        plan = plan_epoch(make_store([3] * 62, [3] * 62), 64, 3, 7, (11,))
        assert [sum(map(len, plan.window(index).batches)) for index in range(plan.windows)] == [341, 341]

    def test_padding_is_counted(self, make_store):
        # Two batches of two pairs each: 3 and 4 symbols, 8 and 8.
        plan = plan_epoch(make_store([2, 7, 3, 7], [3, 7, 3, 7]), 16, 1, 0)
        assert plan.window(0).padding == pytest.approx(1 / 48)


class TestWeights:
    # Pairs of three corpora, mixed: rows 0, 3, 6, ... are of the first, and so on.
    CORPORA = (np.arange(300) % 3).astype(np.uint8)

    def counts(self, weights, epoch=0, seed=1):
        """How often each row of each corpus is drawn."""
        times = np.bincount(draw(self.CORPORA, weights, seed, epoch), minlength=300)
        return [times[corpus::3] for corpus in range(3)]

    def test_by_hand(self):
        once, half, more = self.counts((1, 0.5, 2.25))
        assert once.tolist() == [1] * 100
        assert sorted(half) == [0] * 50 + [1] * 50
        assert sorted(more) == [2] * 75 + [3] * 25

    def test_whole_weights_leave_nothing_to_chance(self):
        for epoch in range(3):
            assert [set(times) for times in self.counts((1, 2, 3), epoch)] == [{1}, {2}, {3}]

    def test_the_share_is_another_in_every_epoch_and_every_pair_gets_its_turn(self):
        epochs = [self.counts((0.25, 1, 1), epoch)[0] for epoch in range(40)]
        assert len({tuple(times) for times in epochs}) == 40
        assert {int(times.sum()) for times in epochs} == {25}
        total = sum(epochs)
        assert total.min() >= 1  # a pair that is left out of 40 epochs has a chance of 0.75^40, one in 100,000
        assert total.max() <= 22  # 10 on average, and 2.7 for a standard deviation

    def test_is_a_function_of_seed_and_epoch(self):
        def drawn(seed, epoch):
            np.random.seed(seed + 17 * epoch)  # what others draw must not matter
            return draw(self.CORPORA, (0.5, 1.5, 0.1), seed, epoch).tolist()

        assert drawn(3, 7) == drawn(3, 7)
        assert drawn(3, 7) not in (drawn(3, 8), drawn(4, 7), drawn(7, 3))

    def test_a_weight_has_no_say_in_which_pairs_of_another_corpus_are_drawn(self):
        few, many = (self.counts((weight, 1, 0.9)) for weight in (0.01, 3.5))
        assert (few[0].sum(), many[0].sum()) == (1, 350)
        assert few[2].tolist() == many[2].tolist()

    def test_a_corpus_without_pairs_has_none(self):
        assert draw(np.full(7, 1, np.uint8), (5.0, 1.0), 1, 0).tolist() == list(range(7))

    def test_weights_that_leave_nothing_are_refused(self, make_store):
        # An epoch without a batch would go round for ever.
        store = make_store([5] * 100, [5] * 100)
        with pytest.raises(BadInputError, match=r"weight = 0\.001 an epoch has no pair"):
            plan_epoch(store, 29, 1, 0, (0.001,))
        assert [len(rows) for rows in plan_epoch(store, 29, 1, 0, (0.01,))] == [1]
