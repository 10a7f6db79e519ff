"""Every feature of search that docs/translating.md lists, with every architecture: random weights, checked by rules.

What holds for an output whatever the weights are is looked at for each; its log-probability is that of forced scoring,
and it is the same alone as in a batch.
"""

from collections import Counter
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch

from tests.sparing import one_each
from transduce.bundle import Bundle, save_bundle
from transduce.cli import main
from transduce.config import BadInputError, GenerationConfig
from transduce.config.architectures import read_model
from transduce.inference import Cancellation, Translator
from transduce.models import Shortlist, build
from transduce.serving.answers import Answers
from transduce.text import TokenizerPair, learn_tokenizer

WORDS = ["a", "b", "c", "d", "e", "f", "g", "h"]
TOKENIZER = learn_tokenizer("words", [" ".join(WORDS)], 12)
TEXTS = ["a b c", "d", "e f g h a b c", "c zzz a d", "h g"]
LIMIT = 6

TRANSFORMER = {
    "architecture": "transformer",
    "encoder_layers": 2,
    "decoder_layers": 2,
    "d_model": 10,
    "d_ff": 13,
    "heads": 2,
}
RECURRENT = {"architecture": "recurrent", "embedding_size": 7, "hidden_size": 5}
CONVOLUTIONAL = {"architecture": "convolutional", "max_positions": 32}
LAYERS = [[5, 3, 2]]
TWO = {"encoder_layers": 2, "decoder_layers": 2}
MODELS = {
    "transformer": TRANSFORMER,
    "transformer, relative": {**TRANSFORMER, "positions": "relative", "norm": "pre"},
    "recurrent, bahdanau": RECURRENT,
    "recurrent, luong": {**RECURRENT, "attention": "luong", "cell": "gru"},
    "recurrent, gnmt": {**RECURRENT, **TWO, "attention": "gnmt", "readout": "state", "embedding_size": 5},
    "recurrent, conditional": {**RECURRENT, "attention": "conditional", "cell": "gru"},
    "recurrent, location": {**RECURRENT, "attention_score": "location"},
    "recurrent, window": {**RECURRENT, "attention_window": "median", "attention_window_reach": 2},
    "recurrent, trainable window": {**RECURRENT, "attention_window": "trainable"},
    "recurrent, top two": {**RECURRENT, "attention_top_k": 2, "attention_sharpness": 2.0},
    "recurrent, fast-forward": {
        **{**RECURRENT, "directions": "interleaved", "fast_forward": True, "attention": "gnmt"},
        **{"encoder_layers": 3, "decoder_layers": 2, "hidden_size": 7, "readout": "state"},
    },
    "recurrent, experts": {
        **{**RECURRENT, **TWO, "feed_forward": "mixture_of_experts", "d_ff": 6, "experts": 3, "experts_per_token": 1},
    },
    "recurrent, none": {**RECURRENT, "attention": "none"},
    "convs2s": {
        **{**CONVOLUTIONAL, "embedding_width": 7, "output_width": 7},
        **{"encoder_convolutions": LAYERS, "decoder_convolutions": LAYERS},
    },
    "bytenet": {
        **{"architecture": "convolutional", "network": "bytenet", "channels": 5},
        **{"encoder_blocks": 2, "decoder_blocks": 2, "largest_dilation": 2},
    },
}
BLIND = ["recurrent, none", "bytenet"]
SEEING = [name for name in MODELS if name not in BLIND]
# One of each kind of state and attention: with each feature, two of them in turn, and one of the others.
ALL_FEATURES = ["transformer", "recurrent, bahdanau", "recurrent, gnmt", "recurrent, none", "convs2s", "bytenet"]


@cache
def bundle_of(name, seed=3):
    """Random weights, made larger, so that outputs follow from the source. The shortest has one symbol."""
    torch.manual_seed(seed)
    model = build(read_model({**MODELS[name], "vocab_size": TOKENIZER.vocab_size}))
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(2.5 if weight.ndim > 1 else 1)
    return Bundle(model, TokenizerPair.of(TOKENIZER), GenerationConfig(max_length=LIMIT, min_length=1))


