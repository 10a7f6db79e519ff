"""Trees as symbols and back, in two ways."""

import random
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from transduce.config.corpora import LinearizationKind, TreeTags
from transduce.data.lines import read_lines
from transduce.text import BadTreeError, Linearization, Tree, clean, parse_brackets, read_trees
from transduce.text.linearization import Closing, Leaf, Opening

CORPORA = Path(__file__).parents[2].parent / "shared" / "corpora"
TREE = parse_brackets("(S (NP (DT The) (NN dog)) (VP (VBZ barks)) (. .))")
SYMBOLS: dict[tuple[LinearizationKind, TreeTags], str] = {
    ("brackets", "normalized"): "(S (NP XX XX )NP (VP XX )VP XX )S",
    ("brackets", "kept"): "(S (NP DT NN )NP (VP VBZ )VP . )S",
    ("shift_reduce", "normalized"): "NT(S) NT(NP) SHIFT SHIFT REDUCE NT(VP) SHIFT REDUCE SHIFT REDUCE",
    ("shift_reduce", "kept"): "NT(S) NT(NP) SHIFT(DT) SHIFT(NN) REDUCE NT(VP) SHIFT(VBZ) REDUCE SHIFT(.) REDUCE",
}
WITH_WORDS = {
    ("brackets", "normalized"): "(S (NP WORD The WORD dog )NP (VP WORD barks )VP WORD . )S",
    (
        "shift_reduce",
        "kept",
    ): "NT(S) NT(NP) WORD(DT) The WORD(NN) dog REDUCE NT(VP) WORD(VBZ) barks REDUCE WORD(.) . REDUCE",
}
ALL = [Linearization(kind, tags) for kind, tags in SYMBOLS]


def normalized(tree):
    """The tree with one tag for all words."""
    return replace(tree, label="XX") if tree.word else replace(tree, parts=tuple(map(normalized, tree.parts)))


@pytest.mark.parametrize("how", ALL)
def test_symbols_are_those_of_the_literature_and_lead_back(how):
    symbols = how.write(TREE)
    assert " ".join(symbols) == SYMBOLS[how.kind, how.tags]
    expected = TREE if how.tags == "kept" else normalized(TREE)
    assert how.read(symbols, TREE.words) == expected
    assert how.repair(symbols, TREE.words) == expected


@pytest.mark.parametrize("how", ALL)
def test_a_vocabulary_tells_how_its_trees_are_written(how):
    assert Linearization.of({"<pad>", "##", *how.write(TREE)}) == how
    assert Linearization.of(["(", ")", "(see", "a)", "XX"]) is None


@pytest.mark.parametrize(("kind", "tags"), SYMBOLS)
@pytest.mark.parametrize("words", [False, True])
def test_words_of_texts_that_look_like_leaves_change_nothing(kind, tags, words):
    """Where both sides share a vocabulary, which tags alone never do, such words come behind the symbols of trees."""
    how = Linearization(kind, tags, words)
    texts = [] if (kind, tags, words) == ("brackets", "kept", False) else ["WORD", "SHIFT", "XX"]
    assert Linearization.of([*dict.fromkeys(how.write(TREE)), *texts]) == how


@pytest.mark.parametrize("corpus", ["gum", "craft"])
@pytest.mark.parametrize(
    ("part", "stride"),
    [("dev", 5), ("train", 31), *(pytest.param(part, 1, marks=pytest.mark.slow) for part in ("dev", "train"))],
)
def test_every_tree_of_the_treebanks_comes_back(corpus, part, stride):
    if not CORPORA.exists():
        pytest.skip("the corpora are not here")
    lines = islice(enumerate(read_lines(CORPORA / corpus / f"{part}.trees.gz"), start=1), 0, None, stride)
    found = [tree for _, tree in read_trees(lines) if isinstance(tree, Tree)]
    assert stride * len(found) > 1500
    for tree in found:
        for one in (tree, clean(tree)):
            for how in (Linearization("brackets", "kept"), Linearization("shift_reduce", "kept")):
                assert how.read(how.write(one), one.words) == one


@pytest.mark.parametrize(
    ("symbols", "words", "message"),
    [
        ("(S XX )S", 2, "1 words in the tree, but the sentence has 2"),
        ("(S XX XX )S", 1, "more words in the tree than the 1"),
        ("(S (NP )NP XX )S", 1, "the phrase NP is empty"),
        ("(S XX", 1, "1 phrases do not end"),
        ("(S XX )NP", 1, "the phrase S is closed as NP"),
        (")S", 1, "a closing bracket too many"),
        ("XX", 1, "outside of all phrases"),
        ("(S XX )S (S XX )S", 2, "behind the end of the tree"),
        ("(S dog )S", 1, "dog is no part of a tree"),
        ("", 1, "0 phrases do not end"),
    ],
)
def test_symbols_of_no_tree_say_why(symbols, words, message):
    with pytest.raises(BadTreeError, match=message):
        Linearization().read(symbols.split(), ["w"] * words)


@pytest.mark.parametrize(
    ("symbols", "words", "expected"),
    [
        ("(S XX )S", 3, "(S (XX a) (XX b) (XX c))"),
        ("(S XX XX XX )S", 1, "(S (XX a))"),
        ("(S (NP )NP XX )S", 1, "(S (XX a))"),
        ("(S (NP XX", 1, "(S (NP (XX a)))"),
        (")S )NP", 1, "(ROOT (XX a))"),
        ("XX XX", 2, "(ROOT (XX a) (XX b))"),
        ("(S XX )S (NP XX )NP", 2, "(ROOT (S (XX a)) (NP (XX b)))"),
        ("dog", 1, "(ROOT (XX a))"),
        ("", 1, "(ROOT (XX a))"),
    ],
)
def test_repair_makes_a_tree_of_anything(symbols, words, expected):
    assert str(Linearization().repair(symbols.split(), list("abc")[:words])) == expected


@pytest.mark.parametrize("how", ALL)
def test_repair_is_always_over_all_words(how):
    draw = random.Random(3)
    pool = [*how.write(TREE), "(NP", "dog", "REDUCE"]
    for _ in range(500):
        words = list("abcdef")[: draw.randint(1, 6)]
        repaired = how.repair(draw.choices(pool, k=draw.randint(0, 20)), words)
        assert repaired.words == words
        assert parse_brackets(str(repaired)) == repaired


@pytest.mark.parametrize(("kind", "tags"), WITH_WORDS)
def test_words_stand_behind_their_leaves(kind, tags):
    how = Linearization(kind, tags, words=True)
    symbols = how.write(TREE)
    assert " ".join(symbols) == WITH_WORDS[kind, tags]
    known = [symbol for symbol in symbols if how.meaning(symbol) is not None]
    assert how.read(known, TREE.words) == (TREE if tags == "kept" else normalized(TREE))
    assert Linearization.of(set(symbols)) == how


def test_meanings():
    brackets, actions = Linearization("brackets", "kept"), Linearization("shift_reduce", "kept")
    assert brackets.meaning("(NP") == Opening("NP")
    assert brackets.meaning(")NP") == Closing("NP")
    assert brackets.meaning("-LRB-") == Leaf("-LRB-")
    assert actions.meaning("NT(NP)") == Opening("NP")
    assert actions.meaning("REDUCE") == Closing(None)
    assert actions.meaning("SHIFT(,)") == Leaf(",")
    assert actions.meaning("dog") is None
    assert Linearization().meaning("dog") is None
