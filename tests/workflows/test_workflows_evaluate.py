import math
import shutil

import pytest

from transduce.config import BadInputError, Corpus, read_run, write_run
from transduce.evaluation import LineMean, corpus_score, make_scorer, paired_bootstrap
from transduce.inference import Parse
from transduce.workflows.evaluate import Measures, compare, evaluate, evaluate_by_length, parse_all
from transduce.workflows.examples import (
    Examples,
    group_by_length,
    read_corpus_examples,
    read_examples,
    read_own_examples,
)

pytest_plugins = ["tiny_run"]

SOURCES = ["bamo dulu kari", "wemo", "luso gozu fepi"]
REFERENCES = ["ti sor mup", "yob yob", "hax ved nal"]
EXAMPLES = Examples(SOURCES, REFERENCES)


@pytest.fixture
def files(tmp_path):
    paths = tmp_path / "source", tmp_path / "reference"
    for path, lines in zip(paths, (SOURCES, REFERENCES), strict=True):
        path.write_text("".join(line + "\n" for line in lines))
    return paths


@pytest.fixture
def run_with_test(trained_run, tmp_path, files):
    """A function that gives a copy of the trained run whose run file names the corpus as its test set."""

    def make(corpus):
        run = shutil.copytree(trained_run, tmp_path / "run")
        config = read_run(run / "run.toml")
        data = config.data.model_copy(update={"root": str(tmp_path), "test": corpus})
        write_run(config.model_copy(update={"data": data}), run / "run.toml")
        return run

    return make


def test_each_metric_is_of_the_translations_in_the_order_asked_for(translator):
    outputs = [each.text for each in translator.translate(SOURCES)]
    scores = evaluate(translator, EXAMPLES, Measures(["ter", "bleu", "exact", "chrf"]))
    assert scores == [corpus_score(metric, outputs, REFERENCES) for metric in ("ter", "bleu", "exact", "chrf")]


def test_perplexity_is_exp_of_the_mean_over_tokens(translator):
    first, score = evaluate(translator, EXAMPLES, Measures(["exact", "perplexity"]))
    assert first.metric == "exact"
    one_by_one = [translator.score([s], [r])[0] for s, r in zip(SOURCES, REFERENCES, strict=True)]
    # Every invented word is one token: 3 + 2 + 3, and three end symbols.
    assert score.value == pytest.approx(math.exp(-sum(one_by_one) / 11), rel=1e-4)
    assert "tokens:11" in score.signature


def test_a_model_that_diverged_has_a_perplexity(translator, monkeypatch):
    """Of a thousand nats per token it would be more than the largest number."""
    monkeypatch.setattr(type(translator), "score", lambda self, sources, targets: [-1e5] * len(sources))
    loss, perplexity = evaluate(translator, EXAMPLES, Measures(["loss", "perplexity"]))
    assert loss.value > 1000
    assert 1e307 < perplexity.value < math.inf


def test_loss_is_the_logarithm_of_perplexity(translator):
    loss, perplexity = evaluate(translator, EXAMPLES, Measures(["loss", "perplexity"]))
    assert (loss.metric, perplexity.metric) == ("loss", "perplexity")
    assert math.exp(loss.value) == pytest.approx(perplexity.value)


def test_groups_by_length_are_the_test_sets_of_their_lines(translator):
    sources = ["bamo " * words for words in (0, 1, 6, 5, 31, 30, 7)]
    references = ["ti " * words for words in range(7)]
    examples, measures = Examples(sources, references), Measures(["bleu", "perplexity"])
    found, groups = evaluate_by_length(translator, examples, measures)
    assert found == evaluate(translator, examples, measures)
    assert [(group.first, group.last, group.rows) for group, _ in groups] == [
        (1, 5, [0, 1, 3]),
        (6, 10, [2, 6]),
        (21, 30, [5]),
        (31, None, [4]),
    ]
    for group, (bleu, perplexity) in groups:
        alone = evaluate(translator, examples.select(group.rows), measures)
        assert bleu == alone[0]
        # Scored in another batch: rounded otherwise.
        assert (perplexity.value, perplexity.signature) == (pytest.approx(alone[1].value), alone[1].signature)


