"""Words are cut as subword-nmt cuts them: its algorithm, written down plainly, is the oracle."""

import random
from itertools import pairwise

import pytest

from transduce.config import BadInputError
from transduce.text.subword_nmt import made_by, read_codes, subword_tokenizer, word_tokenizer
from transduce.text.tokenizer import SPECIAL_SYMBOLS

# "ab" and "bc" overlap, "aa" overlaps itself, and a word's last letter is another symbol than the same inside one.
MERGES = [("a", "b"), ("a", "a"), ("b", "c</w>"), ("ab", "c"), ("ab", "c</w>"), ("aa", "aa"), ("c", "ab"), ("b", "c")]
CODES = "#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in MERGES)


def cut(word):
    """Sennrich et al. 2016, algorithm 1, applied: the first merge that some neighbours have, everywhere."""
    parts = [*word[:-1], word[-1] + "</w>"]
    while possible := [merge for merge in MERGES if merge in pairwise(parts)]:
        place = 0
        while place < len(parts) - 1:
            if (parts[place], parts[place + 1]) == possible[0]:
                parts[place : place + 2] = ["".join(possible[0])]
            place += 1
    return parts


@pytest.fixture
def codes(tmp_path):
    (tmp_path / "codes").write_text(CODES)
    return tmp_path / "codes"


def tokenizer(codes, extra=()):
    merges = read_codes(codes)
    return subword_tokenizer([*SPECIAL_SYMBOLS, *made_by(merges), *extra], merges)


def test_words_are_cut_as_published_and_come_back(codes):
    draws = random.Random(3)
    words = ["".join(draws.choices("abc", k=draws.randint(1, 9))) for _ in range(300)]
    known = tokenizer(codes, extra=("a", "b"))
    for word, ids in zip(words, known.encode(words), strict=True):
        assert known.tokens(ids) == cut(word)
    text = " ".join(words)
    assert known.decode(known.encode([text])) == [text]


def test_symbols_have_the_ids_of_the_vocabulary(codes):
    known = tokenizer(codes, extra=("zzz",))
    assert known.tokens(range(8)) == [*SPECIAL_SYMBOLS, "a", "b", "ab", "aa"]
    assert known.vocabulary["zzz</w>"] == known.vocab_size - 1


def test_what_has_no_symbol_is_unknown_character_by_character(codes):
    known = tokenizer(codes, extra=("a",))
    assert known.tokens(known.encode(["xabyz a"])[0]) == ["<unk>", "ab", "<unk>", "<unk>", "a</w>"]


@pytest.mark.parametrize("text", ["<s>", "a</s>b", "<unk> <pad>"])
def test_text_that_spells_a_special_symbol_is_text(codes, text):
    words = word_tokenizer([*SPECIAL_SYMBOLS, "a", "[bos]"], special=["[bos]"])
    for known in (tokenizer(codes), words):
        (ids,) = known.encode([text])
        assert not {0, 1, 2} & set(ids)


def test_words_of_a_vocabulary():
    words = word_tokenizer([*SPECIAL_SYMBOLS, "low", "##er", "[bos]"], special=["[bos]"])
    (ids,) = words.encode(["low  ##er lower [bos]"])
    assert ids == [4, 5, 3, 3]
    assert words.decode([[6, 4, 5, 2]]) == ["low ##er"]


def test_fastbpe_counts_each_merge(tmp_path, codes):
    (tmp_path / "fast").write_text("".join(f"{left} {right} {100 - n}\n" for n, (left, right) in enumerate(MERGES)))
    assert read_codes(tmp_path / "fast") == read_codes(codes) == tuple(MERGES)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"#version: 0.1\na b\n", "only codes of '#version: 0.2'"),
        (b"a b\n", "subword-nmt's 0.1"),
        (b"#version: 0.2\na b\na b c\n", r"codes:3: 2 columns belong here"),
        (b"#version: 0.2\na \n", r"codes:2: 2 columns"),
        (b"a b 3\nc\n", r"codes:2: 3 columns"),
        (b"a\xff b 3\n", "no BPE codes"),
    ],
)
def test_damaged_codes(codes, content, message):
    codes.write_bytes(content)
    with pytest.raises(BadInputError, match=message):
        read_codes(codes)


def test_missing_codes(tmp_path):
    with pytest.raises(BadInputError, match="no such file of BPE codes"):
        read_codes(tmp_path / "codes")


def test_two_symbols_that_become_one(codes):
    with pytest.raises(BadInputError, match="two symbols of the vocabulary are 'ab'"):
        tokenizer(codes, extra=("ab@@",))
