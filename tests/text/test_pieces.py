import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.config import BadInputError
from transduce.text import AlignedText
from transduce.text.pieces import cut_words, match_pieces


def matched(source, target, alignment=None):
    """The pieces of a translation, each with that of the source that it stands for; a bar in the source is a cut."""
    parts = source.split("|")
    text = "".join(parts)
    cuts = [len("".join(parts[:number])) for number in range(1, len(parts))]
    spans = cut_words(text, cuts)
    found = match_pieces(text, spans, AlignedText(target, alignment))
    assert "".join(piece.space + piece.text for piece in found) == target.strip()
    return [(each.text, None if each.source is None else text[slice(*spans[each.source])]) for each in found]


def test_words_go_by_the_alignment():
    assert matched("the red house", "la casa roja", [(0, 0), (1, 2), (2, 1)]) == [
        ("la", "the"),
        ("casa", "house"),
        ("roja", "red"),
    ]


def test_of_several_words_the_one_counts_that_has_no_other():
    # "des" comes from "of the", and "Hauses" from "the house": both articles have something of their own.
    alignment = [(0, 0), (1, 0), (1, 1), (2, 1)]
    assert matched("of the house", "des Hauses", alignment) == [("des", "of"), ("Hauses", "house")]
    assert matched("a b", "c", [(0, 0), (1, 0)]) == [("c", "a")]


def test_a_word_that_comes_from_nothing():
    assert matched("a b", "c d e", [(0, 0), (1, 2)]) == [("c", "a"), ("d", None), ("e", "b")]


def test_without_an_alignment_words_go_by_their_places():
    assert matched("a b", "p q r s") == [("p", "a"), ("q", "a"), ("r", "b"), ("s", "b")]
    assert matched("a b c d", "p q") == [("p", "b"), ("q", "d")]
    assert matched("a", "") == []


@pytest.mark.parametrize(
    ("source", "target", "pieces"),
    [
        ("World|!", "Welt!", [("Welt", "World"), ("!", "!")]),
        ("World|!", "Welt", [("Welt", "World")]),
        ("World", "Welt!", [("Welt", "World"), ("!", None)]),
        ("“|Hi|”", "„Hallo“", [("„", "“"), ("Hallo", "Hi"), ("“", "”")]),
        ("un|believable", "unglaublich", [("un", "un"), ("glaublich", "believable")]),
        ("O|nce", "Es", [("E", "O"), ("s", "nce")]),
        ("a|b", "x", [("x", "a")]),
        ("nam|aste", "नमस्ते", [("नमस्", "nam"), ("ते", "aste")]),  # no vowel sign without its letter
        ("un|believable", "nicht zu glauben", [("nicht", "un"), ("zu", "believable"), ("glauben", "believable")]),
        ("—|x", "–y", [("–", "—"), ("y", "x")]),
    ],
)
def test_a_cut_within_a_word_comes_where_it_stood(source, target, pieces):
    alignment = [(0, number) for number in range(len(target.split()))]
    assert matched(source, target, alignment) == pieces


def test_chinese_and_japanese_are_matched_by_characters():
    # To the alignment, all of it is one word.
    found = matched("I love big dogs", "我爱大狗", [(0, 0), (3, 0)])
    assert found == [("我", "I"), ("爱", "love"), ("大", "big"), ("狗", "dogs")]
    assert matched("我|爱|大|狗。", "We love big dogs.") == [
        ("We", "我"),
        ("love", "爱"),
        ("big", "大"),
        ("dogs.", "狗。"),
    ]
    found = matched("I do love my big Java", "我很喜欢大Java")
    assert [source for _, source in found] == ["I", "do", "love", "my", "big", "Java"]
    assert found[-1] == ("Java", "Java")  # a word in other letters is whole


@pytest.mark.parametrize("pair", [(3, 0), (0, 2), (-1, 0), (0, -1)])
def test_an_alignment_that_fits_other_texts_is_named(pair):
    with pytest.raises(BadInputError, match=f"alignment {pair[0]}-{pair[1]}: the source has 3 words"):
        matched("a b c", "d e", [pair])


@given(st.text(min_size=1), st.text(), st.data())
def test_all_of_a_translation_is_in_its_pieces(source, target, data):
    cuts = sorted(data.draw(st.sets(st.integers(1, len(source)))))
    spans = cut_words(source, cuts)
    words = len(source.split()), len(target.split())
    pairs = st.tuples(*(st.integers(0, max(0, number - 1)) for number in words))
    alignment = data.draw(st.none() | st.lists(pairs)) if all(words) else None
    found = match_pieces(source, spans, AlignedText(target, alignment)) if spans else []
    assert "".join(piece.space + piece.text for piece in found) == (target.strip() if spans else "")
    assert all(piece.text for piece in found)
