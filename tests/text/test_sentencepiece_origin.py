"""The SentencePiece model that a tokenizer was made of comes out again, and cuts as the first one did."""

import random

import pytest
import sentencepiece as spm

from tests.two_spm import SIDES, learn, sentences
from transduce.text import (
    Tokenizer,
    import_sentencepiece,
    learn_bpe,
    read_sentencepiece,
    sentencepiece_in,
    sentencepiece_over,
    text_pieces,
    whole_sentencepiece,
    write_sentencepiece,
)
from transduce.text.tokenizer import SPECIAL_SYMBOLS

VARIANTS = {
    "unigram": {},
    "unigram as it is": {
        "normalization_rule_name": "identity",
        "add_dummy_prefix": False,
        "remove_extra_whitespaces": False,
    },
    "unigram of bytes": {"byte_fallback": True, "vocab_size": 400, "hard_vocab_limit": False},
    "small letters": {"normalization_rule_name": "nmt_nfkc_cf"},
    "bpe": {"model_type": "bpe"},
    "bpe of bytes": {"model_type": "bpe", "byte_fallback": True, "vocab_size": 400},
    "as Marian has it": {"eos_id": 0, "unk_id": 1, "bos_id": -1},
}
TEXTS = [*sentences("source", 30, seed=3), "Ｂａ  do ﬁ ☃", "  ba▁do ", "中国 bado", "BA Do e\u0301"]


def train(folder, **changes):
    options = {"vocab_size": 120, "character_coverage": 1.0, "minloglevel": 2} | changes
    lines = iter(sentences("source", 400))
    spm.SentencePieceTrainer.train(sentence_iterator=lines, model_prefix=str(folder / "m"), **options)
    return folder / "m.model"


def cut(path, text):
    return spm.SentencePieceProcessor(str(path)).encode(text, out_type=str)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_model_that_is_the_vocabulary(tmp_path, name):
    path = train(tmp_path, **VARIANTS[name])
    tokenizer = import_sentencepiece(path)
    found = whole_sentencepiece(tokenizer)
    assert found is not None
    write_sentencepiece(found, tmp_path / "again.model")
    assert [cut(tmp_path / "again.model", text) for text in TEXTS] == [cut(path, text) for text in TEXTS]
    theirs = spm.SentencePieceProcessor(str(tmp_path / "again.model"))
    assert (theirs.eos_id(), theirs.unk_id(), theirs.bos_id(), theirs.pad_id()) == (0, 1, -1, -1)
    again = import_sentencepiece(tmp_path / "again.model")
    assert again.to_json() == tokenizer.to_json()
    # What was stored and read again is the same.
    tokenizer.save(tmp_path / "tokenizer.json")
    assert whole_sentencepiece(Tokenizer.load(tmp_path / "tokenizer.json")) == found
    assert sentencepiece_in(tokenizer) is None


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_model_of_which_the_vocabulary_has_more(tmp_path, kind):
    learn(tmp_path, kind)
    models = [read_sentencepiece(tmp_path / f"{side}.spm") for side in SIDES]
    pieces = [piece for model in models for piece in text_pieces(model)]
    random.Random(1).shuffle(pieces)
    symbols = [*dict.fromkeys([*SPECIAL_SYMBOLS, ">>fra<<", "<bos>", *pieces])]
    for side, model in zip(SIDES, models, strict=True):
        tokenizer = sentencepiece_over(model, symbols, [">>fra<<"], ["<bos>"])
        found = sentencepiece_in(tokenizer)
        assert found is not None
        write_sentencepiece(found, tmp_path / "again.spm")
        assert [cut(tmp_path / "again.spm", text) for text in TEXTS] == [
            cut(tmp_path / f"{side}.spm", text) for text in TEXTS
        ]
        tokenizer.save(tmp_path / "tokenizer.json")
        assert sentencepiece_in(Tokenizer.load(tmp_path / "tokenizer.json")) == found
        again = sentencepiece_over(read_sentencepiece(tmp_path / "again.spm"), symbols, [">>fra<<"], ["<bos>"])
        assert again.to_json() == tokenizer.to_json()
        assert whole_sentencepiece(tokenizer) is None


def test_what_was_made_otherwise(tmp_path):
    lines = sentences("source", 100)
    with_symbols = import_sentencepiece(train(tmp_path), ["<de>"])
    with_own = import_sentencepiece(train(tmp_path, user_defined_symbols=["<sep>"]))
    for tokenizer in (learn_bpe(lines, 400), with_symbols, with_own):
        assert whole_sentencepiece(tokenizer) is None
        assert sentencepiece_in(tokenizer) is None
