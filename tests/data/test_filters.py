import sqlite3
from collections import Counter

import pytest

from transduce.config import BadInputError, Corpus, DataConfig
from transduce.data.filters import DuplicateFinder, PairFilter, Tally, text_flaw

CORPUS = Corpus(source="a", target="b")


def settings(**changes):
    return DataConfig(train=(CORPUS,), dev=CORPUS, **changes)


def accepted(pairs, dev=(), **changes):
    """Which of the pairs are accepted, and what was counted on the way."""
    accepts, tally = PairFilter(settings(**changes), dev, DuplicateFinder()), Tally("train")
    return [accepts.accepts_text(number, pair, tally) for number, pair in enumerate(pairs, start=1)], tally


class TestTextFlaw:
    @pytest.mark.parametrize(
        ("pair", "flaw"),
        [
            (("a", "b"), None),
            (("", "b"), "empty side"),
            (("a", " \t\u3000"), "empty side"),
            (("a\udcff", "b"), "invalid UTF-8"),
            (("", "\udcff"), "invalid UTF-8"),  # the worse one
            (("�", "\x00"), None),
        ],
    )
    def test_by_hand(self, pair, flaw):
        assert text_flaw(pair) == flaw

    @pytest.mark.parametrize("choice", ["keep", "drop"])
    def test_no_setting_keeps_what_is_no_pair(self, choice):
        pairs = [("a", ""), ("\udcff", "b"), ("a", "b")]
        kept, tally = accepted(pairs, duplicates=choice, dev_overlap=choice)
        assert kept == [False, False, True]
        assert tally.dropped == {"empty side": 1, "invalid UTF-8": 1}


def test_much_that_is_dropped_for_what_is_wrong_with_it_is_said():
    """Of duplicates there may be any number."""
    assert Tally("a", kept=90, dropped=Counter({"duplicate": 900, "too long": 10})).complaint() is None
    complaint = Tally("a", kept=50, dropped=Counter({"duplicate": 30, "too long": 9, "no tree": 11})).complaint()
    assert complaint == "a: 20 of 100 pairs are left out (no tree 11, too long 9): is that meant?"
    assert Tally("a").complaint() is None


class TestDuplicates:
    PAIRS = (("a", "x"), ("b", "x"), ("a", "x"), ("a", "y"), ("a", "x"), ("A", "x"), ("a ", "x"))

    def test_are_counted_and_kept(self):
        kept, tally = accepted(self.PAIRS)
        assert kept == [True] * 7
        assert (tally.noticed, tally.dropped) == ({"duplicate": 2}, {})

    def test_are_dropped_but_for_the_first_where_asked_for(self):
        kept, tally = accepted(self.PAIRS, duplicates="drop")
        assert kept == [True, True, False, True, False, True, True]
        assert (tally.noticed, tally.dropped) == ({}, {"duplicate": 2})

    def test_are_found_across_corpora(self):
        accepts, first, second = (
            PairFilter(settings(duplicates="drop"), (), DuplicateFinder()),
            Tally("first"),
            Tally("second"),
        )
        assert accepts.accepts_text(1, ("a", "x"), first)
        assert not accepts.accepts_text(1, ("a", "x"), second)
        assert (first.dropped.total(), second.dropped.total()) == (0, 1)

    def test_sides_are_told_apart_wherever_they_are_cut(self):
        finder = DuplicateFinder()
        pairs = [("ab", "c"), ("a", "bc"), ("a\nb", "c"), ("a", "b\nc"), ("c", "ab"), ("", "abc"), ("a\x00b", "c")]
        assert all(finder.is_new(pair) for pair in pairs)
        assert not any(finder.is_new(pair) for pair in pairs)

    def test_of_very_many(self):
        finder = DuplicateFinder()
        pairs = [(f"s{number}", f"t{number % 7}") for number in range(20_011)]
        assert all(finder.is_new(pair) for pair in pairs)
        assert not any(finder.is_new(pair) for pair in pairs)


