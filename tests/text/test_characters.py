import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.text import learn_tokenizer

CORPORA = Path(__file__).parents[2].parent / "shared" / "corpora"


@pytest.fixture(scope="module")
def tokenizer():
    return learn_tokenizer("characters", ["abca <s>", "ab é"], 400, ["<de>"])


def tokens(tokenizer, text):
    [ids] = tokenizer.encode([text])
    return tokenizer.tokens(ids)


def test_every_character_is_one_token(tokenizer):
    assert tokens(tokenizer, " ab c") == [" ", "a", "b", " ", "c"]
    assert tokens(tokenizer, "<s>") == ["<", "s", ">"]
    assert tokenizer.encode([""]) == [[]]


def test_characters_stand_by_frequency_and_code_point(tokenizer):
    # Three each: a, b and the space; two: none; then once each.
    assert list(tokenizer.vocabulary)[260:] == ["<de>", "a", " ", "b", "<", ">", "c", "s", "é"]


def test_the_rarest_are_left_to_the_bytes():
    tokenizer = learn_tokenizer("characters", ["aaabbc"], 262)
    assert tokens(tokenizer, "abc€") == ["a", "b", "<0x63>", "<0xE2>", "<0x82>", "<0xAC>"]


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode([text, f"<de> {text}"])) == [text, f"<de> {text}"]


@pytest.mark.parametrize("text", ["<0x41>", "<0xC3><0xA9>", "<pad>", "x<de>", "<de>x"])
def test_what_looks_like_a_symbol_is_text(text):
    tokenizer = learn_tokenizer("characters", ["<0x41CA39pad>"], 400, ["<de>"])
    assert tokens(tokenizer, text.replace("e", "a")) == list(text.replace("e", "a"))
    assert tokenizer.decode(tokenizer.encode([text])) == [text]


@pytest.mark.skipif(not CORPORA.is_dir(), reason=f"{CORPORA} is not there")
@pytest.mark.parametrize("stride", [29, pytest.param(1, marks=pytest.mark.slow)])
def test_every_line_of_the_corpora_comes_back(stride):
    paths = sorted(CORPORA.rglob("*.gz"))
    assert paths
    tokenizer = learn_tokenizer("characters", _lines(CORPORA / "multi30k" / "train.de.gz"), 8000)
    for path in paths:
        lines = _lines(path)[::stride]
        assert tokenizer.decode(tokenizer.encode(lines)) == lines, path


def _lines(path):
    return gzip.decompress(path.read_bytes()).decode("utf-8").removesuffix("\n").split("\n")
