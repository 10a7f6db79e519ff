import copy
import math
import pickle

import numpy as np
import pytest
import torch

import transduce
from transduce.bundle import load_bundle
from transduce.config import BadInputError, SpecialIds, TransduceError
from transduce.inference import Cancellation, Engine, Translation
from transduce.text import Tokenizer

pytest_plugins = ["tiny_run"]

SENTENCES = ["bamo dulu kari", "wemo", "luso luso gozu fepi bamo", "kari kari", "fepi wemo dulu gozu"]
ODD_LINES = {
    "nothing": "",
    "spaces": "    ",
    "tab": "\t",
    "emoji": "👍🏽 dulu 👩‍👩‍👧",
    "right to left": "שלום עולם",
    "5,000 letters": "bamodulu" * 625,
    "800 words": "bamo kari " * 400,
    "carriage return": "bamo\rdulu\r",
    "U+2028": "bamo\u2028dulu\u0085kari",
    "NUL": "bamo\0dulu\0",
    "special symbols": "<s> </s> <pad> <unk> <0x0A>",
    "form feed": "\f\v",
    "replacement character": "\ufffd",
}


def test_words_become_what_they_should(translator):
    # The made-up dictionary; the model is trained on 211 sentences.
    assert [each.text for each in translator.translate(["bamo dulu kari", "wemo", "fepi luso"])] == [
        "ti sor mup",
        "yob",
        "nal hax",
    ]


def test_empty_for_empty_in_its_place(translator):
    outputs = translator.translate(["", "wemo", "  \t ", "kari", "\u3000\n"])
    assert [each.text for each in outputs] == ["", "yob", "", "mup", ""]
    assert [each.tokens for each in outputs if not each.text] == [()] * 3
    assert translator.translate([]) == []


def test_order_is_the_inputs(translator):
    """The engine sorts by length; the outputs come back in the order of the texts."""
    outputs = translator.translate(SENTENCES)
    backwards = translator.translate(SENTENCES[::-1])
    assert [each.text for each in outputs] == [each.text for each in backwards[::-1]]
    assert len({each.text for each in outputs}) == len(SENTENCES)


def test_odd_lines_give_one_output_each(translator):
    outputs = translator.translate(list(ODD_LINES.values()), beam_size=1, max_source_length=3000)
    assert len(outputs) == len(ODD_LINES)
    empty = {"nothing", "spaces", "tab", "form feed"}
    for name, output in zip(ODD_LINES, outputs, strict=True):
        assert output.tokens == () or name not in empty
        assert math.isfinite(output.score)
        assert not set(output.tokens) & {"<s>", "</s>", "<pad>", "<unk>"}


def test_a_batch_gives_what_one_by_one_gives(translator):
    texts = [*SENTENCES, "", *(text for text in ODD_LINES.values() if len(text) < 100)]
    together = translator.translate(texts, n_best=2)
    alone = [translator.translate([text], n_best=2)[0] for text in texts]
    for one, other in zip(together, alone, strict=True):
        assert one.tokens == other.tokens
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-4)
        assert [each.tokens for each in one.alternatives] == [each.tokens for each in other.alternatives]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_log_probability_is_what_scoring_the_output_gives(translator, trained_run, beam_size):
    bundle = load_bundle(trained_run)
    tokenizer = bundle.tokenizers.target
    special = tokenizer.special
    engine = Engine(bundle.model, special, "float32")
    outputs = translator.translate(SENTENCES, beam_size=beam_size)
    retokenized = tokenizer.encode([each.text for each in outputs])
    scores = translator.score(SENTENCES, [each.text for each in outputs])
    same = 0
    for source, output, ids, score in zip(SENTENCES, outputs, retokenized, scores, strict=True):
        if tuple(tokenizer.tokens(ids)) == output.tokens:
            same += 1
            assert output.log_probability == pytest.approx(score, abs=1e-4)
        (exact,) = engine.score(tokenizer.encode([source]), [[_id(tokenizer, token) for token in output.tokens]])
        assert output.log_probability == pytest.approx(exact, abs=1e-4)
        assert output.log_probability < 0
    assert same >= 3


def _id(tokenizer, token):
    return next(index for index in range(tokenizer.vocab_size) if tokenizer.tokens([index]) == [token])


