"""Brackets, counted as evalb counts them: against its published sample, and against PYEVALB."""

import random
from itertools import islice
from pathlib import Path

import pytest

from transduce.config import BadInputError
from transduce.data.lines import read_lines
from transduce.evaluation import BracketCounts, count_all, count_brackets
from transduce.text import Tree, clean, parse_brackets, read_trees

CORPORA = Path(__file__).parents[2].parent / "shared" / "corpora"
GOLD = "(S (A (P this)) (B (Q is) (A (R a) (T test))))"
LONG = " ".join(["(A (P this)) (B (Q is) (A (R a) (T test)))"] * 11)
# evalb's own sample (EVALB/sample of its distribution: sample.gld, sample.tst, sample.rsl): gold tree, output, matched,
# gold and output brackets, crossing ones, words and right tags. Its lines whose words differ are errors there.
SAMPLE = [
    (GOLD, "(S (A (P this)) (B (Q is) (A (R a) (T test))))", 4, 4, 4, 0, 4, 4),
    (GOLD, "(S (A (P this)) (B (Q is) (C (R a) (T test))))", 3, 4, 4, 0, 4, 4),
    (GOLD, "(S (A (P this)) (B (Q is) (A (R a) (U test))))", 4, 4, 4, 0, 4, 3),
    (GOLD, "(S (C (P this)) (B (Q is) (A (R a) (U test))))", 3, 4, 4, 0, 4, 3),
    (GOLD, "(S (A (P this)) (B (Q is) (R a) (A (T test))))", 3, 4, 4, 0, 4, 4),
    (GOLD, "(S (A (P this) (Q is)) (A (R a) (T test)))", 2, 4, 3, 1, 4, 4),
    (GOLD, "(S (P this) (Q is) (R a) (T test))", 1, 4, 1, 0, 4, 4),
    (GOLD, "(S (A (P this)) (B (Q is) (A (A (R a) (T test)))))", 4, 4, 5, 0, 4, 4),
    (GOLD, "(S (A (P this)) (B (Q is) (A (A (A (A (A (R a) (T test))))))))", 4, 4, 8, 0, 4, 4),
    (GOLD, "(TOP (S (A (P this)) (B (Q is) (A (R a) (T test)))))", 4, 4, 4, 0, 4, 4),
    ("(S (A-SBJ-1 (P this)) (B-WHATEVER (Q is) (A (R a) (T test))))", GOLD, 4, 4, 4, 0, 4, 4),
    (f"(S {LONG})", f"(S {LONG})", 34, 34, 34, 0, 44, 44),
    (f"{GOLD[:-1]} (-NONE- *))", f"{GOLD[:-1]} (-NONE- *))", 4, 4, 4, 0, 4, 4),
    (f"{GOLD[:-1]} (: *))", f"{GOLD[:-1]} (: *))", 4, 4, 4, 0, 4, 4),
]


@pytest.mark.parametrize(("gold", "output", "matched", "expected", "found", "crossing", "words", "tagged"), SAMPLE)
def test_the_published_sample(gold, output, matched, expected, found, crossing, words, tagged):
    counts = count_brackets(clean(parse_brackets(gold)), clean(parse_brackets(output)))
    sums = [each.total() for each in (counts.matched, counts.gold, counts.output)]
    assert [*sums, counts.crossing, counts.words, counts.tagged] == [matched, expected, found, crossing, words, tagged]
    assert counts.exact == (matched == expected == found)


def test_punctuation_is_that_of_the_gold_tree():
    gold = parse_brackets("(S (NP (NN dog)) (VP (VBZ barks)) (. .))")
    output = parse_brackets("(S (NP (NN dog)) (VP (VBZ barks) (NN .)))")
    counts = count_brackets(gold, output)
    assert (counts.f1, counts.exact_match, counts.words, counts.tagged) == (100, 100, 2, 2)


def test_phrases_of_punctuation_alone_do_not_count():
    gold = parse_brackets("(S (NP (NN dog)) (PRN (: --) (, ,)))")
    output = parse_brackets("(S (NP (NN dog) (: --)) (, ,))")
    counts = count_brackets(gold, output)
    assert (counts.precision, counts.recall) == (100, 100)