def test_a_tag_is_no_word_and_trees_come_along(tmp_path):
    (tmp_path / "gold.trees").write_text("(S (NN a) (NN a) (NN a) (NN a) (VB b))\n(S (NN c))\n", encoding="utf-8")
    examples = read_corpus_examples(Corpus(trees="gold.trees", tag="<news>"), tmp_path)
    (group,) = group_by_length(examples)
    assert (group.last, group.rows) == (5, [0, 1])
    assert examples.select([1]).trees == examples.trees[1:]
    for name, text in (("a", "x x x x x"), ("b", "y")):
        (tmp_path / name).write_text(f"{text}\n")
    tagged = read_corpus_examples(Corpus(source="a", target="b", tag="<news>"), tmp_path)
    assert (tagged.sources, [group.last for group in group_by_length(tagged)]) == (["<news> x x x x x"], [5])


def test_comet_is_not_known_by_length(translator):
    with pytest.raises(BadInputError, match="comet: is not known by length"):
        evaluate_by_length(translator, EXAMPLES, Measures(["bleu", "comet"]))


def test_a_source_without_an_output_counts_as_an_empty_one(translator, caplog):
    sources = [*SOURCES, "bamo " * 3000, "wemo " * 3000]
    references = [*REFERENCES, "ti", "yob"]
    outputs = [*(each.text for each in translator.translate(SOURCES)), "", ""]
    (score,) = evaluate(translator, Examples(sources, references), Measures(["bleu"]))
    assert score == corpus_score("bleu", outputs, references)
    (message,) = caplog.messages
    assert message.startswith("source 4: ")
    assert message.endswith("(and 1 more): counted as an empty output")


def test_the_beam_and_the_tokenizer_reach_their_places(translator):
    greedy = [each.text for each in translator.translate(SOURCES, beam_size=1)]
    (score,) = evaluate(translator, EXAMPLES, Measures(["bleu"], tokenize="none"), beam_size=1)
    assert score == corpus_score("bleu", greedy, REFERENCES, "none")
    assert "tok:none" in score.signature


def test_comet_gets_the_sources_and_its_model(translator, monkeypatch, tmp_path):
    asked = []

    def make(checkpoint, sources):
        asked.append((checkpoint, sources))
        return LineMean("comet", lambda outputs, references: [0.5, 0.25, 0.75], {"version": "0"})

    monkeypatch.setattr("transduce.evaluation.metrics.make_comet_scorer", make)
    (score,) = evaluate(translator, EXAMPLES, Measures(["comet"], comet_model=tmp_path / "model.ckpt"))
    assert asked == [(tmp_path / "model.ckpt", SOURCES)]
    assert (score.metric, score.value) == ("comet", 0.5)


def test_wrong_settings_are_found_before_anything_is_translated(translator, files, monkeypatch):
    monkeypatch.setattr(type(translator), "translate", lambda *_, **__: pytest.fail("translated"))
    with pytest.raises(BadInputError, match="14a"):
        evaluate(translator, EXAMPLES, Measures(["chrf", "bleu"], tokenize="14a"))
    with pytest.raises(BadInputError, match="0 samples"):
        compare(translator, EXAMPLES, Measures(["bleu"]), files[1], samples=0)


def test_two_files_are_a_test_set(files):
    assert read_examples(*files) == EXAMPLES


def test_an_empty_test_set_is_refused(tmp_path):
    (tmp_path / "empty").touch()
    with pytest.raises(BadInputError, match="empty: is empty"):
        read_examples(tmp_path / "empty", tmp_path / "empty")


def test_different_lengths_are_named(files):
    files[1].write_text("one\ntwo\n")
    with pytest.raises(BadInputError, match=r"source has 3 lines but .*reference has 2"):
        read_examples(*files)


def test_a_run_brings_its_own_test_set(run_with_test):
    assert read_own_examples(run_with_test(Corpus(source="source", target="reference"))) == EXAMPLES


def test_its_tag_and_lines_hold_there_too(run_with_test):
    run = run_with_test(Corpus(source="source", target="reference", lines=(2, 3), tag="<x>"))
    expected = Examples(["<x> wemo", "<x> luso gozu fepi"], REFERENCES[1:], prefix="<x> ")
    assert read_own_examples(run) == expected