def test_score_is_the_log_probability_over_the_length_penalty(translator):
    for output in translator.translate(SENTENCES, n_best=2):
        for each in (output, *output.alternatives):
            length = len(each.tokens) + 1  # the end symbol counts
            assert each.score == pytest.approx(each.log_probability / ((5 + length) / 6) ** 0.6)
    (output,) = translator.translate(["bamo dulu"], length_penalty=2.0)
    assert output.score == pytest.approx(output.log_probability / ((5 + len(output.tokens) + 1) / 6) ** 2)
    (output,) = translator.translate(["bamo dulu"], length_penalty_kind="none")
    assert output.score == pytest.approx(output.log_probability)


def test_n_best_are_distinct_and_best_first(translator):
    single = translator.translate(SENTENCES)
    for best, output in zip(single, translator.translate(SENTENCES, n_best=4), strict=True):
        outputs = [output, *output.alternatives]
        assert len(outputs) == 4
        assert len({each.tokens for each in outputs}) == 4
        scores = [each.score for each in outputs]
        assert scores == sorted(scores, reverse=True)
        assert (output.text, output.score) == (best.text, best.score)
        assert best.alternatives == ()


def test_none_means_the_models_own_settings(translator, trained_run):
    generation = load_bundle(trained_run).generation
    assert (generation.beam_size, generation.length_penalty) == (4, 0.6)
    explicit = translator.translate(SENTENCES, beam_size=4, length_penalty=0.6, length_penalty_kind="gnmt")
    assert translator.translate(SENTENCES) == explicit


def test_an_output_is_no_longer_than_the_input_and_the_limit_together(translator, trained_run):
    """Nothing stops a greedy search over unknown letters early, so it runs into its limit."""
    bundle = load_bundle(trained_run)
    assert bundle.generation.max_extra_length == 3
    text = "q" * 29
    source_symbols = len(bundle.tokenizers.source.encode([text])[0]) + 1
    assert len(translator.translate([text], beam_size=1)[0].tokens) + 1 <= source_symbols + 3


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"beam_size": 0}, "beam size 0"),
        ({"beam_size": -2}, "beam size -2"),
        ({"n_best": 0}, "n-best 0"),
        ({"n_best": 5}, "n-best 5"),  # the model's beam is 4
        ({"beam_size": 2, "n_best": 3}, "n-best 3"),
    ],
)
def test_numbers_out_of_range_are_named(translator, options, named):
    with pytest.raises(BadInputError, match=named):
        translator.translate(["bamo"], **options)


def test_a_string_gives_one_translation(translator):
    assert translator.translate("bamo dulu") == translator.translate(["bamo dulu"])[0]
    assert translator.translate("") == Translation("", 0.0, 0.0, ())
    assert translator.score("bamo", "ti") == translator.score(["bamo"], ["ti"])[0]


