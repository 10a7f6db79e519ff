"""What every kind of learned tokenizer keeps."""

import subprocess
import sys
from dataclasses import astuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.config import BadInputError
from transduce.text import Tokenizer, learn_tokenizer
from transduce.text.symbols import BYTES
from transduce.text.tokenizer import SPECIAL_SYMBOLS

KINDS = ["bpe", "wordpiece", "words", "characters"]
SYMBOLS = (
    "<de>",
    "<bt>",
    "<formal>",
    "formal",
    "[x].*",
    "&&",
    "^a$",
    "(?",
    "{2}",
    "\\d",
    "|",
    "é",
    "🙂",
    "<a><b>",
    "<a>",
)
LINES = [
    "the formal rule <s> is </s> as informal as the formality",
    "2 < 3 > 1, [x]. ## #a ##b <pad> <unk> é 🙂 a|b (? {2} \\d ^a$ && x",
]
# Each kind has some of these in its vocabulary, whatever the symbols.
WORDS = [*SPECIAL_SYMBOLS, *SYMBOLS, "<0x41>", "##", "##a", "the", "a", "\ufdd0", "\ufdd0<s>"]


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def tokenizer(kind):
    return learn_tokenizer(kind, LINES * 3, 1009, SYMBOLS)


def one(tokenizer, text):
    [ids] = tokenizer.encode([text])
    return ids


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_a_symbol_is_one_token_and_comes_back(tokenizer, symbol):
    assert len(one(tokenizer, symbol)) == 1
    for text in (symbol, f"{symbol} the", f"the {symbol}", f"the {symbol} the", f"{symbol} {symbol} <bt> the {symbol}"):
        assert tokenizer.decode([one(tokenizer, text)]) == [text]
        assert sum(token.strip() == symbol for token in tokenizer.tokens(one(tokenizer, text))) == text.count(symbol)


def test_a_symbol_costs_one_token_at_the_beginning_of_a_line(tokenizer, kind):
    space = 1 if kind == "characters" else 0
    assert len(one(tokenizer, "<de> the formal")) == 1 + space + len(one(tokenizer, "the formal"))


def test_a_symbol_is_one_token_after_other_white_space(tokenizer):
    tokens = tokenizer.tokens(one(tokenizer, "the\t<de>\u2028<bt>  <bt>\t"))
    assert [token.strip() for token in tokens if token.strip() in SYMBOLS] == ["<de>", "<bt>", "<bt>"]


@pytest.mark.parametrize(
    "text", ["a<de>", "<de>a", "<de>,", "<de><bt>", "a<de>a", "<bt", "formality", "informal", "<a><b><b>"]
)
def test_what_only_contains_a_symbol_is_text(tokenizer, text):
    ids = {tokenizer.vocabulary.get(form) for symbol in SYMBOLS if len(symbol) > 1 for form in (symbol, f" {symbol}")}
    assert not ids & set(one(tokenizer, text))
    assert not ids & set(one(tokenizer, f"the {text} the"))


@settings(max_examples=300)
@given(words=st.lists(st.sampled_from(WORDS), min_size=1), joint=st.sampled_from([" ", "", "  ", "\t"]))
def test_text_never_becomes_a_special_symbol(words, joint):
    text = joint.join(words)
    for tokenizer in _learned():
        [ids] = tokenizer.encode([text])
        assert not {tokenizer.special.pad, tokenizer.special.begin, tokenizer.special.end} & set(ids)
        if tokenizer.special.unknown not in ids:
            returned = tokenizer.decode([ids])[0]
            assert returned in (text, " ".join(text.split()))


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_can_be_encoded(text):
    for tokenizer in _learned():
        tokenizer.decode(tokenizer.encode([text, f"<de> {text} <bt>"]))


_memory: list[Tokenizer] = []


def _learned():
    if not _memory:
        _memory.extend(learn_tokenizer(kind, LINES * 3, 1009, SYMBOLS) for kind in KINDS)
    return _memory


def test_ids_have_no_gaps(tokenizer):
    vocabulary = tokenizer.vocabulary
    assert list(vocabulary.values()) == list(range(tokenizer.vocab_size))
    assert list(vocabulary)[:4] == list(SPECIAL_SYMBOLS)
    assert tokenizer.tokens(range(tokenizer.vocab_size)) == list(vocabulary)
    assert astuple(tokenizer.special) == (0, 1, 2, 3)


