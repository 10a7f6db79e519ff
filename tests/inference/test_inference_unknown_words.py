"""Unknown words: replaced by the word that is attended to, or by its entry; never written where nobody asks for it."""

import pytest
import torch

from tests.bag_of_words import BagConfig, install
from transduce.bundle import Bundle, save_bundle
from transduce.config import BadInputError, GenerationConfig, preset
from transduce.inference import Translator, load
from transduce.inference.unknown_words import UnknownWords
from transduce.models import Shortlist, build
from transduce.text import TokenizerPair, learn_tokenizer

SOURCE = learn_tokenizer("words", ["a b c d e"], 11)
TARGET = learn_tokenizer("words", ["p q r s"], 9)
TEXTS = ["a Zebulon b", "Xanthippe,  c", "d e a b c", " "]
UNKNOWN = "<unk>"


def bundle_of(seed, **generation):
    """A model that writes the unknown symbol for about every other word, looking here and there."""
    torch.manual_seed(seed)
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 10, "d_ff": 13, "heads": 2, "output_bias": True}
    sizes |= {"vocab_size": TARGET.vocab_size, "source_vocab_size": SOURCE.vocab_size}
    model = build(preset("base", sizes))
    with torch.no_grad():
        model.output_bias[TARGET.special.unknown] = 2.0
        for name, weight in model.named_parameters():
            if "cross" in name or "embedding" in name:
                weight.mul_(3)
    return Bundle(model, TokenizerPair(SOURCE, TARGET), GenerationConfig(max_extra_length=3, **generation))


def translator_of(seeds, **generation):
    return Translator([bundle_of(seed, **generation) for seed in seeds], "float32")


@pytest.fixture(scope="module")
def translator():
    return translator_of([3])


def words_attended(text, output):
    """By hand: for each unknown symbol the word with the largest weight, mean over the heads, the end left out."""
    weights = output.attention.mean(axis=0)[:, : len(text.split())]
    return [text.split()[weights[at].argmax()] for at, token in enumerate(output.tokens) if token == UNKNOWN]


def check(text, output, entries=None):
    """Each word of the output is its token, or the word attended to, and the alignment says the same."""
    found = [(entries or {}).get(word, word) for word in words_attended(text, output)]
    remaining = iter(found)
    assert output.text.split() == [next(remaining) if token == UNKNOWN else token for token in output.tokens]
    # Every token is a word here, and the last of a pair.
    weights = output.attention.mean(axis=0)[: len(output.tokens), : len(text.split())]
    expected = sorted((int(row.argmax()), at) for at, row in enumerate(weights))
    assert output.alignment == tuple(expected)
    return len(found)


OPTIONS = {"return_attention": True, "return_alignment": True, "replace_unknown": True}


@pytest.mark.parametrize(
    "search",
    [
        {"beam_size": 1},
        {"n_best": 3},
        {"beam_size": 3, "coverage_penalty": 0.2, "diversity": 0.3, "n_best": 2},
        {"sampling": True, "n_best": 3, "temperature": 2.0},
        {"min_length": 3, "no_repeat_ngram": 2},
        {"must_not_contain": ["p"]},
        {"prefixes": ["q", "", "r s", ""]},
    ],
)
def test_an_unknown_word_becomes_what_it_attends_to(translator, search):
    found = translator.translate(TEXTS, **OPTIONS, **search)
    every = [(text, each) for text, output in zip(TEXTS, found, strict=True) for each in (output, *output.alternatives)]
    assert sum(check(text, each) for text, each in every if text.strip()) >= 4
    assert found[-1].text == ""
    plain = translator.translate(TEXTS, replace_unknown=True, **search)
    assert [each.text for each in plain] == [each.text for each in found]


def test_copied_words_differ_and_are_of_the_text_itself(translator):
    found = translator.translate(TEXTS, **OPTIONS)
    copied = {word for text, each in zip(TEXTS[:3], found, strict=False) for word in words_attended(text, each)}
    assert len(copied) >= 2
    assert copied & {"Zebulon", "Xanthippe,"}  # which the source's vocabulary does not have


def test_without_it_the_unknown_symbol_is_never_written(translator):
    for options in ({}, {"replace_unknown": False}, {"sampling": True, "n_best": 5}):
        for output in translator.translate(TEXTS, **options):
            assert all(UNKNOWN not in each.tokens for each in (output, *output.alternatives))


def test_the_dictionary_says_what_words_become(translator, tmp_path):
    entries = {"Zebulon": "Sebulon", "Xanthippe": "Xanthippen", "a": "ein", "b": "zwei Worte", "c": "drei"}
    path = tmp_path / "entries.tsv"
    path.write_text("".join(f"{word}\t{entry}\n" for word, entry in entries.items()), encoding="utf-8")
    free = translator.translate(TEXTS[:3], **OPTIONS)
    for dictionary in (entries, path, str(path)):
        found = translator.translate(TEXTS[:3], replace_unknown=True, dictionary=dictionary)
        for text, output, before in zip(TEXTS, found, free, strict=False):
            assert output.tokens == before.tokens
            words = iter(
                {**entries, "Xanthippe,": "Xanthippen,"}.get(each, each) for each in words_attended(text, before)
            )
            assert output.text == " ".join(next(words) if token == UNKNOWN else token for token in output.tokens)
    assert any("Sebulon" in each.text or "Xanthippen," in each.text for each in found)