def test_any_iterable_of_strings_is_taken(translator):
    texts = ["bamo", "wemo"]
    expected = translator.translate(texts)
    for given in (
        tuple(texts),
        (text for text in texts),
        dict.fromkeys(texts).keys(),
        np.array(texts),
        np.array(texts, object),
    ):
        assert translator.translate(given) == expected
    asked = {"prefixes": iter(["", ""]), "must_contain": (iter([phrase]) for phrase in ("ti", "yob"))}
    assert [each.text for each in translator.translate(iter(texts), **asked)] == ["ti", "yob"]
    assert translator.score(iter(texts), np.array(["ti", "yob"])) == translator.score(texts, ["ti", "yob"])


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        (None, "text: None was given"),
        (1, "text: an int was given"),
        (b"bamo", "text: a bytes was given"),
        ({"bamo": "ti"}, "text: a dict was given"),
        (np.array("bamo"), "text: a ndarray was given"),
        ([1], "text 1: 1 is an int"),
        (["bamo", None], "text 2: None is None"),
        (["bamo", float("nan")], "text 2: nan is a float"),
        ([["bamo"]], r"text 1: \['bamo'\] is a list"),
        (["\ud800"], "text 1: character 1 is half of a surrogate pair"),
    ],
)
def test_what_is_no_text_is_named(translator, texts, named):
    with pytest.raises(BadInputError, match=f"^{named}"):
        translator.translate(texts)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"beamsize": 3}, "translate has no option 'beamsize': did you mean 'beam_size'"),
        ({"beamsize": None}, "no option 'beamsize'"),
        ({"nbest": 2}, "did you mean 'n_best'"),
        ({"num_beams": 2}, "translate has no option 'num_beams': it is beam_size here"),
        ({"batch_size": 2}, "texts are batched by their lengths, give all of them at once"),
        ({"zzz": 2}, "it has beam_size, cancellation, constraints, coverage_penalty"),
        ({"beam_size": "three"}, "beam size 'three'"),
        ({"beam_size": 2.5}, "beam size 2.5"),
        ({"length_penalty": "long"}, "length penalty 'long'"),
        ({"n_best": "2"}, "n-best '2': must be a whole number"),
        ({"n_best": True}, "n-best True"),
        ({"n_best": None}, "n-best None"),
        ({"return_attention": 1}, "return attention 1: must be True or False"),
        ({"return_alignment": "yes"}, "return alignment 'yes'"),
        ({"paragraphs": None}, "paragraphs None"),
        ({"language": 3}, "language 3"),
        ({"first_number": "one"}, "first number 'one'"),
        ({"first_number": -1}, "first number -1: must be 0 or more"),
        ({"errors": "ignore"}, "errors 'ignore': there is no such choice: choose from raise, return"),
        ({"errors": "retrun"}, "did you mean 'return'"),
        ({"prefixes": 3}, "prefix of text: an int"),
        ({"prefixes": ["ti \ud800"]}, "text 1: prefix: character 4 is half of a surrogate pair"),
        ({"must_contain": [["\ud800"]]}, "text 1: must contain: character 1 is half"),
        ({"must_not_contain": ["\ud800"]}, "must not contain: character 1 is half"),
        ({"prefixes": [3]}, "prefix of text 1: 3 is an int"),
        ({"must_contain": 3}, "lists of phrases that outputs must contain: an int"),
        ({"must_contain": "ti"}, "lists of phrases that outputs must contain: one string"),
        ({"must_contain": [3]}, "must contain, text 1, phrase: an int"),
        ({"must_contain": [[3]]}, "must contain, text 1, phrase 1: 3 is an int"),
        ({"must_contain": [None]}, "must contain, text 1, phrase: None"),
        ({"must_not_contain": 3}, "must not contain, phrase: an int"),
        ({"must_not_contain": "sor"}, "must not contain: one string"),
        ({"must_not_contain": [["sor"]]}, "must not contain, phrase 1"),
        ({"max_source_length": 0}, "max source length 0"),
        ({"seed": "x", "sampling": True}, "seed 'x'"),
        ({"sampling": "perhaps"}, "sampling 'perhaps'"),
        ({"cancellation": 5}, "cancellation: an int was given: give a transduce.inference.Cancellation"),
        ({"cancellation": Cancellation}, "cancellation: a type was given"),
    ],
)
def test_options_of_the_wrong_kind_are_named(translator, options, named):
    with pytest.raises(BadInputError, match=named):
        translator.translate(["bamo"], **options)


def test_what_is_no_text_is_not_counted(translator):
    with pytest.raises(BadInputError, match=r"^text 2: character 3 is half of a surrogate pair"):
        translator.count_tokens(["ti", "so\ud800"])


def test_numbers_of_numpy_are_numbers(translator):
    options = {
        "beam_size": np.int64(3),
        "n_best": np.int32(2),
        "length_penalty": np.float32(0.5),
        "first_number": np.int64(5),
    }
    plain = {"beam_size": 3, "n_best": 2, "length_penalty": 0.5, "first_number": 5}
    assert translator.translate(SENTENCES, **options) == translator.translate(SENTENCES, **plain)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"sources": ["a"], "targets": ["b", "c"]}, "1 sources and 2 targets"),
        ({"sources": "a", "targets": ["b"]}, "one string was given"),
        ({"sources": ["a"], "targets": "b"}, "one string was given"),
        ({"sources": None, "targets": ["b"]}, "source: None was given"),
        ({"sources": ["a"], "targets": [2]}, "target 1: 2 is an int"),
        ({"sources": ["a"], "targets": ["b"], "errors": "skip"}, "errors 'skip'"),
        ({"sources": ["a"], "targets": ["b"], "first_number": None}, "first number None"),
        ({"sources": ["a"], "targets": ["b"], "max_source_length": -3}, "max source length -3"),
    ],
)
def test_what_cannot_be_scored_is_named(translator, arguments, named):
    with pytest.raises(BadInputError, match=named):
        translator.score(**arguments)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"precision": "int4"}, "precision 'int4': there is no such choice: did you mean 'int8'"),
        ({"precision": None}, "precision None"),
        ({"device": "gpu"}, "device 'gpu': torch knows no such device"),
        ({"device": "meta"}, "device 'meta'"),
        ({"device": 0}, "device 0: give a name"),
        ({"shortlist": "no"}, "shortlist 'no'"),
    ],
)
def test_what_cannot_be_loaded_so_is_named(trained_run, arguments, named):
    with pytest.raises(BadInputError, match=named):
        transduce.load(trained_run, **arguments)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("device", ["cuda", "cuda:7"])
