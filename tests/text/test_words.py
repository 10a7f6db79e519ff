import pytest

from transduce.text import learn_tokenizer


def tokens(tokenizer, text):
    [ids] = tokenizer.encode([text])
    return tokenizer.tokens(ids)


@pytest.fixture(scope="module")
def words():
    return learn_tokenizer("words", ["b a c a", "c b! a", "d"], 8)


def test_the_most_frequent_words_come_first_and_ties_by_code_point(words):
    # Three a, two c, then "b", "b!" and "d", once each.
    assert list(words.vocabulary)[4:] == ["a", "c", "b", "b!"]


def test_what_is_not_in_the_vocabulary_is_unknown(words):
    assert tokens(words, "a d b B") == ["a", "<unk>", "b", "<unk>"]


def test_words_come_back_with_one_space(words):
    assert words.decode(words.encode([" a  b!\tc "])) == ["a b! c"]
    assert words.encode(["", "  "]) == [[], []]


def test_words_that_look_like_symbols_are_words():
    lines = ["<s> ##a </s> <unk> \ufdd0 \ufdd0<s>"] * 2
    tokenizer = learn_tokenizer("words", lines, 100)
    [ids] = tokenizer.encode(lines[:1])
    assert min(ids) > 3
    assert tokenizer.decode([ids]) == lines[:1]


def test_symbols_are_not_counted_as_words():
    tokenizer = learn_tokenizer("words", ["<de> a <de> b"], 7, ["<de>"])
    assert list(tokenizer.vocabulary)[4:] == ["<de>", "a", "b"]