@cache
def translator_of(*names):
    return Translator([bundle_of(name, seed) for seed, name in enumerate(names, 3)], "float32")


def every(output):
    return [output, *output.alternatives]


def sorted_and_distinct(texts, found):
    for output in found:
        scores = [each.score for each in every(output)]
        assert scores == sorted(scores, reverse=True)
        assert len({each.tokens for each in every(output)}) == len(scores) >= 2


def penalty(kind, alpha):
    def check(texts, found):
        for output in (each for several in found for each in every(several)):
            length = len(output.tokens) + 1
            divisor = {"gnmt": ((5 + length) / 6) ** alpha, "marian": length**alpha, "none": 1.0}[kind]
            assert output.score == pytest.approx(output.log_probability / divisor, abs=1e-4)

    return check


def within(least, most):
    return lambda texts, found: all(least <= len(each.tokens) <= most for each in found) or pytest.fail("lengths")


def once(texts, found):
    for output in found:
        assert max(Counter(pairwise(output.tokens)).values(), default=1) == 1


PREFIXES = ["b c", "", "a", "h", ""]
PHRASES = [["g h"], [], ["d", "b"], ["a"], []]


def begins(texts, found):
    assert all(each.text.startswith(prefix) for each, prefix in zip(found, PREFIXES, strict=True))


def contains(texts, found):
    for output, phrases in zip(found, PHRASES, strict=True):
        assert all(f" {phrase} " in f" {output.text} " for phrase in phrases)


def avoids(texts, found):
    assert not any({"a", "b", "c"} & {*each.tokens} for each in found)


def anything(texts, found):
    assert all(each.error is None for each in found)


FEATURES = {
    "greedy": ({"beam_size": 1}, anything),
    "beam": ({"beam_size": 4}, anything),
    "full beam": ({"beam_size": 3, "stopping": "full_beam"}, anything),
    "n-best": ({"beam_size": 4, "n_best": 3}, sorted_and_distinct),
    "gnmt": ({"length_penalty": 0.9, "n_best": 2}, penalty("gnmt", 0.9)),
    "marian": ({"length_penalty_kind": "marian", "length_penalty": 0.7}, penalty("marian", 0.7)),
    "no penalty": ({"length_penalty_kind": "none"}, penalty("none", 0)),
    "diversity": ({"diversity": 1.5, "n_best": 3}, sorted_and_distinct),
    "sampling": ({"sampling": True, "n_best": 3, "temperature": 1.5, "top_k": 7, "top_p": 0.95, "seed": 5}, anything),
    "lengths": ({"min_length": 4, "max_length": 5}, within(4, 5)),
    "more than the source": ({"min_length": 2, "max_extra_length": 1, "max_length": 9}, within(2, 9)),
    "no n-gram twice": ({"no_repeat_ngram": 2, "min_length": 6}, once),
    "prefixes": ({"prefixes": PREFIXES}, begins),
    "must contain": ({"must_contain": PHRASES}, contains),
    "must not contain": ({"must_not_contain": ["a", "b", "c"]}, avoids),
    "together": (
        {"prefixes": PREFIXES, "must_contain": PHRASES, "must_not_contain": ["e e"], "no_repeat_ngram": 2, "n_best": 2,
         "diversity": 0.2, "min_length": 3, "length_penalty_kind": "marian"},
        lambda texts, found: (begins(texts, found), contains(texts, found), once(texts, found)),
    ),
}  # fmt: skip


def part(options, index):
    """The options of one of the texts."""
    lists = {name: [options[name][index]] for name in ("prefixes", "must_contain") if name in options}
    return {**options, **lists, "first_number": index + 1}


def assert_same(one, other):
    assert [each.tokens for each in every(one)] == [each.tokens for each in every(other)]
    for mine, theirs in zip(every(one), every(other), strict=True):
        assert (mine.score, mine.log_probability) == pytest.approx((theirs.score, theirs.log_probability), abs=1e-4)