class TestDevOverlap:
    DEV = (("Good morning!", "Guten Morgen!"), ("Thanks", "Danke"))
    PAIRS = (
        ("Good morning!", "Hallo"),  # its source
        ("Hi", "Guten Morgen!"),  # its target
        ("  GOOD \t morning! ", "Hallo"),  # but for case and white space
        ("Good morning", "Guten Morgen"),
        ("Guten Morgen!", "Good morning!"),  # the other side's text
        ("thanks", "danke"),
    )

    def test_is_counted_and_kept(self):
        kept, tally = accepted(self.PAIRS, self.DEV)
        assert kept == [True] * 6
        assert (tally.noticed, tally.dropped) == ({"in dev": 4}, {})

    def test_is_dropped_where_asked_for(self):
        kept, tally = accepted(self.PAIRS, self.DEV, dev_overlap="drop")
        assert kept == [False, False, False, True, True, False]
        assert (tally.noticed, tally.dropped) == ({}, {"in dev": 4})

    def test_case_is_folded_as_unicode_has_it(self):
        kept, _ = accepted([("STRASSE", "x")], [("Straße", "y")], dev_overlap="drop")
        assert kept == [False]

    def test_of_treebanks_is_by_sentences_alone(self):
        """Trees without their words are the same for many sentences."""
        tree = "(S (NP XX XX )NP XX )S"
        trees = Corpus(trees="dev.trees")
        config = DataConfig(train=(trees,), dev=trees, dev_overlap="drop")
        accepts = PairFilter(config, [("The dog barks", tree)], None)
        assert accepts.accepts_text(1, ("A cat sleeps", tree), Tally("train"))
        assert not accepts.accepts_text(2, ("the dog barks", "(S XX XX XX )S"), Tally("train"))

    def test_and_duplicates_are_two_choices(self):
        pairs = [("Thanks", "x"), ("Thanks", "x")]
        kept, tally = accepted(pairs, self.DEV, duplicates="drop")
        assert kept == [True, False]
        assert (tally.noticed, tally.dropped) == ({"in dev": 2}, {"duplicate": 1})
        kept, tally = accepted(pairs, self.DEV, dev_overlap="drop")
        assert kept == [False, False]
        assert (tally.noticed, tally.dropped) == ({}, {"in dev": 2})


class TestLengths:
    """The end symbol of each side counts: sides of 6 and 2 tokens are 7 and 3 long."""

    @pytest.mark.parametrize(
        ("sizes", "max_length", "ratio", "flaw"),
        [
            ((6, 2), 7, None, None),
            ((6, 2), 6, None, "too long"),
            ((2, 6), 6, None, "too long"),
            ((5, 2), 256, 2.0, None),  # 6 to 3
            ((6, 2), 256, 2.0, "length ratio"),  # 7 to 3
            ((2, 6), 256, 2.0, "length ratio"),
            ((6, 2), 6, 2.0, "too long"),
            ((0, 1), 256, 1.5, "length ratio"),  # 1 to 2
        ],
    )
    def test_by_hand(self, sizes, max_length, ratio, flaw):
        accepts = PairFilter(settings(max_length=max_length, max_length_ratio=ratio), (), DuplicateFinder())
        source, target = ([7] * size for size in sizes)
        assert accepts.length_flaw(source, target) == flaw


class TestTally:
    def test_a_clean_corpus_is_one_line(self):
        tally = Tally("train a.tsv")
        tally.keep([3, 5, 7], [11])
        tally.keep([3, 5], [11])
        assert tally.lines() == ["train a.tsv: 2 of 2 pairs kept; 2.5 source and 1.0 target tokens each"]

    def test_nothing_at_all(self):
        assert Tally("dev").lines() == ["dev: 0 of 0 pairs kept; 0.0 source and 0.0 target tokens each"]

    def test_every_reason_has_its_count_and_the_first_examples(self):
        tally = Tally("train")
        tally.keep([3], [5])
        for number in range(1, 6):
            tally.notice("duplicate", 1000 * number, ("a", "b"), dropped=False)
        tally.notice("empty side", 7, ("", "b"), dropped=True)
        assert tally.lines() == [
            "train: 1 of 2 pairs kept; 1.0 source and 1.0 target tokens each",
            "  1 dropped: empty side",
            "    line 7: ''  |  'b'",
            '  5 occurred before, which alone drops no pair (data.duplicates = "drop" leaves them out)',
            "    line 1,000: 'a'  |  'b'",
            "    line 2,000: 'a'  |  'b'",
            "    line 3,000: 'a'  |  'b'",
        ]

    def test_the_setting_that_leaves_out_dev_is_named(self):
        tally = Tally("train")
        tally.notice("in dev", 3, ("a", "b"), dropped=False)
        assert '(data.dev_overlap = "drop" leaves them out)' in tally.lines()[1]

    def test_an_example_is_one_short_line_that_any_terminal_shows(self):
        tally = Tally("train")
        tally.notice("invalid UTF-8", 3, ("a\r\udcff\x1b[31m", "x" * 997), dropped=True)
        [example] = [line for line in tally.lines() if "line 3" in line]
        assert len(example) < 150
        assert example.endswith("...")
        assert example.encode().isascii()
        assert example.isprintable()


def test_a_full_disk_is_told_with_what_to_do():
    class Full:
        def execute(self, *_):
            raise sqlite3.OperationalError("database or disk is full")

    finder = DuplicateFinder()
    finder.close()
    finder._database = Full()
    with pytest.raises(BadInputError, match=r"database or disk is full: .* SQLITE_TMPDIR"):
        finder.is_new(("a", "b"))
