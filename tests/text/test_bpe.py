import gzip
from dataclasses import astuple
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.text import learn_bpe
from transduce.text.symbols import BYTES
from transduce.text.tokenizer import SPECIAL_SYMBOLS

CORPORA = Path(__file__).parents[2].parent / "shared" / "corpora"
SMALLEST = len(SPECIAL_SYMBOLS) + len(BYTES)

PANGRAMS = ["the quick brown fox jumps over the lazy dog", "zwölf Boxkämpfer jagen Viktor über den Sylter Deich"]

# What text might hold that no text should be able to mean; then what stands in for a space or a seam elsewhere.
IMPOSTORS = [*SPECIAL_SYMBOLS, "<0x41>", "<0x0A>", "<0xE2><0x82><0xAC>", "</s><s>", "</w>", "##ing", "@@", "▁", "Ġ"]


@pytest.fixture(scope="module")
def small():
    return learn_bpe(PANGRAMS * 3, 331)


@pytest.fixture(scope="module")
def misled():
    """A tokenizer that has seen hardly anything but impostors, often enough to merge whatever can be merged."""
    return learn_bpe([*IMPOSTORS, " ".join(IMPOSTORS), "".join(IMPOSTORS), "x<s>y </s>z"] * 20, 2003)


def corpus_lines(path):
    return gzip.decompress(path.read_bytes()).decode("utf-8").removesuffix("\n").split("\n")


@pytest.mark.skipif(not CORPORA.is_dir(), reason=f"{CORPORA} is not there")
@pytest.mark.parametrize("every", [29, pytest.param(1, marks=pytest.mark.slow)])
def test_every_line_of_the_corpora_comes_back(every):
    english, german = (corpus_lines(CORPORA / "multi30k" / f"train.{language}.gz") for language in ("en", "de"))
    tokenizer = learn_bpe(english + german, 8000)
    paths = sorted(CORPORA.rglob("*.gz"))
    assert paths
    for path in paths:
        lines = corpus_lines(path)[::every]
        returned = tokenizer.decode(tokenizer.encode(lines))
        different = [(before, after) for before, after in zip(lines, returned, strict=True) if before != after]
        assert not different, f"{path}: {different[0]}"


@pytest.mark.skipif(not CORPORA.is_dir(), reason=f"{CORPORA} is not there")
def test_symbols_change_no_line_of_the_corpora():
    """With symbols, pieces are looked up whole before they are merged: what merging gives must be the same."""
    lines = corpus_lines(CORPORA / "multi30k" / "train.en.gz")
    plain, tagged = learn_bpe(lines, 4000), learn_bpe(lines, 4006, ("<de>", "<bt>", "<formal>"))
    assert list(tagged.vocabulary)[266:] == list(plain.vocabulary)[260:]
    for path in sorted(CORPORA.rglob("*.gz")):
        sample = corpus_lines(path)[::29]
        for with_symbols, without in zip(tagged.encode(sample), plain.encode(sample), strict=True):
            assert [index - 6 if index >= 266 else index for index in with_symbols] == without


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back(small, text):
    ids = small.encode([text])
    assert small.decode(ids) == [text]
    assert not set(astuple(small.special)) & set(ids[0])


@given(
    parts=st.lists(
        st.sampled_from([*IMPOSTORS, " ", "  ", "a", "<", ">", "0", "\t", "\r", "\u2028", "\x00", "é", "🙂"])
    )
)
def test_what_looks_like_a_symbol_is_text(misled, parts):
    text = "".join(parts)
    ids = misled.encode([text])
    assert misled.decode(ids) == [text]
    assert not set(astuple(misled.special)) & set(ids[0])


@pytest.mark.parametrize("text", [*SPECIAL_SYMBOLS, "<0x41>"])
def test_no_token_spells_an_impostor(misled, text):
    # A learned "<0x41>" would be decoded as the byte of that name, "A".
    [ids] = misled.encode([f"x{text}"])
    assert text not in misled.tokens(ids)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "   ",
        "\t",
        " a",
        "a ",
        "  a  b  ",
        "🙂 👩‍👩‍👧",
        "שלום עולם",
        "a\rb",
        "a\u2028b",
        "a\x00b",
        "e\u0301 é",
        "½ ² Ⅷ 12,5",
        "x" * 5000,
        "\ufeffa",
        "\U0010ffff",
    ],
)
def test_odd_lines_come_back(small, text):
    assert small.decode(small.encode([text])) == [text]


def test_nothing_has_no_tokens(small):
    assert small.encode([""]) == [[]]
    assert small.encode([]) == []
    assert small.decode([[]]) == [""]


@pytest.mark.parametrize("vocab_size", [331, 337])
def test_the_size_of_the_vocabulary_is_honoured(vocab_size):
    assert learn_bpe(PANGRAMS * 3, vocab_size).vocab_size == vocab_size


def test_a_vocabulary_is_no_larger_than_the_text_can_fill():
    # Beside symbols and bytes: the space, a, b, and the merges "ab", " ab".
    assert learn_bpe(["ab"] * 3, 997).vocab_size == SMALLEST + 3 + 2


def test_no_text_leaves_the_bytes():
    tokenizer = learn_bpe([], 300)
    assert tokenizer.vocab_size == SMALLEST
    assert tokenizer.tokens(tokenizer.encode(["aé"])[0]) == ["<0x20>", "<0x61>", "<0xC3>", "<0xA9>"]


def test_what_was_never_seen_is_spelled_in_bytes(small):
    assert small.tokens(small.encode(["€"])[0]) == [" ", "<0xE2>", "<0x82>", "<0xAC>"]
    assert len(small.encode(["the €"])[0]) == 1 + 1 + 3


def test_a_frequent_word_is_one_token_wherever_it_stands():
    tokenizer = learn_bpe(["over the", "the over"] * 5, 300)
    assert [tokenizer.tokens(ids) for ids in tokenizer.encode(["over the over"])] == [[" over", " the", " over"]]


def test_digits_stand_alone():
    tokenizer = learn_bpe(["in 1917 and 1917", "1917", "x1917"] * 20, 397)
    assert tokenizer.tokens(tokenizer.encode(["in 1917"])[0]) == [" in", " 1", "9", "1", "7"]


def test_the_same_text_gives_the_same_tokenizer():
    # 400 characters, as many of each: which of them get symbols of their own must not be left to chance.
    text = ["".join(chr(first + offset) for offset in range(40)) for first in range(0x4E00, 0x4E00 + 400, 20)]
    assert len({learn_bpe(text, 307).to_json() for _ in range(3)}) == 1


def test_lines_may_come_from_an_iterator():
    assert learn_bpe(iter(PANGRAMS), 331).to_json() == learn_bpe(PANGRAMS, 331).to_json()
