import math

import pytest

from transduce.config import BadInputError
from transduce.evaluation import corpus_score
from transduce.workflows.evaluate import evaluate

pytest_plugins = ["tiny_run"]

SOURCES = ["bamo dulu kari", "wemo", "luso gozu fepi"]
REFERENCES = ["ti sor mup", "yob yob", "hax ved nal"]


@pytest.fixture
def files(tmp_path):
    paths = tmp_path / "source", tmp_path / "reference"
    for path, lines in zip(paths, (SOURCES, REFERENCES), strict=True):
        path.write_text("".join(line + "\n" for line in lines))
    return paths


def test_each_metric_is_of_the_translations_in_the_order_asked_for(translator, files):
    outputs = [each.text for each in translator.translate(SOURCES)]
    scores = evaluate(translator, *files, ["ter", "bleu", "chrf"])
    assert scores == [corpus_score(metric, outputs, REFERENCES) for metric in ("ter", "bleu", "chrf")]


def test_perplexity_is_exp_of_the_mean_over_tokens(translator, files):
    (score,) = evaluate(translator, *files, ["perplexity"])
    one_by_one = [translator.score([s], [r])[0] for s, r in zip(SOURCES, REFERENCES, strict=True)]
    # Every invented word is one token: 3 + 2 + 3, and three end symbols.
    assert score.value == pytest.approx(math.exp(-sum(one_by_one) / 11), rel=1e-4)
    assert "tokens:11" in score.signature


def test_the_beam_and_the_tokenizer_reach_their_places(translator, files):
    greedy = [each.text for each in translator.translate(SOURCES, beam_size=1)]
    (score,) = evaluate(translator, *files, ["bleu"], beam_size=1, tokenize="none")
    assert score == corpus_score("bleu", greedy, REFERENCES, "none")
    assert "tok:none" in score.signature


def test_an_empty_test_set_is_refused(translator, tmp_path):
    (tmp_path / "empty").touch()
    with pytest.raises(BadInputError, match="empty: is empty"):
        evaluate(translator, tmp_path / "empty", tmp_path / "empty", ["bleu"])


def test_different_lengths_are_named(translator, files):
    files[1].write_text("one\ntwo\n")
    with pytest.raises(BadInputError, match=r"source has 3 lines but .*reference has 2"):
        evaluate(translator, *files, ["bleu"])