@pytest.mark.parametrize(
    ("feature", "name"),
    [
        *one_each(FEATURES, ALL_FEATURES[:3]),
        *one_each(FEATURES, ALL_FEATURES[3:], 1),
        *one_each(FEATURES, [name for name in MODELS if name not in ALL_FEATURES]),
    ],
)
def test_a_feature_keeps_its_rule_in_any_batch_and_its_scores_are_those_of_scoring(name, feature):
    translator, (options, check) = translator_of(name), FEATURES[feature]
    found = translator.translate(TEXTS, **options)
    check(TEXTS, found)
    for index in (1, 2):
        assert_same(translator.translate([TEXTS[index]], **part(options, index))[0], found[index])
    several = [(text, each) for text, output in zip(TEXTS, found, strict=True) for each in every(output)]
    exact = translator.score([text for text, _ in several], [each.text for _, each in several])
    assert [each.log_probability for _, each in several] == pytest.approx(exact, abs=1e-3)


@pytest.mark.parametrize("name", ALL_FEATURES)
def test_a_text_beyond_the_longest_source_fails_alone(name):
    translator = translator_of(name)
    found = translator.translate(TEXTS, max_source_length=3, errors="return")
    assert [each.error is None for each in found] == [True, True, False, False, True]
    assert "at most 3 are read (max_source_length)" in found[2].error
    within = [text for text, each in zip(TEXTS, found, strict=True) if each.error is None]
    for one, other in zip(translator.translate(within), [each for each in found if each.error is None], strict=True):
        assert_same(one, other)


@pytest.mark.parametrize("name", MODELS)
def test_outputs_differ_from_text_to_text(name):
    """Or the tests here would see little."""
    assert len({each.tokens for each in translator_of(name).translate(TEXTS, min_length=3)}) >= 2


@pytest.mark.parametrize("name", MODELS)
def test_a_shortlist_and_what_is_asked_for_besides(name):
    letters = dict(zip(WORDS, (ids[0] for ids in TOKENIZER.encode(WORDS)), strict=True))
    translations = torch.full((TOKENIZER.vocab_size, 1), -1, dtype=torch.int32)
    translations[letters["d"]] = letters["h"]
    shortlist = Shortlist(translations, torch.tensor([letters["a"], letters["b"]]), TOKENIZER.vocab_size)
    translator = Translator(bundle_of(name), "float32", shortlist=shortlist)
    found = translator.translate(TEXTS, n_best=2, prefixes=["c", "", "", "", ""], min_length=2)
    allowed = [
        {"a", "b", *("h" if "d" in text else ""), *("c" if number == 0 else "")} for number, text in enumerate(TEXTS)
    ]
    assert all({*each.tokens} <= some for several, some in zip(found, allowed, strict=True) for each in every(several))
    assert found[0].tokens[0] == "c"


@pytest.mark.parametrize("name", MODELS)
def test_an_ensemble_is_the_mean_of_the_probabilities_of_any_two(name):
    """By hand, symbol for symbol, beside a Transformer."""
    pair = (name, "transformer")
    together = translator_of(*pair)
    alone = [Translator(bundle_of(each, seed), "float32") for seed, each in enumerate(pair, 3)]
    for text, output in zip(TEXTS[:3], together.translate(TEXTS[:3], n_best=2), strict=True):
        total = total_by_hand(alone, *TOKENIZER.encode([text, output.text]))
        assert output.log_probability == pytest.approx(total, abs=1e-3)


@pytest.mark.parametrize(("name", "precision"), [*one_each(MODELS, ["float32", "bfloat16", "int8"])])
def test_an_ensemble_scores_in_every_format(name, precision):
    """By hand, beside a recurrent model, which computes in float32 in all of them."""
    bundles = [bundle_of(each, seed) for seed, each in enumerate((name, "recurrent, bahdanau"), 3)]
    alone = [Translator(each, precision) for each in bundles]
    found = Translator(bundles, precision).score(TEXTS[:2], ["b c", "a"])
    for text, target, score in zip(TEXTS[:2], ["b c", "a"], found, strict=True):
        total = total_by_hand(alone, *TOKENIZER.encode([text, target]))
        assert score == pytest.approx(total, abs=1e-3 if precision == "float32" else 0.1)


