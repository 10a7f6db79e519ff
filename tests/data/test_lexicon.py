"""IBM Model 1 by a double loop, and a corpus whose lists can be counted by hand."""

from collections import defaultdict

import numpy as np
import pytest

from transduce.data import Store, learn_lexicon, lexicon, write_store

SOURCES, TARGETS = 13, 17
# Word 4 becomes 11, 5 becomes 7, 6 becomes 16; nothing else is ever seen.
WORDS = [([4, 5], [11, 7]), ([4, 6], [11, 16]), ([5, 6], [7, 16]), ([4], [11]), ([6], [16])]


def store(tmp_path, pairs):
    path = tmp_path / "train.arrow"
    write_store(path, [(source, target, 0) for source, target in pairs], {})
    return Store(path)


def learn(of, size=3, first=2, **changes):
    return learn_lexicon(of, (SOURCES, TARGETS), size, first, **{"pairs": 1000, **changes})


def by_hand(pairs, iterations):
    """t[source][target] as the formulas of Brown et al. (1993) stand, from the same t for all."""
    t = defaultdict(lambda: defaultdict(lambda: 1.0))
    for _ in range(iterations):
        counts = defaultdict(lambda: defaultdict(float))
        for source, target in pairs:
            for word in target:
                total = sum(t[each][word] for each in source)
                for each in source:
                    counts[each][word] += t[each][word] / total
        t = defaultdict(lambda: defaultdict(float))
        for each, row in counts.items():
            for word, count in row.items():
                t[each][word] = count / sum(row.values())
    return t


def test_words_and_what_becomes_of_them(tmp_path):
    found = learn(store(tmp_path, WORDS))
    assert found.translations.shape == (SOURCES, 3)
    assert found.translations[[4, 5, 6], 0].tolist() == [11, 7, 16]
    assert sorted(found.translations[4].tolist()) == [7, 11, 16]
    unseen = [row for row in range(SOURCES) if row not in {4, 5, 6}]
    assert (found.translations[unseen] == -1).all()
    # 11 and 16 stand three times, 7 twice.
    assert found.frequent.tolist() == [11, 16]
    assert learn(store(tmp_path, WORDS), first=5).frequent.tolist() == [11, 16, 7]


def random_pairs(number):
    chance = np.random.default_rng(3)
    return [
        (chance.integers(4, SOURCES, chance.integers(1, 7)).tolist(), chance.integers(4, TARGETS, 5).tolist())
        for _ in range(number)
    ]


@pytest.mark.parametrize("at_once", [1, 41, 2**22])
def test_the_order_is_that_of_a_double_loop(tmp_path, monkeypatch, at_once):
    """However many pairs of positions are worked on together."""
    monkeypatch.setattr(lexicon, "_AT_ONCE", at_once)
    pairs = random_pairs(29)
    expected = by_hand(pairs, 5)
    found = learn(store(tmp_path, pairs), size=TARGETS).translations
    for source in range(4, SOURCES):
        listed = [target for target in found[source].tolist() if target >= 0]
        chances = [expected[source][target] for target in listed]
        assert sorted(listed) == sorted(expected[source])
        assert chances == pytest.approx(sorted(chances, reverse=True), abs=1e-12)


def test_pairs_are_taken_evenly_and_the_rarest_forgotten(tmp_path):
    # Every second pair is of word 5.
    of = store(tmp_path, [([4], [11]), ([5], [7])] * 3)
    assert (learn(of, pairs=3).translations[5] == -1).all()
    assert learn(of, pairs=6).translations[5, 0] == 7
    known = learn(store(tmp_path, WORDS), most_known=4).translations
    assert (known >= 0).sum() <= 4


def test_an_empty_store(tmp_path):
    found = learn(store(tmp_path, []))
    assert (found.translations == -1).all()
    assert not len(found.frequent)