def test_a_device_that_is_not_here_is_named(trained_run, device):
    with pytest.raises(BadInputError, match=f"^device '{device}': is not here"):
        transduce.load(trained_run, device=device)


@pytest.mark.parametrize("path", [None, 3, [None], [[]]])
def test_what_is_no_path_is_named(path):
    with pytest.raises(BadInputError, match=r"^path .*: give a model or run directory"):
        transduce.load(path)


def test_it_says_what_is_loaded(trained_run, translator):
    vocabulary = load_bundle(trained_run).config.vocab_size
    size = f"1 + 1 layers, d_model 32, vocabulary {vocabulary:,}"
    assert repr(translator) == f"Translator({str(trained_run)!r}, {size}, float32 on {translator._engine.device})"
    both = transduce.load([trained_run, trained_run / "best"], "float32", "cpu")
    assert "2 models: " in repr(both)


def test_the_errors_stand_beside_the_translator():
    assert issubclass(transduce.BadInputError, transduce.TransduceError)
    assert {"BadInputError", "TransduceError"} <= set(dir(transduce))


def test_attention_weighs_every_source_symbol_for_every_target_symbol(translator):
    (plain,) = translator.translate(["bamo dulu kari"])
    (output,) = translator.translate(["bamo dulu kari"], return_attention=True, n_best=2)
    assert plain.attention is None
    assert output.tokens == plain.tokens == (" ti", " sor", " mup")
    assert output.attention.shape == (2, 3 + 1, 3 + 1)  # heads, target and end, source and end
    for each in (output, *output.alternatives):
        assert each.attention.shape == (2, len(each.tokens) + 1, 4)
        assert each.attention.dtype == np.float32
        np.testing.assert_allclose(each.attention.sum(axis=-1), 1, rtol=1e-5)
    assert translator.translate([""], return_attention=True)[0].attention is None


def test_both_precisions_run(trained_run, translator):
    rounded = transduce.load(trained_run, precision="bfloat16")
    outputs, exact = rounded.translate(SENTENCES), translator.translate(SENTENCES)
    assert outputs[1].text == exact[1].text == "yob"
    # Eight bits of mantissa: near, but not the same.
    differences = [abs(a.log_probability - b.log_probability) for a, b in zip(outputs, exact, strict=True)]
    assert max(differences) > 0
    assert differences[1] < 0.1


def test_a_translator_keeps_a_copy_of_its_own(trained_run):
    """Training may go on while dev is translated in another precision: its weights must not change."""
    bundle = load_bundle(trained_run)
    engine = Engine(bundle.model, SpecialIds(0, 1, 2, 3), "bfloat16")
    with torch.no_grad():
        for weight in bundle.model.parameters():
            weight.zero_()
    (score,) = engine.score([[5, 6]], [[7]])
    assert score != pytest.approx(-2 * math.log(bundle.config.vocab_size), rel=1e-3)  # what zeros would give
    assert all(weight.dtype == torch.float32 for weight in bundle.model.parameters())


def test_scores_do_not_depend_on_the_budget_of_a_batch(trained_run):
    bundle = load_bundle(trained_run)
    tokenizer = bundle.tokenizers.target
    special = tokenizer.special
    sources = tokenizer.encode(SENTENCES)
    small, large = (Engine(bundle.model, special, "float32", batch_tokens=size) for size in (1, 4096))
    assert small.score(sources, sources[::-1]) == pytest.approx(large.score(sources, sources[::-1]), abs=1e-3)


@pytest.mark.parametrize("take", [pickle.dumps, copy.copy, copy.deepcopy])
def test_it_says_that_it_cannot_be_sent_to_another_process(translator, take):
    with pytest.raises(TransduceError, match="load the model in each process"):
        take(translator)


def test_threads_that_share_a_search_keep_no_words(translator, monkeypatch):
    """tests/text/test_tokenizer.py: what their caches would hold."""
    asked = set()

    def cache_nothing(tokenizer):
        asked.add(tokenizer)

    monkeypatch.setattr(Tokenizer, "cache_nothing", cache_nothing)
    with translator.keep_searching():
        assert asked == {translator.tokenizers.source, translator.tokenizers.target}
