"""Unknown symbols: which tokenizers have them, where a token stands in its text, outputs with words in their place."""

import time

import pytest

from transduce.text import Tokenizer, fill_unknown, learn_tokenizer, look_up, word_at

LINES = ["the dog sees the house", "a cat sees a dog ##x"]
WORDS = learn_tokenizer("words", LINES, 20)


@pytest.mark.parametrize(
    ("kind", "size", "known"),
    [("words", 20, False), ("wordpiece", 60, False), ("bpe", 320, True), ("characters", 320, True)],
)
def test_what_spells_in_bytes_knows_every_text(kind, size, known):
    assert learn_tokenizer(kind, LINES, size).knows_all is known


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("the Zebra sees  the\tÜnfug", ["the", "Zebra", "sees", "the", "Ünfug"]),
        ("  Zebra <unk> ##x <s> \u3000dog", ["Zebra", "<unk>", "##x", "<s>", "dog"]),
    ],
)
def test_a_token_of_a_word_is_that_word_of_the_text(text, words):
    """Whatever stands between the words, and what would be read as a special symbol too."""
    assert [word_at(text, span) for span in WORDS.spans(text)] == words


def test_the_parts_of_a_word_are_in_that_word():
    tokenizer = learn_tokenizer("bpe", LINES, 320)
    text = "the Zebra, Ünfug"
    (ids,) = tokenizer.encode([text])
    spans = tokenizer.spans(text)
    assert len(spans) == len(ids)
    found = [word_at(text, span) for span in spans]
    assert set(found) - {""} == {"the", "Zebra,", "Ünfug"}
    assert [word for word, before in zip(found, ["", *found[:-1]], strict=True) if word and word != before] == [
        "the", "Zebra,", "Ünfug",
    ]  # fmt: skip
    # A space with a symbol of its own is in no word.
    assert all((word == "") is (not text[slice(*span)].strip()) for word, span in zip(found, spans, strict=True))


def test_without_spaces_a_word_is_what_the_symbol_covers():
    text = "我在Zürich见到陈喆。"
    assert word_at(text, (1, 2)) == "在"
    assert word_at(text, (2, 4)) == "Zürich"
    assert word_at(text, (10, 12)) == "陈喆"
    assert word_at(text, (1, 4)) == "在"  # the first of two
    assert word_at(" ", (0, 1)) == ""


def test_time_grows_with_the_size():
    text, began = "word " * 80_000, time.process_time()
    assert {word_at(text, (start, start + 4)) for start in range(0, len(text), 5)} == {"word"}
    assert time.process_time() - began < 10


def test_words_take_the_place_of_unknown_symbols():
    unknown, (the, dog) = WORDS.special.unknown, WORDS.encode(["the dog"])[0]
    ids = [the, unknown, WORDS.special.pad, dog, unknown, unknown]
    assert WORDS.decode([ids]) == ["the dog"]
    assert fill_unknown(WORDS, [ids], ["Zebra", "##x", "<unk>"]) == ["the Zebra dog ##x <unk>"]
    assert fill_unknown(WORDS, [ids[:end] for end in (1, 2, 5)], ["New York", "a", "b"]) == [
        "the", "the New York", "the New York dog a",
    ]  # fmt: skip
    assert fill_unknown(WORDS, [[the, dog]], []) == ["the dog"]
    assert fill_unknown(WORDS, [[unknown]], [r"\1"]) == [r"\1"]


@pytest.mark.parametrize(
    ("symbols", "words", "text"),
    [
        (["▁a", "▁", "<unk>", "▁b"], ["Zebra"], "a Zebra b"),
        (["▁a", "▁Zu", "<unk>", "ri", "<unk>", "▁b"], ["Zürich", "-"], "a Zürich b"),
        (["▁a", "▁我", "<unk>", "见", "<unk>"], ["Zhe", "Chen"], "a 我Zhe见Chen"),
        (["<unk>"], ["Zürich"], "Zürich"),
    ],
)
def test_of_parts_of_words_the_whole_word_is_replaced(pieces, symbols, words, text):
    """But where words are written without spaces, only what is unknown."""
    vocabulary = pieces.vocabulary
    assert fill_unknown(pieces, [[vocabulary[symbol] for symbol in symbols]], words) == [text]


@pytest.fixture
def pieces():
    """A tokenizer as SentencePiece's are, with pieces of words and an unknown symbol."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models

    names = ["<pad>", "<s>", "</s>", "<unk>", "▁", "▁a", "▁b", "▁Zu", "ri", "▁我", "见"]
    backend = Backend(models.Unigram([(name, 0.0) for name in names], 3, False))
    backend.decoder = decoders.Metaspace()
    return Tokenizer(backend)


def test_a_character_that_stands_for_the_unknown_may_stand_in_the_text():
    tokenizer = learn_tokenizer("words", ["\ufdd1 b"], 10)
    (ids,) = tokenizer.encode(["\ufdd1 x b"])
    assert fill_unknown(tokenizer, [ids], ["y"]) == ["\ufdd1 y b"]


def test_the_dictionary_knows_words_with_punctuation_around_them():
    entries = {"Zebra": "Zebraeus", "e.g.": "z.B.", "dog": "Hund"}
    assert [look_up(word, entries) for word in ("Zebra", "(Zebra),", "e.g.", "Zebras", "--", "„dog“")] == [
        "Zebraeus", "(Zebraeus),", "z.B.", "Zebras", "--", "„Hund“",
    ]  # fmt: skip