def test_a_loaded_one_is_the_same(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    texts = [*LINES, "<de> unseen <s> ü", " ".join(WORDS)]
    assert loaded.encode(texts) == tokenizer.encode(texts)
    assert loaded.decode(loaded.encode(texts)) == tokenizer.decode(tokenizer.encode(texts))
    assert loaded.to_json() == tokenizer.to_json()


def test_a_symbol_does_not_change_other_text(kind):
    plain = learn_tokenizer(kind, LINES * 3, 500)
    # In BPE a symbol takes two rows.
    tagged = learn_tokenizer(
        kind, [f"<de> {line} <bt>" for line in LINES * 3], 504 if kind == "bpe" else 502, ["<de>", "<bt>"]
    )
    for text in [*LINES, "unseen ü", "the formal rule"]:
        assert tagged.tokens(one(tagged, text)) == plain.tokens(one(plain, text))


def test_special_symbols_vanish_from_text(tokenizer):
    ids = one(tokenizer, "the formal")
    assert tokenizer.decode([[1, *ids, 2, 0, 0], [0, 1, 2, 3]]) == ["the formal", ""]


@pytest.mark.parametrize("symbol", [*SPECIAL_SYMBOLS, "<0x41>", "##ing", "##", "", " ", "two words", "a\t"])
def test_what_cannot_be_a_symbol_is_named(kind, symbol):
    with pytest.raises(BadInputError, match=r"symbol") as caught:
        learn_tokenizer(kind, LINES, 1009, ["<de>", symbol])
    assert repr(symbol) in str(caught.value)


def test_a_vocabulary_too_small_for_its_symbols_is_refused(kind):
    symbols = [f"<{number}>" for number in range(100)]
    fixed = {"bpe": 4 + 256 + 200, "characters": 4 + 256 + 100, "words": 4 + 100, "wordpiece": 4 + 100 + 3}[kind]
    with pytest.raises(
        BadInputError, match=f"vocab_size = {fixed} is too small.* 100 symbols .*give {fixed + 1} or more"
    ):
        learn_tokenizer(kind, LINES, fixed, symbols)
    assert learn_tokenizer(kind, LINES, fixed + 1, symbols).vocab_size == fixed + 1


def test_the_size_of_the_vocabulary_is_a_limit(kind):
    words = "".join(map(chr, range(0x4E00, 0x4E00 + 997)))
    lines = [" ".join(words[start : start + 7] for start in range(0, len(words), 2))] * 2
    for limit in (300, 311, 347):
        assert learn_tokenizer(kind, lines, limit, ["<de>"]).vocab_size == limit


def test_no_text_leaves_what_is_fixed(kind):
    fixed = {"bpe": 260, "characters": 260, "words": 4, "wordpiece": 6}[kind]  # WordPiece: the guard's two forms
    assert learn_tokenizer(kind, [], 997).vocab_size == fixed


def test_lines_may_come_from_an_iterator(kind):
    assert learn_tokenizer(kind, iter(LINES), 400).to_json() == learn_tokenizer(kind, LINES, 400).to_json()


def test_lines_are_gone_through_at_most_twice(kind):
    class Counted:
        times = 0

        def __iter__(self):
            self.times += 1
            return iter(LINES)

    lines = Counted()
    learn_tokenizer(kind, lines, 400)
    assert lines.times <= 2


@pytest.mark.parametrize("run", ["=", "ab", "\u4e00\u4e01"])
def test_nothing_is_learned_from_a_run_of_characters_that_is_no_word(kind, run):
    """Learning from it would take a time that grows with the square of its length. All of its characters are known."""
    if kind in {"words", "characters"}:
        pytest.skip("nothing of a word is learned")
    begin, wide = ("", "##") if kind == "wordpiece" else (" ", "")
    for length, learned in ((900, True), (1100, False)):
        lines = [*LINES, f"the {run * (length // len(run))} formal"] * 2
        tokenizer = learn_tokenizer(kind, lines, 1009, SYMBOLS)
        merged = {begin + run * 2, wide + run * 2} & tokenizer.vocabulary.keys()
        assert bool(merged) == learned
        assert {run[0], run[-1]} <= tokenizer.vocabulary.keys()
        texts = [run * 3, *lines]
        returned = tokenizer.decode(tokenizer.encode(texts))
        assert returned[0] == texts[0]
        if kind == "bpe":
            assert returned == texts


def test_what_stands_beside_it_is_learned_as_ever(kind):
    """Of long lines of ordinary words, everything."""
    words = [f"{first}{second}" for first in "abcdefg" for second in ("", "x", "xy", "xyz,", "!")]
    alone = learn_tokenizer(kind, [*words, "="] * 30, 1009).vocabulary.keys()
    assert learn_tokenizer(kind, [" ".join(words * 30), *["="] * 30], 1009).vocabulary.keys() - {" "} == alone - {" "}
    if kind in {"bpe", "wordpiece"}:
        beside = [f"{word} {'=' * 1001}  {'=' * 1001} " for word in words]
        assert learn_tokenizer(kind, [*beside, *words * 29, *["="] * 30], 1009).vocabulary.keys() == alone


PROGRAM = """
import hashlib
from transduce.text import learn_tokenizer
# Many equally frequent characters, words and pairs: what is kept must not be left to chance.
lines = ["".join(chr(first + offset) for offset in range(7)) + " ab" * 3 for first in range(0x4E00, 0x4E00 + 700, 5)]
lines += [f"{chr(97 + i % 26)}{chr(97 + i // 26)} <de> x{i}y {i}z{i}" for i in range(600)]
for kind in ("bpe", "wordpiece", "words", "characters"):
    print(hashlib.sha256(learn_tokenizer(kind, lines, 707, ["<de>"]).to_json().encode()).hexdigest())
"""


def test_the_same_lines_give_the_same_bytes_in_every_process():
    outputs = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    ]
    assert len(set(outputs[0].split())) == len(KINDS)
    assert len(set(outputs)) == 1


def test_byte_names_are_ordinary_symbols(kind):
    if kind in ("bpe", "characters"):
        assert [learn_tokenizer(kind, [], 400).vocabulary[name] for name in BYTES] == list(range(4, 260))
