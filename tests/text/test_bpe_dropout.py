import gzip
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.config import BadInputError
from transduce.text import BpeDropout, dropout, learn_tokenizer

CORPORA = Path(__file__).parents[2].parent / "shared" / "corpora"
LINES = [
    "the quick brown fox jumps over the lazy dog, the other dogs jumped too",
    "zwölf Boxkämpfer jagen Viktor über den Sylter Deich; Boxkämpfer!",
    "in 1917  and  1918\t<s> <0x41> ...   !!!",
]
SYMBOLS = ("<de>", "<formal>", "cat")


@pytest.fixture(scope="module")
def tokenizer():
    return learn_tokenizer("bpe", LINES * 5, 607, SYMBOLS)


def encoded(tokenizer, lines):
    return [np.array(ids, dtype=np.int32) for ids in tokenizer.encode(lines)]


def segment(tokenizer, lines, probability, *, seed=1, epoch=1):
    dropped = BpeDropout(tokenizer, probability, seed).segment(encoded(tokenizer, lines), epoch, range(len(lines)))
    return [ids.tolist() for ids in dropped]


TEXTS = [
    *LINES,
    "",
    " ",
    "<de> the €uro <formal>",
    "dog dogs\t<de>  🙂 x",
    "Boxkämpfer" * 3,
    "   a  ż  ż ",
    "\u2028 \x00",
]


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_the_text_stays_the_same(tokenizer, probability):
    for epoch in range(20):
        assert tokenizer.decode(segment(tokenizer, TEXTS, probability, epoch=epoch)) == TEXTS


@given(text=st.text(st.characters(exclude_categories=["Cs"])), probability=st.sampled_from([0.1, 0.5, 1.0]))
def test_any_text_stays_the_same(tokenizer, text, probability):
    assert tokenizer.decode(segment(tokenizer, [text, f"<de> {text}"], probability)) == [text, f"<de> {text}"]


def test_without_dropout_nothing_changes(tokenizer):
    assert segment(tokenizer, TEXTS, 0.0) == tokenizer.encode(TEXTS)


def test_the_smallest_dropout_changes_hardly_anything(tokenizer):
    """So the merges, which are done here anew, are those of the library."""
    assert segment(tokenizer, TEXTS, 1e-12) == tokenizer.encode(TEXTS)


def test_full_dropout_leaves_characters_bytes_and_symbols(tokenizer):
    [ids, symbols] = segment(tokenizer, ["the €", "<de> cat the"], 1.0)
    assert tokenizer.tokens(ids) == [" ", "t", "h", "e", " ", "<0xE2>", "<0x82>", "<0xAC>"]
    assert tokenizer.tokens(symbols) == [" <de>", " cat", " ", "t", "h", "e"]


def test_full_dropout_leaves_nothing_merged(tokenizer):
    for text, ids in zip(LINES[:2], segment(tokenizer, LINES[:2], 1.0), strict=True):
        assert tokenizer.tokens(ids) == list(f" {text}")


def test_what_stands_beside_a_symbol_is_segmented(tokenizer):
    [ids] = segment(tokenizer, ["the\t<de>"], 1.0)
    assert tokenizer.tokens(ids) == [" ", "t", "h", "e", "\t", "<de>"]


def test_symbols_stay_whole(tokenizer):
    for epoch in range(50):
        for ids in segment(tokenizer, ["<de> the dog <formal>", "the\t<de>"], 0.5, epoch=epoch):
            tokens = [token.strip() for token in tokenizer.tokens(ids)]
            assert {"<de>"} <= set(tokens)
            assert "<" not in tokens


def test_special_symbols_stay(tokenizer):
    ids = [1, *tokenizer.encode(["the fox"])[0], 2, 0, 3, *tokenizer.encode(["fox"])[0], 2]
    [dropped] = BpeDropout(tokenizer, 1.0, 1).segment([ids], 1, [0])
    assert [index for index in dropped if index < 4] == [1, 2, 0, 3, 2]
    assert len(dropped) == 5 + len(" the fox fox")


def test_ids_that_no_text_has_stay(tokenizer):
    vocabulary = tokenizer.vocabulary
    odd = [
        [vocabulary["<0xE2>"]],
        [vocabulary["t"], vocabulary["h"], vocabulary["e"]],
        [vocabulary[" t"], vocabulary["he"]],
    ]
    dropped = BpeDropout(tokenizer, 1.0, 1).segment(odd, 1, range(3))
    assert [ids.tolist() for ids in dropped] == odd


@pytest.mark.parametrize("probability", [0.1, 0.4])
def test_the_only_merge_is_left_out_as_often_as_told(probability):
    """Of many words with one possible merge each, a space and a letter."""
    letters = [chr(code) for code in range(0x4E00, 0x4E00 + 399)]
    tokenizer = learn_tokenizer("bpe", [f"{letter} {letter}" for letter in letters] * 2, 260 + 801)
    assert tokenizer.vocab_size == 260 + 400 + 399
    counts = Counter(map(len, segment(tokenizer, letters * 50, probability)))
    assert set(counts) == {1, 2}
    # 399 words are asked for 50 times, each of 64 draws: as good as 11,000 independent ones. Four standard deviations.
    assert counts[2] / (399 * 50) == pytest.approx(
        probability, abs=4 * (probability * (1 - probability) / 11_000) ** 0.5
    )


