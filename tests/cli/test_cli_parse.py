"""``transduce parse``: lines of words to lines of trees."""

import io
import json
import sys

import pytest

from transduce.cli import main
from transduce.text import parse_brackets

pytest_plugins = ["tiny_treebank"]


@pytest.fixture
def run(monkeypatch, capfd):
    """A verb on bytes of standard input: its status, its output, and its errors."""

    def call(*words, stdin=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        status = main._run([*map(str, words)])
        sys.stdout.flush()
        shown = capfd.readouterr()
        return status, shown.out, shown.err

    return call


def test_a_line_is_a_tree_and_an_empty_one_is_empty(run, trained_parser):
    status, out, err = run("parse", trained_parser, stdin="Luso fepi .\n\nHi\n( x ) é\n".encode())
    assert (status, err) == (0, "")
    lines = out.split("\n")
    assert lines[0] == "(S (NP (NNP Luso)) (VP (VBZ fepi)) (. .))"
    assert lines[1] == lines[4] == ""
    assert [parse_brackets(line).words for line in (lines[2], lines[3])] == [["Hi"], ["-LRB-", "x", "-RRB-", "é"]]


def test_files_and_scores(run, trained_parser, tmp_path):
    (tmp_path / "in.txt").write_text("Luso fepi .\n\n", encoding="utf-8")
    paths = ("--input", tmp_path / "in.txt", "--output", tmp_path / "out.jsonl")
    status, _, _ = run("parse", trained_parser, *paths, "--format", "jsonl", "--n-best", "3", "--beam-size", "5")
    found, empty = map(json.loads, (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines())
    assert status == 0
    assert len(found["alternatives"]) == 2
    assert found["score"] > found["alternatives"][0]["score"]
    assert empty == {"tree": "", "score": None, "log_probability": None, "confidence": None}
    status, out, _ = run("parse", trained_parser, "--input", tmp_path / "in.txt", "--n-best", "3")
    assert out.count("\n") == 6  # as many lines for each sentence


def test_running_text_drawn(run, trained_parser):
    status, out, _ = run("parse", trained_parser, "--raw", "--format", "pretty", stdin=b"Luso doesn't fepi.\n")
    assert status == 0
    assert out.rstrip("\n").split("\n")[-1].split() == ["Luso", "does", "n't", "fepi", "."]


def test_repair_counts(run, trained_parser):
    status, out, err = run("parse", trained_parser, "--repair", stdin=b". . . . . . .\nLuso fepi .\n")
    assert status == 0
    assert len(out.splitlines()) == 2
    assert "1 of 2 trees had to be repaired" in err
    quiet = ("--repair", "--min-confidence", "1", "--quiet")
    assert run("parse", trained_parser, *quiet, stdin=b". . . . . . .\n")[::2] == (0, "")


def test_trees_that_the_model_is_not_sure_of_are_left_out(run, trained_parser):
    sentences = b"Luso fepi .\n\nX Y Z . . Luso\n"
    _, out, _ = run("parse", trained_parser, "--format", "jsonl", stdin=sentences)
    sure, none, unsure = (json.loads(line)["confidence"] for line in out.splitlines())
    assert none is None
    assert 0 < unsure < sure <= 1
    bound = str((sure + unsure) / 2)
    status, out, err = run("parse", trained_parser, "--min-confidence", bound, stdin=sentences)
    assert status == 0
    assert [bool(line) for line in out.split("\n")] == [True, False, False, False]
    assert f"1 of 2 trees were left out: their confidence is below {bound}" in err
    assert run("parse", trained_parser, "--min-confidence", "1.5", stdin=sentences)[0] == 2
    options = ("--format", "jsonl", "--n-best", "4", "--beam-size", "4")
    parses = [json.loads(line) for line in run("parse", trained_parser, *options, stdin=sentences)[1].splitlines()]
    several = sorted(each["confidence"] for each in (parses[0], *parses[0].get("alternatives", ())))
    bound = (several[0] + several[-1]) / 2
    status, out, _ = run("parse", trained_parser, *options, "--min-confidence", str(bound), stdin=sentences)
    left = json.loads(out.splitlines()[0])
    kept = [each["confidence"] for each in (left, *left.get("alternatives", ()))]
    assert (status, sorted(kept)) == (0, [each for each in several if each >= bound])
    assert 0 < len(kept) < len(several)


def test_a_line_that_is_too_long_is_named(run, trained_parser):
    status, out, err = run("parse", trained_parser, "--max-source-length", "3", stdin=b"Luso fepi .\na b c d\n")
    assert status == 1
    assert out.splitlines()[1] == ""
    assert "line 2" in err


def test_no_parser(run, tmp_path):
    status, _, err = run("parse", tmp_path, stdin=b"a\n")
    assert status == 2
    assert str(tmp_path) in err


def test_evaluate_counts_brackets(run, trained_parser):
    status, out, err = run("evaluate", trained_parser, "--metric", "brackets,exact", "--beam-size", "1")
    assert (status, err) == (0, "")
    score, exact = out.splitlines()
    assert score.startswith("brackets ")
    assert float(score.split()[1]) > 80
    assert "rules:COLLINS.prm|sentences:12|" in score
    assert "|precision:" in score
    assert score.endswith("|failures:0.00")
    assert exact.startswith("exact ")


def test_a_treebank_is_a_test_set_of_its_own(run, trained_parser, tmp_path):
    treebank = tmp_path / "gold.trees"
    treebank.write_text(
        "( (S (NP-SBJ (NNP Luso)) (VP (VBZ fepi)) (. .)) )\n(S (NP (NNP Luso)) (VP (VBZ fepi)) (. .))\n",
        encoding="utf-8",
    )
    status, out, err = run("evaluate", trained_parser, "--metric", "brackets", "--reference", treebank, "--json")
    assert (status, err) == (0, "")
    (score,) = json.loads(out)
    assert score["value"] == 100
    assert score["details"]["failures"] == 0
    assert run("evaluate", trained_parser, "--reference", treebank)[0] == 2  # BLEU is of texts


def test_trees_are_compared_with_another_parsers(run, trained_parser, tmp_path):
    treebank, others = tmp_path / "gold.trees", tmp_path / "others"
    tree = "(S (NP (NNP Luso)) (VP (VBZ fepi)) (. .))"
    treebank.write_text(f"{tree}\n" * 4, encoding="utf-8")
    # Right; nothing; one of two brackets right; right, for functions of phrases do not count.
    wrong = "(S (NP (NNP Luso) (VBZ fepi)) (. .))"
    others.write_text(f"{tree}\n\n{wrong}\n(TOP {tree.replace('NP', 'NP-SBJ', 1)})\n", encoding="utf-8")
    compared = ("evaluate", trained_parser, "--metric", "brackets", "--reference", treebank, "--against")
    for other, ours, theirs in ((others, 100, 70), (trained_parser, 100, 100)):
        status, out, err = run(*compared, other, "--json", "--samples", "20")
        assert (status, err) == (0, "")
        (comparison,) = json.loads(out)
        assert comparison["ours"]["value"] == pytest.approx(ours)
        assert comparison["theirs"]["value"] == pytest.approx(theirs)
    for lines, named in (
        (f"{tree}\n" * 3, "3 lines for 4 sources"),
        (f"{tree}\n{tree[:-1]}\n{tree}\n{tree}\n", "output 2: unbalanced"),
        (f"{tree}\n{tree}\n(S (NNP Luso))\n{tree}\n", "output 3: the words differ"),
    ):
        others.write_text(lines, encoding="utf-8")
        status, _, err = run(*compared, others)
        assert status == 2
        assert named in err


def test_brackets_are_of_treebanks(run, trained_parser, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_text("Luso fepi .\n", encoding="utf-8")
    files = ("--source", tmp_path / "a", "--reference", tmp_path / "b")
    status, _, err = run("evaluate", trained_parser, "--metric", "brackets", *files)
    assert status == 2
    assert "the test set is no treebank" in err
