"""The search for one output, recorded: what ``Translator.trace_search`` tells of it."""

import json
import math
from itertools import pairwise

import pytest

import transduce
from transduce.config import BadInputError
from transduce.search import Recorder

pytest_plugins = ["tiny_run"]

TEXT = "bamo dulu kari"


def best_of(tree):
    return [node for node in tree.nodes if node.best]


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beam_size": 1},
        {"beam_size": 21, "n_best": 7},
        {"max_length": 2},
        {"must_contain": ["yob"], "must_not_contain": ["hax"], "n_best": 2},
        {"sampling": True, "temperature": 2.0, "n_best": 3, "seed": 7},
        {"coverage_penalty": 0.2, "diversity": 0.3, "min_length": 4},
    ],
    ids=str,
)
def test_it_tells_of_the_search_that_translate_makes(trained_run, precision, options):
    translator = transduce.load(trained_run, precision)
    several = {name: [options[name]] if name == "must_contain" else options[name] for name in options}
    output = translator.translate(TEXT, **several, first_number=None)
    trace = translator.trace_search(TEXT, **options)
    assert trace.source == (" bamo", " dulu", " kari", "</s>")
    assert trace.text == output.text
    found = [output, *output.alternatives]
    finished = trace.tree.finished()[: options.get("n_best", 1)]
    assert [trace.tree.path(index) for index in finished] == [(*each.tokens, "</s>") for each in found]
    assert [trace.tree.nodes[index].score for index in finished] == [each.score for each in found]
    assert [trace.tree.nodes[index].log_probability for index in finished] == [each.log_probability for each in found]
    assert [node.symbol for node in best_of(trace.tree)] == ["<s>", *output.tokens, "</s>"]
    for number in range(1, max(node.round for node in trace.tree.nodes)):
        assert (
            len([node for node in trace.tree.nodes if (node.round, node.state) == (number, "open")]) <= trace.beam_size
        )


def test_a_prefix_shows_what_may_follow_a_text_of_ones_own(translator):
    """By the chain rule: the probabilities of its symbols at their places make that of the whole."""
    text = "mup ti ti yob"
    trace = translator.trace_search("bamo", 1, prefix=text, top=10**6, max_length=4)
    assert trace.text == text
    total = 0.0
    for node, after in pairwise(best_of(trace.tree)):
        shares = {each.symbol: each.probability for each in node.following}
        assert sum(shares.values()) == pytest.approx(1, abs=1e-4)
        total += math.log(shares[after.symbol])
    assert total == pytest.approx(translator.score("bamo", text), abs=1e-3)


def test_everything_is_json(translator):
    trace = translator.trace_search(TEXT, 3, top=2)
    described = json.loads(json.dumps(trace.to_dict(), allow_nan=False))
    assert {name: described[name] for name in ("source", "text", "beam_size")} == {
        "source": [" bamo", " dulu", " kari", "</s>"],
        "text": "ti sor mup",
        "beam_size": 3,
    }
    for index, (one, node) in enumerate(zip(described["nodes"], trace.tree.nodes, strict=True)):
        assert one["id"] == index
        assert (one["parent"], one["symbol"], one["score"]) == (node.parent, node.symbol, node.score)
        assert [each["probability"] for each in one["following"]] == [each.probability for each in node.following]
        assert len(one["following"]) in (0, 2)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"text": " "}, "the text is empty"),
        ({"text": None}, "the text is None: give a string"),
        ({"text": ["bamo"]}, "the text is a list"),
        ({"text": "bamo", "top": 0}, "top 0: must be 1 or more"),
        ({"text": "bamo", "beam_size": 2, "n_best": 3}, "n-best 3"),
        ({"text": "bamo", "paragraphs": True}, "trace_search has no option 'paragraphs'"),
        ({"text": "bamo", "prefix": 3}, "prefix of text"),
        ({"text": "bamo", "must_contain": "ti"}, "one string was given: give a list of phrases"),
        ({"text": "bamo", "prefix": "ti " * 90}, "found no output of at most"),
    ],
)
def test_what_cannot_be_traced_is_named(translator, given, named):
    with pytest.raises(BadInputError, match=named):
        translator.trace_search(**given)


def test_several_texts_are_recorded_by_their_numbers(translator):
    recorder = Recorder(top=2)
    translator.translate([TEXT, "", "wemo"], first_number=7, recorder=recorder)
    assert sorted(recorder.rounds) == [7, 9]
    for given, named in ((True, "recorder: a bool"), (Recorder, "recorder: a type")):
        with pytest.raises(BadInputError, match=named):
            translator.translate(TEXT, recorder=given)
    with pytest.raises(BadInputError, match="a paragraph has no recorded search"):
        translator.translate(TEXT, recorder=recorder, paragraphs=True)


def test_a_byte_order_mark_alone_is_no_text(translator):
    with pytest.raises(BadInputError, match="the text is empty"):
        translator.trace_search("\ufeff")
