"""Penn brackets: read, refused, cleaned and written."""

import pytest

from transduce.text import BadTreeError, Tree, clean, escape, parse_brackets, read_trees, unescape

SENTENCE = "(S (NP-SBJ-1 (DT The) (NN dog)) (VP (VBZ barks) (NP-1 (-NONE- *T*))) (. .))"


def test_a_tree_comes_back_as_it_was():
    tree = parse_brackets(SENTENCE)
    assert str(tree) == SENTENCE
    assert tree.label == "S"
    assert tree.words == ["The", "dog", "barks", "*T*", "."]
    assert [leaf.label for leaf in tree.leaves()] == ["DT", "NN", "VBZ", "-NONE-", "."]


def test_white_space_and_unicode_in_brackets():
    text = "(\n (S\t(NP (NN Übermäßigkeit)) \n  (VP (VBZ 是)) )\n)"
    assert str(parse_brackets(text)) == "( (S (NP (NN Übermäßigkeit)) (VP (VBZ 是))))"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(S (NP (NN dog))", r"unbalanced: the tree ends with 1 open, the last of them \(S"),
        ("(S (NP (NN dog))))", "a closing bracket too many"),
        (")", "a closing bracket too many"),
        ("(S (NN dog)) (S (NN cat))", "two trees on a line"),
        ("(S (NP))", r"the phrase \(NP\) is empty"),
        ("()", r"the phrase \(\) is empty"),
        ("(S (NP (DT the) dog))", r"the word dog has no part-of-speech tag: write it as \(TAG dog\)"),
        ("(S (NN hot dog))", "two words in one bracket, hot and dog"),
        ("(S (NN dog (NP (NN cat))))", "a phrase begins beside the word dog"),
        ("dog", "'dog' stands outside of all brackets"),
        ("", "there is no tree"),
    ],
)
def test_what_is_no_tree_says_why(text, message):
    with pytest.raises(BadTreeError, match=message):
        parse_brackets(text)


def test_trees_go_over_lines_and_stand_on_them():
    lines = ["", "( (S", "    (NP (NN dog))", "  ))", "(NP (NN cat))", "", "(NP (NN cow))"]
    found = list(read_trees(enumerate(lines, start=1)))
    assert [(number, str(tree)) for number, tree in found] == [
        (2, "( (S (NP (NN dog))))"),
        (5, "(NP (NN cat))"),
        (7, "(NP (NN cow))"),
    ]


def test_a_damaged_tree_leaves_the_others_whole():
    lines = ["(S (NP (NN dog))", "(NP (NN cat))", "(NP cat))", "(X (NN a))", "(S (NN b)"]
    found = [(number, str(tree)) for number, tree in read_trees(enumerate(lines, start=1))]
    assert [number for number, _ in found] == [1, 2, 3, 4, 5]
    assert found[1][1], found[3][1] == ("(NP (NN cat))", "(X (NN a))")
    assert "unbalanced" in found[0][1]
    assert "too many" in found[2][1]
    assert "unbalanced" in found[4][1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SENTENCE, "(S (NP (DT The) (NN dog)) (VP (VBZ barks)) (. .))"),
        ("( (S (NP (NN dog))))", "(S (NP (NN dog)))"),
        ("(ROOT (TOP (S (NN dog))))", "(S (NN dog))"),
        ("(TITLE (NP (NN dog)))", "(TITLE (NP (NN dog)))"),
        ("( (HEADING (NP (NN dog))) )", "(HEADING (NP (NN dog)))"),
        ("( (S (NN a)) (S (NN b)))", "(ROOT (S (NN a)) (S (NN b)))"),  # no single phrase
        ("(ROOT (NN dog))", "(ROOT (NN dog))"),  # nor here
        ("(NN dog)", "(ROOT (NN dog))"),
        ("(S (NP=2 (-LRB- -LRB-) (NN a)) (ADVP|PRT (RB b)))", "(S (NP (-LRB- -LRB-) (NN a)) (ADVP (RB b)))"),
        ("(S (SBAR (-NONE- 0) (S (-NONE- *T*-1))) (NN a))", "(S (NN a))"),
    ],
)
def test_cleaning_leaves_what_evaluation_expects(text, expected):
    assert str(clean(parse_brackets(text))) == expected


def test_functions_may_stay_without_their_numbers():
    tree = clean(parse_brackets("(S (NP-SBJ-1 (NN a)) (NP-LOC-PRD=2 (NN b)) (PP-TMP (IN in)))"), functions=True)
    assert str(tree) == "(S (NP-SBJ (NN a)) (NP-LOC-PRD (NN b)) (PP-TMP (IN in)))"


def test_of_traces_alone_nothing_is_left():
    assert clean(parse_brackets("( (S (NP (-NONE- *))))")) is None


@pytest.mark.parametrize(
    ("word", "written"), [("(", "-LRB-"), (")", "-RRB-"), ("f(x)", "f-LRB-x-RRB-"), ("[1]", "[1]"), ("a/b", "a/b")]
)
def test_words_with_brackets_are_escaped_and_come_back(word, written):
    assert escape(word) == written
    assert unescape(written) == word
    assert str(parse_brackets(str(Tree("NN", (), escape(word))))) == f"(NN {written})"


def test_a_word_with_white_space_is_one_word_of_a_tree():
    assert str(parse_brackets(str(Tree("NNP", (), escape("New York\u00a0City"))))) == "(NNP New_York_City)"


@pytest.mark.parametrize(("written", "word"), [(r"1\/2", "1/2"), (r"\*", "*"), ("-LSB-", "["), ("-RCB-", "}")])
def test_what_treebanks_escape_is_read_as_people_write_it(written, word):
    assert unescape(written) == word


def test_no_depth_is_too_much():
    deep = 20_000
    text = "(X " * deep + "(NN a)" + ")" * deep
    tree = clean(parse_brackets(text))
    assert str(tree) == text
    assert tree.words == ["a"]