def test_particles_are_adverbs():
    counts = count_brackets(parse_brackets("(VP (PRT (RP up)))"), parse_brackets("(VP (ADVP (RB up)))"))
    assert counts.f1 == 100
    assert counts.gold["ADVP"] == 1


def test_every_sentence_counts():
    gold = parse_brackets(GOLD)
    counts = count_all([(gold, gold), (gold, None)])
    assert (counts.precision, counts.recall, counts.failures, counts.exact_match) == (100, 50, 1, 50)
    assert counts.f1 == pytest.approx(200 / 3)
    assert BracketCounts().f1 == 0


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("(S (P this) (Q is) (R a))", "4 in the gold tree, 3 in the output"),
        ("(S (P this) (Q was) (R a) (T test))", "word 2 is 'is' in the gold tree and 'was' in the output"),
    ],
)
def test_other_words_are_an_error(output, message):
    with pytest.raises(BadInputError, match=message):
        count_brackets(parse_brackets(GOLD), parse_brackets(output))


def test_labels_apart():
    counts = count_brackets(parse_brackets(GOLD), parse_brackets("(S (A (P this)) (A (Q is) (A (R a) (T test))))"))
    assert (counts.of("A").precision, counts.of("A").recall) == (pytest.approx(200 / 3), 100)
    assert counts.of("B").recall == 0


def damage(tree, draw):
    """The tree with labels changed, phrases flattened and phrases put around others."""
    if tree.word is not None:
        return [Tree(tree.label if draw.random() < 0.9 else "XX", (), tree.word)]
    parts = tuple(part for each in tree.parts for part in damage(each, draw))
    if draw.random() < 0.15 and tree.label != "TOP":
        return parts
    if draw.random() < 0.15 and len(parts) > 2:
        cut = draw.randint(1, len(parts) - 1)
        parts = (*parts[:cut], Tree("NP", parts[cut:]))
    return [Tree(tree.label if draw.random() < 0.9 else "PP", parts)]


def without_punctuation(tree):
    """What PYEVALB, which knows no parameter file, has to be given: no word that evalb leaves out."""
    if tree.word is not None:
        return None if tree.label in {",", ":", "``", "''", "."} else tree
    parts = tuple(found for each in tree.parts if (found := without_punctuation(each)) is not None)
    return Tree(tree.label.replace("PRT", "ADVP"), parts) if parts else None


def repeats(tree, first=0):
    """Labels and places of phrases, to see whether one occurs twice."""
    if tree.word is not None:
        return first + 1, []
    last, found = first, []
    for each in tree.parts:
        last, inner = repeats(each, last)
        found += inner
    return last, [(tree.label, first, last), *found]


def test_pyevalb_counts_the_same():
    """On 400 pairs of trees of GUM, damaged and whole.

    PYEVALB knows no COLLINS.prm: punctuation is taken away before. It counts a bracket once that occurs twice in a tree
    (evalb's README: n of m), so such trees are left out.
    """
    scorer = pytest.importorskip("PYEVALB.scorer").Scorer()
    parser = pytest.importorskip("PYEVALB.parser")
    if not CORPORA.is_dir():
        pytest.skip("the corpora are not here")
    draw, compared = random.Random(7), 0
    lines = enumerate(islice(read_lines(CORPORA / "gum" / "dev.trees.gz"), 900), start=1)
    for number, (_, tree) in enumerate(read_trees(lines)):
        gold = without_punctuation(clean(tree))
        if gold is None:
            continue
        (output,) = damage(gold, draw)[:1] if number % 4 else [gold]
        if output.words != gold.words or output.word is not None:
            continue
        if any(len(set(found)) < len(found) for _, found in (repeats(gold), repeats(output))):
            continue
        theirs = scorer.score_trees(*(parser.create_from_bracket_string(str(each)) for each in (gold, output)))
        ours = count_brackets(gold, output)
        assert theirs.matched_brackets == ours.matched.total(), (str(gold), str(output))
        assert theirs.gold_brackets == ours.gold.total()
        assert theirs.test_brackets == ours.output.total()
        assert theirs.cross_brackets == ours.crossing
        assert theirs.correct_tags == ours.tagged
        compared += 1
    assert compared >= 400