def total_by_hand(translators, source, written):
    """The logarithms of the mean probabilities, added up symbol for symbol."""
    special = TOKENIZER.special
    each = [probabilities(translator, source, [special.begin, *written]) for translator in translators]
    symbols = [*written, special.end]
    return sum(float(np.log(np.mean([rows[place][symbol] for rows in each]))) for place, symbol in enumerate(symbols))


def probabilities(translator, source, read):
    """What may come behind each of the symbols, which are read at once."""
    engine = translator._engine
    with torch.inference_mode():
        memory = engine._model.encode(engine._source([source]))
        hidden = engine._model.decode(memory, engine._tokens([read])).hidden
        return engine._model.project(hidden).float().softmax(1).numpy()


@pytest.mark.parametrize("name", SEEING)
def test_attention_alignment_coverage_and_unknown_words(name):
    translator = translator_of(name)
    options = {"return_attention": True, "return_alignment": True, "coverage_penalty": 0.4, "n_best": 2}
    found = translator.translate(TEXTS, **options, replace_unknown=True, min_length=2)
    for index, output in enumerate(found):
        words = TEXTS[index].split()
        for each in every(output):
            heads, rows, columns = each.attention.shape
            assert (rows, columns) == (len(each.tokens) + 1, len(words) + 1)
            assert each.attention.sum(axis=-1) == pytest.approx(np.ones((heads, rows)), abs=1e-4)
            # Wu et al. (2016): what has been looked at less than once in all costs its logarithm.
            paid = each.attention.mean(axis=0).sum(axis=0)
            covered = 0.4 * np.log(np.clip(paid, np.finfo(np.float32).tiny, 1)).sum()
            length = ((5 + rows) / 6) ** 0.6
            assert each.score == pytest.approx(each.log_probability / length + covered, abs=1e-3)
            # Every token is a word, which has one of the source.
            sources = {target: source for source, target in each.alignment}
            assert sorted(sources) == list(range(len(each.tokens)))
            written = [words[sources[at]] if token == "<unk>" else token for at, token in enumerate(each.tokens)]
            assert each.text.split() == written
        alone = translator.translate([TEXTS[index]], **options, replace_unknown=True, min_length=2)[0]
        assert_same(alone, output)
        assert (alone.alignment, alone.text) == (output.alignment, output.text)
        np.testing.assert_allclose(alone.attention, output.attention, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"return_attention": True}, "return attention: "),
        ({"return_alignment": True}, "return alignment: "),
        ({"coverage_penalty": 0.2}, "coverage penalty: "),
        ({"replace_unknown": True}, "replace unknown: "),
    ],
)
@pytest.mark.parametrize("names", [[name] for name in BLIND] + [["transformer", "bytenet"]], ids=" and ".join)
def test_what_needs_attention_is_refused_by_name_where_there_is_none(names, options, named):
    with pytest.raises(BadInputError, match=f"^{named}the model has no encoder-decoder attention"):
        translator_of(*names).translate(TEXTS, **options)


@pytest.mark.parametrize("name", [*BLIND, "transformer"])
def test_documents_need_no_attention(name, tmp_path):
    save_bundle(bundle_of(name), tmp_path / "model")
    page, out = tmp_path / "page.html", tmp_path / "out.html"
    page.write_text("<p>a <b>b</b> c</p>", encoding="utf-8")
    status = main._run(
        ["translate", str(tmp_path / "model"), "--markup", "html", "--input", str(page), "--output", str(out)]
    )
    assert status == 0
    translator = Translator(bundle_of(name))
    assert translator.has_alignments == (name not in BLIND)
    settings = {"texts": ["<p>a <b>b</b> c</p>"], "details": [], "format": "html", "language": "en", "split": False}
    more = {"n_best": 1, "strict": True, "settings": {}, "first_number": 1}
    [answer] = Answers(translator, lambda heads: translator).answer(
        {"call": "translate", **settings, **more}, Cancellation()
    )
    assert answer["text"] == out.read_text(encoding="utf-8").rstrip("\n")
    assert answer["text"].startswith("<p>")