def test_outcomes_are_as_likely_as_in_the_paper():
    """Merges ab (rank 0), bc (1), abc (2 = ab + c), by hand: p = 1/2.

    From a b c, with two possible merges: ab is taken with 1/2, else bc with 1/4, else nothing, 1/4. After ab, abc is
    taken with 1/2. So abc: 1/4, ab c: 1/4, a bc: 1/4, a b c: 1/4.
    """
    tokenizer = learn_tokenizer("bpe", ["\tab"] * 40 + ["\tbc"] * 20 + ["\tabc"] * 10, 260 + 5 + 3)
    merges = json.loads(tokenizer.to_json())["model"]["merges"]
    assert [[*map(str, merge)] for merge in merges] == [["a", "b"], ["b", "c"], ["ab", "c"]]
    counts: Counter[str] = Counter()
    for seed in range(60):
        for ids in segment(tokenizer, ["\tabc"] * 64, 0.5, seed=seed):
            counts["|".join(tokenizer.tokens(ids)[2:])] += 1
    assert set(counts) == {"abc", "ab|c", "a|bc", "a|b|c"}
    for count in counts.values():  # 60 x 64 draws, of which some 63 percent are different ones
        assert count / 3840 == pytest.approx(0.25, abs=4 * (0.25 * 0.75 / 2400) ** 0.5)


def test_the_draw_depends_on_seed_epoch_and_row_only(tokenizer):
    lines = [*LINES * 8]
    ids, rows = encoded(tokenizer, lines), np.arange(100, 124)
    one = [line.tolist() for line in BpeDropout(tokenizer, 0.3, 7).segment(ids, 5, rows)]
    other = BpeDropout(tokenizer, 0.3, 7)
    other.segment(ids[::2], 1, rows[::2])  # other questions before, another order, other batches
    order = np.random.default_rng(1).permutation(24)
    shuffled = [
        line.tolist() for part in np.split(order, 4) for line in other.segment([ids[i] for i in part], 5, rows[part])
    ]
    assert [shuffled[place] for place in np.argsort(order)] == one
    for changed in (
        BpeDropout(tokenizer, 0.3, 8).segment(ids, 5, rows),
        other.segment(ids, 6, rows),
        other.segment(ids, 5, rows + 1),
    ):
        assert [line.tolist() for line in changed] != one


def test_equal_words_are_drawn_apart(tokenizer):
    [ids] = segment(tokenizer, [" ".join(["jumps"] * 64)], 0.5)
    tokens = "".join(f"|{token}" for token in tokenizer.tokens(ids))
    assert len(set(tokens.split("| "))) > 4


def test_forgetting_changes_nothing(tokenizer, monkeypatch):
    ids = encoded(tokenizer, LINES)
    kept = BpeDropout(tokenizer, 0.3, 1)
    expected = [[line.tolist() for line in kept.segment(ids, epoch, range(3))] for epoch in range(9)]
    monkeypatch.setattr(dropout, "_KEPT", 5)
    forgetful = BpeDropout(tokenizer, 0.3, 1)
    assert [[line.tolist() for line in forgetful.segment(ids, epoch, range(3))] for epoch in range(9)] == expected
    assert len(forgetful._drawn) < len(kept._drawn)


def test_very_long_words_stay(tokenizer):
    lines = ["the" * 50_000, "the " + "=" * 3000]
    assert segment(tokenizer, lines, 0.9)[0] == tokenizer.encode(lines[:1])[0]
    assert tokenizer.decode(segment(tokenizer, lines, 0.9)) == lines


def test_empty_batches_stay_empty(tokenizer):
    dropped = BpeDropout(tokenizer, 0.5, 1)
    assert dropped.segment([], 1, []) == []
    [nothing, something] = dropped.segment([np.zeros(0, np.int32), *encoded(tokenizer, ["a"])], 1, [0, 1])
    assert nothing.tolist() == []
    assert nothing.dtype == something.dtype == np.int32


@pytest.mark.parametrize("kind", ["wordpiece", "words", "characters"])
def test_other_tokenizers_are_refused(kind):
    with pytest.raises(BadInputError, match="BPE-dropout is for tokenizers of kind bpe"):
        BpeDropout(learn_tokenizer(kind, LINES, 400), 0.1, 1)


@pytest.mark.parametrize("probability", [-0.1, 1.1, float("nan")])
def test_what_is_no_probability_is_refused(tokenizer, probability):
    with pytest.raises(BadInputError, match="is no probability"):
        BpeDropout(tokenizer, probability, 1)


PROGRAM = """
from transduce.text import BpeDropout, learn_tokenizer
lines = ["the quick brown fox jumps over the lazy dog", "the other dogs jumped"] * 3
tokenizer = learn_tokenizer("bpe", lines, 400)
print([ids.tolist() for ids in BpeDropout(tokenizer, 0.4, 3).segment(tokenizer.encode(lines), 2, range(6))])
"""


def test_the_same_draw_in_every_process():
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


@pytest.mark.skipif(not CORPORA.is_dir(), reason=f"{CORPORA} is not there")
def test_real_text_stays_the_same_and_grows_by_a_quarter():
    lines = gzip.decompress((CORPORA / "multi30k" / "train.en.gz").read_bytes()).decode().split("\n")[:5000]
    tokenizer = learn_tokenizer("bpe", lines, 4000)
    dropped = segment(tokenizer, lines, 0.1)
    assert tokenizer.decode(dropped) == lines
    assert sum(map(len, dropped)) / sum(map(len, tokenizer.encode(lines))) == pytest.approx(1.25, abs=0.06)