def test_the_words_of_an_entry_count_in_the_alignment():
    (found,) = translator_of([3]).translate(["b"], **OPTIONS, beam_size=1, dictionary={"b": "zwei Worte"})
    assert "zwei Worte" in found.text
    ends = [len(" ".join(["zwei Worte" if each == UNKNOWN else each for each in found.tokens[: at + 1]]).split()) - 1
            for at in range(len(found.tokens))]  # fmt: skip
    assert [target for _, target in found.alignment] == ends


def test_the_end_of_the_source_and_white_space_are_no_words():
    (ids,) = SOURCE.encode(["a b"])
    special = TARGET.special
    output = [special.unknown, *TARGET.encode(["q"])[0], special.unknown]
    #                          a    b  </s>
    weights = torch.tensor([[0.1, 0.2, 0.7], [0.8, 0.1, 0.1], [0.3, 0.2, 0.5], [0.0, 0.0, 1.0]])
    pair = TokenizerPair(SOURCE, TARGET)
    assert len(ids) == 2
    assert UnknownWords().choose(pair, " a  b", output, weights) == ["b", "a"]
    assert UnknownWords({"b": "zwei"}).choose(pair, "a b", output, weights) == ["zwei", "a"]
    # House BPE has symbols for spaces: the largest weight is on one.
    tokenizer = learn_tokenizer("bpe", ["ab"], 320)
    text = "xy  zu"
    tokens = tokenizer.tokens(tokenizer.encode([text])[0])
    weights = torch.full((1, len(tokens) + 1), 0.1)
    weights[0, tokens.index(" ", 1)] = 0.9
    weights[0, -2] = 0.3
    assert UnknownWords().choose(TokenizerPair(tokenizer, TARGET), text, [special.unknown], weights) == ["zu"]


def test_an_ensemble_looks_with_all_heads():
    texts, together = TEXTS[:3], translator_of([3, 5])
    found = together.translate(texts, **OPTIONS)
    assert sum(check(text, each) for text, each in zip(texts, found, strict=True)) >= 2
    assert found[0].attention.shape[0] == 4


def test_a_shortlist_has_the_unknown_symbol_where_it_is_asked_for():
    nothing = torch.full((SOURCE.vocab_size, 1), -1, dtype=torch.int32)
    shortlist = Shortlist(nothing, torch.tensor([TARGET.encode(["q"])[0][0]]), TARGET.vocab_size)
    listed = Translator(bundle_of(3), "float32", shortlist=shortlist)
    assert {token for each in listed.translate(TEXTS) for token in each.tokens} == {"q"}
    written = {token for each in listed.translate(TEXTS, replace_unknown=True) for token in each.tokens}
    assert {UNKNOWN} <= written <= {"q", UNKNOWN}


def test_a_models_own_settings_may_ask_for_it(translator, tmp_path):
    save_bundle(bundle_of(3, replace_unknown=True), tmp_path / "model")
    own = load(tmp_path / "model", "float32")
    asked = translator.translate(TEXTS, replace_unknown=True)
    assert own.translate(TEXTS) == asked
    assert own.translate(TEXTS, replace_unknown=False) == translator.translate(TEXTS) != asked


def test_paragraphs_copy_from_their_own_sentences(translator):
    alone = translator.translate(["Zebulon sees it.", "Xanthippe runs."], replace_unknown=True)
    (both,) = translator.translate(["Zebulon sees it. Xanthippe runs."], replace_unknown=True, paragraphs=True)
    assert both.text == " ".join(each.text for each in alone)
    assert UNKNOWN in both.tokens


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"dictionary": {"a": "b"}}, "dictionary: is for unknown words: ask for replace_unknown"),
        ({"replace_unknown": True, "dictionary": ["a"]}, "dictionary: a list was given"),
        (
            {"replace_unknown": True, "dictionary": {"a": 3}},
            "dictionary: 'a': 3: a word and what it becomes are strings",
        ),
        ({"replace_unknown": True, "dictionary": "nothing.tsv"}, r"nothing\.tsv: no such file"),
        ({"replace_unknown": 1}, "replace unknown 1"),
    ],
)
def test_wrong_use_is_named(translator, options, named):
    with pytest.raises(BadInputError, match=named):
        translator.translate(["a"], **options)


def test_a_prefix_of_words_that_the_vocabulary_lacks_fails_alone(translator):
    found = translator.translate(["a", "a"], prefixes=["Zebulon", "p q"], errors="return")
    assert found[0].error == "prefix: the vocabulary cannot write 'Zebulon'"
    assert found[1].tokens[:2] == ("p", "q")


def test_a_model_without_attention_is_refused_by_name(monkeypatch):
    install(monkeypatch)
    model = build(BagConfig(vocab_size=TARGET.vocab_size, source_vocab_size=SOURCE.vocab_size))
    translator = Translator(Bundle(model, TokenizerPair(SOURCE, TARGET), GenerationConfig()), "float32")
    with pytest.raises(BadInputError, match=r"^replace unknown: the model has no encoder-decoder attention"):
        translator.translate(["a"], replace_unknown=True)
    assert translator.translate(["a"])[0].error is None


def test_a_vocabulary_that_spells_everything_has_no_unknown_words():
    tokenizer = learn_tokenizer("bpe", ["a b c"], 320)
    torch.manual_seed(2)
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 10, "d_ff": 13, "heads": 2, "output_bias": True}
    model = build(preset("base", {**sizes, "vocab_size": tokenizer.vocab_size}))
    model.output_bias.data[tokenizer.special.unknown] = 9.0
    translator = Translator(Bundle(model, TokenizerPair.of(tokenizer), GenerationConfig(max_extra_length=3)), "float32")
    assert translator.translate(["a b"], replace_unknown=True) == translator.translate(["a b"])
