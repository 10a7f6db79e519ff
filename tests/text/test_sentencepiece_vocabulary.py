"""Two SentencePiece models over one vocabulary; SentencePiece's pieces, looked up in the vocabulary, are the oracle."""

import random

import pytest
import sentencepiece as spm

from tests.two_spm import SIDES, learn, pieces_of, sentences
from transduce.config import BadInputError
from transduce.text import Tokenizer, TokenizerPair, read_sentencepiece, sentencepiece_over
from transduce.text.tokenizer import SPECIAL_SYMBOLS

pytest_plugins = ["two_spm"]

CODES = (">>fra<<", ">>deu_Latn<<")
UNKNOWN = 3
ODD = [
    "",
    "  ",
    "  ba  do ",
    "<s> ba </s> <unk> <pad>",
    "中国 中 国 中国中 ba中国",
    "ж жж жжж baж",
    "ä äö öä baä Ä",
    "☃ ☃☃ ba☃do",
    "▁ba do▁",
    "<bos> <unused 7>",
]


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def folder(request, tmp_path_factory):
    place = tmp_path_factory.mktemp(request.param)
    learn(place, request.param)
    return place


def symbols_of(folder, left_out=()):
    pieces = dict.fromkeys(piece for side in SIDES for piece in pieces_of(folder / f"{side}.spm"))
    return [*SPECIAL_SYMBOLS, *(piece for piece in pieces if piece not in left_out), *CODES, "<bos>"]


def tokenizer(folder, side, symbols=None):
    return sentencepiece_over(
        read_sentencepiece(folder / f"{side}.spm"), symbols or symbols_of(folder), CODES, ("<bos>",)
    )


def joined(count, seed):
    """Words of both languages put together at random."""
    draws = random.Random(seed)
    words = [word for side in SIDES for text in sentences(side, 50) for word in text.split()]
    return ["".join(draws.choices([*words, " ", "中", "ß", "ж"], k=4)) for _ in range(count)]


@pytest.mark.parametrize("side", SIDES)
def test_a_text_has_the_pieces_of_its_model_with_the_ids_of_the_vocabulary(folder, side):
    oracle = spm.SentencePieceProcessor(str(folder / f"{side}.spm"))
    ids = {symbol: index for index, symbol in enumerate(symbols_of(folder))}
    texts = [*ODD, *joined(200, 3), *(text for each in SIDES for text in sentences(each, 100, seed=7))]
    pieces = oracle.encode(texts, out_type=str)
    if "bpe" in str(folder):  # which looks up characters alone
        own = {*pieces_of(folder / f"{side}.spm")}
        pieces = [[each if each in own or len(each) == 1 else "" for each in several] for several in pieces]
    expected = [[ids.get(piece, UNKNOWN) for piece in several] for several in pieces]
    assert tokenizer(folder, side).encode(texts) == expected
    assert sum(UNKNOWN in each for each in expected) > 2


def test_a_run_that_the_model_does_not_know_is_looked_up_whole(spm_folder):
    source, symbols = tokenizer(spm_folder, "source"), symbols_of(spm_folder)
    assert "中国" in symbols and "中" in symbols
    (run, longer) = source.encode(["中国", "中国中中"])
    assert [symbols[index] for index in run] == ["▁", "中国"]
    assert [symbols[index] for index in longer] == ["▁", "<unk>"]


def test_every_symbol_becomes_the_text_that_its_own_model_makes_of_it(folder):
    symbols = symbols_of(folder)
    for side in SIDES:
        texts = sentences(side, 50, seed=5)
        known = tokenizer(folder, side)
        assert known.decode(known.encode(texts)) == texts
        # And the other side's pieces become text, too.
        every = [[index] for index in range(len(SPECIAL_SYMBOLS), len(symbols) - 1)]
        assert known.decode(every) == [symbols[index].replace("▁", " ").strip(" ") for (index,) in every]


def test_a_code_is_read_and_what_comes_behind_it_is_a_text_of_its_own(folder):
    known, symbols = tokenizer(folder, "source"), symbols_of(folder)
    (plain, spaced, joined, alone, unknown) = known.encode(
        ["ba do", ">>fra<< ba do", ">>deu_Latn<<ba do", ">>fra<<", ">>eng<< ba"]
    )
    assert spaced == [symbols.index(">>fra<<"), *plain]
    assert joined == [symbols.index(">>deu_Latn<<"), *plain]
    assert alone == [symbols.index(">>fra<<")]
    assert not {symbols.index(code) for code in CODES} & {*unknown}


def test_both_share_the_vocabulary_and_come_back_from_their_files(spm_folder, tmp_path):
    pair = TokenizerPair(*(tokenizer(spm_folder, side) for side in SIDES))
    assert pair.shared
    pair.save(tmp_path)
    loaded = TokenizerPair.load(tmp_path)
    assert isinstance(loaded.source, Tokenizer)
    assert loaded.sizes() == {"vocab_size": len(symbols_of(spm_folder))}
    assert loaded.source.encode(ODD) == pair.source.encode(ODD) != pair.target.encode(ODD)


def test_a_piece_without_an_id_is_refused(spm_folder):
    piece = pieces_of(spm_folder / "source.spm")[-1]
    with pytest.raises(BadInputError, match="is missing from the vocabulary"):
        tokenizer(spm_folder, "source", symbols_of(spm_folder, {piece}))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"byte_fallback": True, "vocab_size": 400}, "spells what it does not know in bytes"),
        ({"user_defined_symbols": ["<sep>"]}, "symbols of its user's"),
    ],
)
def test_what_goes_with_no_vocabulary_is_refused(tmp_path, settings, complaint):
    (tmp_path / "text").write_text("\n".join(sentences("source", 300)))
    spm.SentencePieceTrainer.train(
        input=str(tmp_path / "text"), model_prefix=str(tmp_path / "m"), minloglevel=2, **{"vocab_size": 80, **settings}
    )
    stored = read_sentencepiece(tmp_path / "m.model")
    with pytest.raises(BadInputError, match=complaint):
        sentencepiece_over(stored, [*SPECIAL_SYMBOLS, *pieces_of(tmp_path / "m.model")])
