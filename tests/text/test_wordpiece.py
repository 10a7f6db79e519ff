import pytest

from transduce.text import learn_tokenizer

LINES = ["unaffable unable affable un able", "“hug,” (pug) pun bun hugs."]


@pytest.fixture(scope="module")
def tokenizer():
    return learn_tokenizer("wordpiece", LINES * 5, 97)


def tokens(tokenizer, text):
    [ids] = tokenizer.encode([text])
    return tokenizer.tokens(ids)


def longest_match(vocabulary, word):
    """The definition, as an oracle."""
    pieces: list[str] = []
    while word:
        prefix = "##" if pieces else ""
        length = max((end for end in range(1, len(word) + 1) if prefix + word[:end] in vocabulary), default=0)
        if not length:
            return ["<unk>"]
        pieces.append(prefix + word[:length])
        word = word[length:]
    return pieces


@pytest.mark.parametrize(
    "word", ["unaffable", "affableun", "hugging", "pugs", "“un”", "h", "unx", "xun", "(able),", "€"]
)
def test_a_word_is_its_longest_pieces(tokenizer, word):
    assert tokens(tokenizer, word) == longest_match(tokenizer.vocabulary, word)


def test_frequent_words_become_one_piece(tokenizer):
    assert tokens(tokenizer, "affable un") == ["affable", "un"]


def test_words_come_back_with_one_space_and_their_punctuation(tokenizer):
    assert tokenizer.decode(tokenizer.encode([" “hug,”  (pug).\tun able"])) == ["“hug,” (pug). un able"]


def test_every_seen_character_is_known_wherever_it_stands(tokenizer):
    for character in set("".join("".join(LINES).split())):
        assert "<unk>" not in tokens(tokenizer, f"{character} u{character} {character}u")


def test_an_unseen_character_makes_its_word_unknown(tokenizer):
    assert tokens(tokenizer, "un h€ug un") == ["un", "<unk>", "un"]


@pytest.mark.parametrize("word", ["##", "##un", "###", "<s>", "</s>un", "<pad>,", "\ufdd0un", "\ufdd0", "#"])
def test_words_that_look_like_symbols_are_words(word):
    text = f"un {word} un"
    tokenizer = learn_tokenizer("wordpiece", [*LINES, "#<>/pads"], 120)
    assert min(tokenizer.encode([text])[0]) > 3
    assert tokenizer.decode(tokenizer.encode([text, word])) == [text, word]


def test_a_continuation_at_the_beginning_is_written_without_its_mark(tokenizer):
    assert tokenizer.decode([[tokenizer.vocabulary["##u"], tokenizer.vocabulary["##n"]]]) == ["un"]


def test_text_without_spaces_is_pieces_of_one_word():
    tokenizer = learn_tokenizer("wordpiece", ["我们在这里", "我们在那里"] * 5, 47)
    text = "我们这里那里" * 100
    [ids] = tokenizer.encode([text])
    assert 3 not in ids
    assert len(ids) < len(text)
    assert tokenizer.decode([ids]) == [text]


def test_a_word_may_have_1000_characters(tokenizer):
    assert "<unk>" not in tokens(tokenizer, "u" * 1000)
    assert tokens(tokenizer, "u" * 1001) == ["<unk>"]


def test_characters_leave_room_for_merges():
    # 4 + 2 for the guard, then both forms of (100 - 6) * 3 // 8 = 35 characters, then merges.
    lines = ["".join(map(chr, range(0x4E00, 0x4E00 + 200))), *["abab abab"] * 3]
    vocabulary = list(learn_tokenizer("wordpiece", lines, 100).vocabulary)
    characters = [token for token in vocabulary[4:] if len(token.removeprefix("##")) == 1]
    assert len(characters) == 2 + 2 * 35
    assert "abab" in vocabulary
