"""SentencePiece's own library is the oracle: the same pieces, and the same text back."""

import random
import sys
import unicodedata

import pytest
import sentencepiece as spm
from tokenizers import normalizers

from transduce.config import BadInputError, TransduceError
from transduce.text import Tokenizer, import_sentencepiece
from transduce.text.sentencepiece import character_rules

ONSETS, VOWELS, CODAS = (
    ["b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "st", "tr", "sch"],
    ["a", "e", "i", "o", "u", "ä", "ö", "ei", "au", "é"],
    ["", "n", "r", "s"],
)
MARKS = [",", ".", "!", " –", " (a)", ": 12,5 %", " „so“"]

ODD = [
    "",
    " ",
    "  ",
    "\t",
    "\n",
    "a  b",
    "  ba  do  ",
    "ba\tdo",
    "\u3000ba\u3000",
    "ba\u00a0do",
    "▁",
    "▁▁ba",
    "ba▁",
    "ba▁do",
    "🙂",
    "👩‍👩‍👧 ba",
    "🇩🇪🇪",
    "ﬁne ﬃ",
    "Ｂａ　ｄｏ１２",
    "½ ª º … ² Ⅷ ㍿ ﷺ",
    "中国 ba",
    "שלום",
    "ประเทศไทย กำ",
    "क्षि",
    "각 \u1100\u1161\u11a8",
    "a\u0308 e\u0301 o\u0323\u0302",
    "Tie\u0302\u0301ng",
    "ß ẞ İ ς",
    "\ufeffba",
    "\u200bba\u200ddo",
    "\x01ba\x02\x03",
    "ba\x00do",
    "\x7f\x85",
    "<sep>",
    "ba<sep>do",
    "<sep> ba",
    " <sep>",
    "<sep><sep>",
    "<sep",
    "aaaaaaa",
    "stststst",
    "x" * 700,
    "～ ~",
    "a\r\nb",
]

VARIANTS = {
    "unigram": {"model_type": "unigram", "normalization_rule_name": "nmt_nfkc"},
    "unigram of bytes": {
        "model_type": "unigram",
        "byte_fallback": True,
        "user_defined_symbols": ["<sep>", "tr"],
        "pad_id": 3,
    },
    "unigram as it is": {
        "model_type": "unigram",
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
    },
    "folded unigram": {"model_type": "unigram", "normalization_rule_name": "nmt_nfkc_cf", "bos_id": -1},
    "bpe": {"model_type": "bpe", "normalization_rule_name": "nmt_nfkc", "user_defined_symbols": ["<sep>"]},
    "bpe of bytes": {
        "model_type": "bpe",
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "add_dummy_prefix": False,
    },
    "bpe over words": {"model_type": "bpe", "normalization_rule_name": "nfkc", "split_by_whitespace": False},
    "bpe with names": {
        "model_type": "bpe",
        "unk_piece": "[UNK]",
        "bos_piece": "[B]",
        "eos_piece": "[E]",
        "control_symbols": ["<mask>"],
        "unk_id": 2,
        "bos_id": 0,
        "eos_id": 1,
        "byte_fallback": True,
    },
}


def made_up(count, seed):
    draw = random.Random(seed)
    words = [
        "".join(draw.choice(part) for _ in range(draw.randint(1, 3)) for part in (ONSETS, VOWELS, CODAS))
        for _ in range(300)
    ]
    lines = [" ".join(draw.choices(words, k=draw.randint(2, 12))) + draw.choice(MARKS) for _ in range(count)]
    return [line.capitalize() for line in lines]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


def trained(folder, name, **options):
    path = folder / f"{name}.model"
    if not path.exists():
        spm.SentencePieceTrainer.train(
            sentence_iterator=iter(made_up(2000, 1)),
            model_prefix=str(path.with_suffix("")),
            vocab_size=600,
            minloglevel=2,
            hard_vocab_limit=False,
            **options,
        )
    return path


@pytest.fixture(scope="module", params=VARIANTS)
def path(folder, request):
    return trained(folder, request.param, **VARIANTS[request.param])


@pytest.fixture(scope="module")
def texts():
    draw = random.Random(2)
    parts = [part for text in ODD for part in (text, " ", "ba", "Stein")]
    return [*made_up(300, 3), *ODD, *("".join(draw.choices(parts, k=4)) for _ in range(400))]


def one(tokenizer, text):
    [ids] = tokenizer.encode([text])
    return ids


def test_pieces_and_text_are_those_of_sentencepiece(path, texts):
    theirs, ours = spm.SentencePieceProcessor(model_file=str(path)), import_sentencepiece(path)
    for text in texts:
        ids = theirs.encode(text)
        pieces = ["<unk>" if theirs.is_unknown(index) else theirs.id_to_piece(index) for index in ids]
        assert ours.tokens(one(ours, text)) == pieces, repr(text)
        if theirs.unk_id() not in ids:
            assert ours.decode([one(ours, text)]) == [theirs.decode(ids)], repr(text)


def test_special_symbols_come_first_and_pieces_keep_their_order(path):
    theirs, ours = spm.SentencePieceProcessor(model_file=str(path)), import_sentencepiece(path)
    assert list(ours.vocabulary.values()) == list(range(ours.vocab_size))
    assert list(ours.vocabulary)[:4] == ["<pad>", "<s>", "</s>", "<unk>"]
    special = {theirs.pad_id(), theirs.bos_id(), theirs.eos_id(), theirs.unk_id()}
    others = [theirs.id_to_piece(index) for index in range(len(theirs)) if index not in special]
    assert list(ours.vocabulary)[4:] == others


@pytest.mark.parametrize(
    "text", ["<s>", "</s>", "<pad>", "<unk>", "<0x41>", "<mask>", "ba <s> do</s><pad>x", "<unk><s>"]
)
def test_text_never_becomes_a_special_symbol(path, text):
    tokenizer = import_sentencepiece(path)
    ids, hidden = (
        one(tokenizer, text),
        {0, 1, 2, tokenizer.vocabulary.get("<mask>"), tokenizer.vocabulary.get("<0x41>")},
    )
    assert not hidden & set(ids)
    assert 3 in ids or tokenizer.decode([ids]) == [text]


def test_special_symbols_vanish_from_text(path):
    tokenizer = import_sentencepiece(path)
    assert tokenizer.decode([[1, *one(tokenizer, "ba do"), 2, 0], [0, 1, 2, 3]]) == ["ba do", ""]


def test_a_loaded_one_is_the_same(path, texts, tmp_path):
    tokenizer = import_sentencepiece(path, ["<de>"])
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.encode(texts) == tokenizer.encode(texts)
    assert loaded.decode(loaded.encode(texts)) == tokenizer.decode(tokenizer.encode(texts))


SYMBOLS = ("<de>", "<bt>", "<formal>", "formal", "ba", "[x].*", "|", "<a><b>")


def test_symbols_are_one_token_each(path):
    plain, tagged = import_sentencepiece(path), import_sentencepiece(path, SYMBOLS)
    known = plain.vocabulary
    added = [form for symbol in SYMBOLS for form in (f"▁{symbol}", symbol) if form not in known]
    assert list(tagged.vocabulary) == [*known, *added]
    for symbol in SYMBOLS:
        for text in (symbol, f"{symbol} stein", f"stein {symbol} tru", f"{symbol} {symbol} <bt> {symbol}"):
            tokens = tagged.tokens(one(tagged, text))
            assert tagged.decode([one(tagged, text)]) == [text]
            assert [token.strip("▁") for token in tokens].count(symbol) == text.split().count(symbol)


def test_a_symbol_costs_no_token_for_its_space(path):
    tagged = import_sentencepiece(path, SYMBOLS)
    assert len(one(tagged, "tru <de>")) == len(one(tagged, "tru")) + 1
    assert len(one(tagged, "<de>")) == 1


@pytest.mark.parametrize("text", ["x<de>", "<de>x", "<de><bt>", "<bt", "informal", "<a>"])
def test_what_only_contains_a_symbol_is_text(path, text):
    tagged = import_sentencepiece(path, ["<de>", "<bt>", "<a><b>", "formal"])
    new = {
        tagged.vocabulary[form] for symbol in ("<de>", "<bt>", "<a><b>", "formal") for form in (symbol, f"▁{symbol}")
    }
    assert not new & set(one(tagged, f"tru {text} tru"))


def test_symbols_do_not_change_other_text(path, texts):
    plain, tagged = import_sentencepiece(path), import_sentencepiece(path, ["<de>", "<bt>"])
    assert tagged.encode(texts) == plain.encode(texts)


def test_a_symbol_that_the_model_would_change_is_named(folder):
    path = trained(folder, "folded unigram", **VARIANTS["folded unigram"])
    with pytest.raises(BadInputError, match="'<DE>' cannot be a symbol of this model") as caught:
        import_sentencepiece(path, ["<DE>"])
    assert str(path) in str(caught.value)


def test_every_character_is_mapped_as_sentencepiece_maps_it(folder):
    """Alone and in parts: the library's own way of applying the rules drops the marks of letters."""
    path = trained(folder, "unigram", **VARIANTS["unigram"])
    theirs = spm.SentencePieceNormalizer(
        model_file=str(path), add_dummy_prefix=False, escape_whitespaces=False, remove_extra_whitespaces=False
    )
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    stored = ModelProto.FromString(path.read_bytes()).normalizer_spec
    ours = normalizers.Sequence(character_rules(stored.name, stored.precompiled_charsmap))
    characters = [chr(code) for code in range(1, 0x3400) if unicodedata.category(chr(code)) not in ("Cn", "Co", "Cs")]
    characters += [
        "각",
        "힣",
        "𝒜",
        "\U0001d15e",
        "\U0002f801",
        "Ａ\u0308",
        "ª\u0300",
        "ｶ\uff9e",
        "①\u0301",
        "x\u0301",
    ]
    for character in characters:
        for form in ("NFC", "NFD", "NFKD"):
            text = f"a{unicodedata.normalize(form, character)}b"
            assert ours.normalize_str(text) == theirs.normalize(text), (form, ascii(character))


def complaint(path, *symbols):
    with pytest.raises(BadInputError) as caught:
        import_sentencepiece(path, symbols)
    message = str(caught.value)
    assert str(path) in message
    assert len(message.splitlines()) == 1
    return message


def test_a_missing_file_is_named(tmp_path):
    assert "no such SentencePiece model" in complaint(tmp_path / "none.model")
    assert "no such SentencePiece model" in complaint(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{}", b"\x00" * 50, b"\xff\xfe" * 50, b"<unk>\t0\n<s>\t0\n"])
def test_a_file_that_is_no_model_is_named(tmp_path, content):
    path = tmp_path / "wrong.model"
    path.write_bytes(content)
    assert "not a SentencePiece model, or a damaged one" in complaint(path)


def test_a_damaged_model_is_named_or_works(folder, tmp_path):
    content = trained(folder, "unigram", **VARIANTS["unigram"]).read_bytes()
    draw, path = random.Random(4), tmp_path / "damaged.model"
    for _ in range(60):
        path.write_bytes(content[: draw.randrange(len(content))])
        complaint(path)
    start = content.index(b"<unk>")
    path.write_bytes(content[:start] + b"\xff" + content[start + 1 :])  # no UTF-8
    complaint(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model_type": "char"}, "of kind char: only unigram and bpe"),
        ({"model_type": "word"}, "of kind word: only unigram and bpe"),
        ({"model_type": "bpe", "treat_whitespace_as_suffix": True}, "only models with spaces as ▁ before words"),
    ],
)
def test_what_cannot_be_expressed_is_refused(folder, options, message):
    assert message in complaint(trained(folder, "-".join(map(str, options)) + str(options["model_type"]), **options))


def test_rules_of_the_models_own_are_refused(folder, tmp_path):
    rules = tmp_path / "rules.tsv"
    rules.write_text("61 62\t63\n")  # "ab" becomes "c"
    path = trained(tmp_path, "own", model_type="bpe", normalization_rule_tsv=str(rules))
    assert "normalization rules 'user_defined' are its own" in complaint(path)


def test_a_missing_extra_is_named(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece.sentencepiece_model_pb2", None)
    with pytest.raises(TransduceError, match=r"pip install 'transduce\[sentencepiece\]'"):
        import_sentencepiece(path)
