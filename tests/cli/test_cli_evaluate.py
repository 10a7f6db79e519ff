import inspect
import json
import re
import shutil
import sys

import pytest

from transduce.cli import main
from transduce.cli.evaluate import evaluate as verb
from transduce.config import METRICS, Corpus, read_run, write_run
from transduce.evaluation import SAMPLES, SEED
from transduce.workflows.evaluate import Measures, compare, evaluate
from transduce.workflows.examples import read_examples

pytest_plugins = ["tiny_run"]


@pytest.fixture
def examples(tmp_path):
    (tmp_path / "source").write_text("bamo dulu kari luso\nwemo\n")
    (tmp_path / "reference").write_text("ti sor mup hax\nyob yob\n")
    return read_examples(tmp_path / "source", tmp_path / "reference")


@pytest.fixture
def arguments(tmp_path, trained_run, examples):
    files = ["--source", str(tmp_path / "source"), "--reference", str(tmp_path / "reference")]
    return ["evaluate", str(trained_run), "--precision", "float32", *files]


@pytest.fixture
def other(tmp_path):
    path = tmp_path / "other.txt"
    path.write_text("ti sor mup\nyob\n")
    return path


def test_json(arguments, translator, examples, capsys):
    assert main._run([*arguments, "--metric", "chrf, bleu,perplexity,exact", "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    scores = json.loads(shown.out)
    expected = evaluate(translator, examples, Measures(["chrf", "bleu", "perplexity", "exact"]))
    assert [score["metric"] for score in scores] == ["chrf", "bleu", "perplexity", "exact"]
    assert [score["value"] for score in scores] == pytest.approx([score.value for score in expected], rel=1e-5)
    assert "|version:" in scores[1]["signature"]


def test_a_line_for_each_score_with_its_signature(arguments, capsys):
    assert main._run([*arguments, "--metric", "bleu", "--metric", "ter,bleu"]) == 0
    bleu, ter = capsys.readouterr().out.splitlines()
    assert bleu.startswith("bleu ")
    assert "tok:13a" in bleu
    assert ter.startswith("ter ")


def test_scores_by_length(arguments, tmp_path, capsys):
    (tmp_path / "source").write_text("bamo dulu kari luso wemo fepi\nwemo\nbamo\n")
    (tmp_path / "reference").write_text("ti sor mup hax yob nal\nyob yob\nti\n")
    arguments = [*arguments, "--by-length", "--metric", "exact,chrf"]
    assert main._run(arguments) == 0
    exact, chrf, empty, *table = capsys.readouterr().out.splitlines()
    assert (exact[:6], chrf[:5], empty) == ("exact ", "chrf ", "")
    assert [row.split()[:-2] for row in table] == [
        ["words", "sentences"],
        ["1", "to", "5", "2"],
        ["6", "to", "10", "1"],
    ]
    assert main._run([*arguments, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [part["sentences"] for part in shown["by_length"]] == [2, 1]
    assert [[each["metric"] for each in part["scores"]] for part in shown["by_length"]] == [["exact", "chrf"]] * 2
    assert exact.split()[1] == METRICS["exact"].show(shown["all"][0]["value"])
    assert main._run([*arguments, "--against", str(tmp_path / "source")]) == 2
    assert "--by-length: goes with one system alone" in capsys.readouterr().err


def test_a_comparison_shows_both_systems_and_what_the_difference_is_worth(
    arguments, translator, examples, other, trained_run, capsys
):
    options = ["--metric", "chrf,exact", "--against", str(other), "--samples", "37", "--seed", "3"]
    assert main._run([*arguments, *options]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    lines = shown.out.splitlines()
    assert len(lines) == 8
    chrf, exact = compare(translator, examples, Measures(["chrf", "exact"]), other, samples=37, seed=3)
    assert lines[0] == f"chrf  {chrf.signature}"
    assert {"bs:37", "seed:3"} <= set(chrf.signature.split("|"))
    for line, name, side in zip(lines[1:3], (trained_run, other), (chrf.ours, chrf.theirs), strict=True):
        figures = f"{side.value:.2f}  mean {side.mean:.2f} +- {side.confidence:.2f}"
        assert re.fullmatch(f"  {re.escape(str(name))} +{re.escape(figures)}", line)
    assert lines[3] == f"  p = {chrf.p_value:.4f}"
    assert lines[4] == f"exact  {exact.signature}"


def test_a_comparison_in_json(arguments, translator, examples, other, capsys):
    assert main._run([*arguments, "--against", str(other), "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    (expected,) = compare(translator, examples, Measures(["bleu"]), other)
    assert shown["metric"] == "bleu"
    assert shown["ours"] == pytest.approx(vars(expected.ours))
    assert shown["theirs"] == pytest.approx(vars(expected.theirs))
    assert [shown["p_value"], shown["signature"]] == [expected.p_value, expected.signature]


def test_comet_is_shown_with_as_many_decimals_as_it_needs(arguments, monkeypatch, capsys):
    from transduce.evaluation import LineMean

    scorer = LineMean("comet", lambda outputs, references: [0.5, 0.25], {"version": "0"})
    monkeypatch.setattr("transduce.evaluation.metrics.make_comet_scorer", lambda *_: scorer)
    assert main._run([*arguments, "--metric", "comet", "--comet-model", "model.ckpt"]) == 0
    assert capsys.readouterr().out == "comet 0.3750  nrefs:1|lines:2|version:0\n"


def test_comet_without_its_extra_is_a_1(arguments, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "comet", None)
    assert main._run([*arguments, "--metric", "comet", "--comet-model", "model.ckpt"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "pip install 'transduce[comet]'" in shown.err


def test_a_run_s_own_test_set_needs_no_files(arguments, trained_run, tmp_path, capsys):
    assert main._run(arguments) == 0
    expected = capsys.readouterr().out
    run = shutil.copytree(trained_run, tmp_path / "run")
    config = read_run(run / "run.toml")
    test = Corpus(source="source", target="reference")
    data = config.data.model_copy(update={"root": str(tmp_path), "test": test})
    write_run(config.model_copy(update={"data": data}), run / "run.toml")
    assert main._run(["evaluate", str(run), "--precision", "float32"]) == 0
    assert capsys.readouterr().out == expected


def test_without_files_and_a_test_set_both_are_asked_for(trained_run, capsys):
    assert main._run(["evaluate", str(trained_run)]) == 2
    assert "give --source and --reference" in capsys.readouterr().err


@pytest.mark.parametrize(("given", "missing"), [("--source", "--reference"), ("--reference", "--source")])
def test_one_file_of_the_two_is_wrong_use(trained_run, capsys, given, missing):
    assert main._run(["evaluate", str(trained_run), given, "file"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert re.match(f"error: .*{missing}: missing: give both files", shown.err)


def test_what_the_options_say_is_what_holds():
    options = inspect.signature(verb).parameters
    (metric,) = options["metric"].annotation.__metadata__
    assert f": {', '.join(METRICS)}." in metric.help
    for option, default in (("samples", SAMPLES), ("seed", SEED), ("tokenize", Measures([]).tokenize)):
        assert options[option].annotation.__metadata__[0].help.endswith(f"[default: {default}]")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--metric", "blue"], "blue"),
        (["--metric", ""], "choose from bleu"),
        (["--tokenize", "14a"], "14a"),
        (["--beam-size", "0"], "beam size 0"),
        (["--reference", "missing"], "missing: no such file"),
        (["--against", "missing"], "missing: no such file"),
        (["--against", ".", "--metric", "perplexity"], "perplexity"),
        (["--samples", "10", "--seed", "2"], "--samples and --seed: for a comparison: give --against too"),
        (["--comet-model", "model.ckpt"], "--comet-model: for --metric comet"),
        (["--metric", "chrf,loss", "--tokenize", "none"], "--tokenize: for --metric bleu"),
        (["--metric", "loss", "--beam-size", "2"], "--beam-size: nothing is translated for --metric loss"),
        (["--metric", "loss", "--replace-unknown"], "--replace-unknown: no text is written with --metric loss"),
        (["--metric", "brackets", "--dictionary", "F"], "--dictionary: no text is written with --metric brackets"),
    ],
)
def test_bad_input_is_named(arguments, capsys, options, named):
    assert main._run([*arguments, *options]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert named in shown.err
    assert shown.err.count("\n") == 1