def test_an_empty_test_set_of_a_run_is_named(run_with_test, tmp_path):
    (tmp_path / "nothing.tsv").touch()
    with pytest.raises(BadInputError, match=r"nothing\.tsv: is empty"):
        read_own_examples(run_with_test(Corpus(pairs="nothing.tsv")))


@pytest.mark.parametrize("part", ["", "best"])
def test_without_a_test_set_both_files_are_asked_for(trained_run, part):
    with pytest.raises(BadInputError, match=r"no test set of its own .*: give --source and --reference"):
        read_own_examples(trained_run / part)


def test_no_model_is_said_first(tmp_path):
    with pytest.raises(BadInputError, match="nowhere: no such model directory"):
        read_own_examples(tmp_path / "nowhere")


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_the_other_s_outputs_are_the_lines_of_a_file(translator, tmp_path, suffix):
    theirs = ["ti sor", "yob", ""]
    other = tmp_path / f"other{suffix}"
    other.write_bytes(_compress("".join(line + "\n" for line in theirs).encode(), suffix))
    ours = [each.text for each in translator.translate(SOURCES)]
    measures = Measures(["chrf", "exact"])
    comparisons = compare(translator, EXAMPLES, measures, other, samples=29, seed=3)
    scorers = {metric: make_scorer(metric) for metric in ("chrf", "exact")}
    assert comparisons == paired_bootstrap(scorers, REFERENCES, ours, theirs, samples=29, seed=3)
    assert comparisons[0].theirs.value == corpus_score("chrf", theirs, REFERENCES).value


def _compress(text, suffix):
    import gzip

    import pyarrow as pa

    match suffix:
        case ".gz":
            return gzip.compress(text)
        case ".zst":
            return pa.compress(text, codec="zstd", asbytes=True)
        case _:
            return text


def test_another_model_translates_the_same_sources_with_the_same_beam(translator, trained_run, monkeypatch):
    translate, beams = type(translator).translate, []

    def record(self, texts, beam_size=None, **options):
        beams.append(beam_size)
        return translate(self, texts, beam_size, **options)

    monkeypatch.setattr(type(translator), "translate", record)
    (comparison,) = compare(
        translator, EXAMPLES, Measures(["chrf"]), trained_run, precision="float32", beam_size=1, samples=29
    )
    assert beams == [1, 1]
    greedy = [each.text for each in translator.translate(SOURCES, beam_size=1)]
    assert comparison.ours == comparison.theirs
    assert comparison.ours.value == corpus_score("chrf", greedy, REFERENCES).value
    assert comparison.p_value == 1


def test_a_file_with_lines_missing_is_named(translator, tmp_path):
    (tmp_path / "short").write_text("ti\nyob\n")
    with pytest.raises(BadInputError, match="short: has 2 lines for 3 sources"):
        compare(translator, EXAMPLES, Measures(["bleu"]), tmp_path / "short")


def test_perplexity_compares_no_outputs(translator, tmp_path):
    with pytest.raises(BadInputError, match="leave it out of --metric"):
        compare(translator, EXAMPLES, Measures(["bleu", "perplexity"]), tmp_path)


def test_a_treebank_keeps_what_stands_before_its_sources(tmp_path, monkeypatch):
    """A corpus's tag is read before each sentence, by parsing as by translating."""
    (tmp_path / "gold.trees").write_text("(S (NP (NN a)) (VP (VB b)))\n", encoding="utf-8")
    examples = read_corpus_examples(Corpus(trees="gold.trees", tag="<news>"), tmp_path)
    assert examples.sources == ["<news> a b"]
    given = []

    class Reading:
        def __init__(self, translator):
            assert translator == "translator"

        def parse(self, words, beam_size, *, prefix, first_number):
            given.append((words, prefix))
            return [Parse(examples.trees[0])]

    monkeypatch.setattr("transduce.workflows.evaluate.Parser", Reading)
    assert parse_all("translator", examples) == ["(S (NP (NN a)) (VP (VB b)))"]
    assert given == [([["a", "b"]], "<news> ")]
