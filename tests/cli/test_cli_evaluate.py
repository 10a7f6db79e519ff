import json

import pytest

from transduce.cli import main
from transduce.workflows.evaluate import evaluate

pytest_plugins = ["tiny_run"]


@pytest.fixture
def arguments(tmp_path, trained_run):
    (tmp_path / "source").write_text("bamo dulu kari luso\nwemo\n")
    (tmp_path / "reference").write_text("ti sor mup hax\nyob yob\n")
    files = ["--source", str(tmp_path / "source"), "--reference", str(tmp_path / "reference")]
    return ["evaluate", str(trained_run), "--precision", "float32", *files]


def test_json(arguments, translator, tmp_path, capsys):
    assert main._run([*arguments, "--metric", "chrf, bleu,perplexity", "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    scores = json.loads(shown.out)
    expected = evaluate(translator, tmp_path / "source", tmp_path / "reference", ["chrf", "bleu", "perplexity"])
    assert [score["metric"] for score in scores] == ["chrf", "bleu", "perplexity"]
    assert [score["value"] for score in scores] == pytest.approx([score.value for score in expected], rel=1e-5)
    assert "|version:" in scores[1]["signature"]


def test_a_line_for_each_score_with_its_signature(arguments, capsys):
    assert main._run([*arguments, "--metric", "bleu,ter"]) == 0
    bleu, ter = capsys.readouterr().out.splitlines()
    assert bleu.startswith("bleu ")
    assert "tok:13a" in bleu
    assert ter.startswith("ter ")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--metric", "blue"], "blue"),
        (["--metric", ""], "choose from bleu"),
        (["--tokenize", "14a"], "14a"),
        (["--beam-size", "0"], "beam size 0"),
        (["--reference", "missing"], "missing: no such file"),
    ],
)
def test_bad_input_is_named(arguments, capsys, options, named):
    assert main._run([*arguments, *options]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert named in shown.err
    assert shown.err.count("\n") == 1
