from collections import Counter

import pytest

from benchmarks import corpus_size
from benchmarks.corpus_size import Cost, extrapolate, make_lines, measure_batch, measure_prepare, report, spell


def test_words_are_longer_the_rarer_they_are_and_differ():
    assert [spell(rank) for rank in (0, 1, 89, 90, 91, 90 * 91)] == ["ba", "be", "zu", "baba", "beba", "bababa"]
    assert len({spell(rank) for rank in range(9973)}) == 9973


def test_lines_have_25_words_of_frequency_one_over_rank():
    pairs = list(make_lines(1_013, 1, words=1_000))
    assert len(pairs) == 1_013
    assert pairs == list(make_lines(1_013, 1, words=1_000))
    for side in zip(*pairs, strict=True):
        assert 23 < sum(len(line.split()) for line in side) / 1_013 < 27
    words = Counter(word for source, _ in pairs for word in source.rstrip(".").split())
    most = [sum(words[spell(rank)] for rank in range(*ranks)) for ranks in ((0, 9), (9, 99), (99, 999))]
    # Three powers of ten: ranks 1 to 9, 10 to 99 and 100 to 999 are of equal chance.
    assert max(most) / min(most) < 1.1


def test_a_line_through_the_last_two():
    first, second = Cost(3, 100, 1, 7), Cost(7, 100, 1.5, 8)
    assert extrapolate([1, 10, 30], [Cost(0, 0, 0, 0), first, second], 50) == Cost(11, 100, 2, 9)
    lines = report([10, 30], [first, second])
    assert lines[-2].startswith("| 30 | 7.0 | 0 | 1.50 | 0 |")
    assert lines[-1].startswith("| 30,000,000, by a straight line")


def test_both_measurements(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_size, "VOCABULARY", 400)
    monkeypatch.setattr(corpus_size, "WORDS", 50)
    with pytest.raises(Exception, match="no such file"):
        measure_prepare(tmp_path)
    for name, seed in (("train", 1), ("dev", 2)):
        corpus_size.write_corpus(tmp_path, name, 29, seed)
    seconds, grown = measure_prepare(tmp_path)
    assert seconds > 0
    assert grown >= 0
    assert (tmp_path / "run" / "store" / "train.arrow").is_file()
    assert measure_batch(tmp_path)[0] < 60
