import pytest

from transduce.cli import main

pytest_plugins = ["tiny_run"]


def test_one_total_log_probability_a_line(trained_run, translator, tmp_path, capsys):
    sources, targets = ["bamo dulu", "wemo", "kari"], ["ti sor", "yob", "ti ti ti"]
    (tmp_path / "source").write_text("".join(f"{line}\n" for line in sources))
    (tmp_path / "target").write_text("".join(f"{line}\n" for line in targets))
    files = ["--source", str(tmp_path / "source"), "--target", str(tmp_path / "target")]
    assert main._run(["score", str(trained_run), *files]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert [float(line) for line in shown.out.splitlines()] == pytest.approx(
        translator.score(sources, targets), abs=1e-5
    )
    right, also_right, wrong = map(float, shown.out.splitlines())
    assert wrong < min(right, also_right)


def test_pairs_that_cannot_be_scored_are_nan_and_named(trained_run, tmp_path, capsys):
    (tmp_path / "source").write_text("bamo\n" + "bamo " * 3000 + "\nwemo\n" + "q" * 20_000 + "\n")
    (tmp_path / "target").write_text("ti\nti\n" + "ti " * 3000 + "\n" + " " * 200_000 + "\n")
    files = ["--source", str(tmp_path / "source"), "--target", str(tmp_path / "target")]
    assert main._run(["score", str(trained_run), *files]) == 1
    shown = capsys.readouterr()
    assert [line == "nan" for line in shown.out.splitlines()] == [False, True, True, True]
    said = shown.err.splitlines()
    assert [line.partition(": ")[2].partition(": ")[0] for line in said[:3]] == ["source 2", "target 3", "source 4"]
    assert said[3] == "error: 3 of 4 lines have no score (nan stands for each): line 2; line 3; line 4"
    allowed = ["--max-source-length", "4000"]
    assert main._run(["score", str(trained_run), *files, *allowed]) == 1
    assert [line == "nan" for line in capsys.readouterr().out.splitlines()] == [False, False, False, True]


def test_what_came_before_an_unreadable_line_is_scored(trained_run, tmp_path, capsys):
    (tmp_path / "source").write_bytes(b"bamo\nwemo\n\xff\n")
    (tmp_path / "target").write_text("ti\nyob\nti\n")
    files = ["--source", str(tmp_path / "source"), "--target", str(tmp_path / "target")]
    assert main._run(["score", str(trained_run), *files]) == 2
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 2
    assert "source line 3: invalid UTF-8" in shown.err


def test_files_of_different_length_are_named(trained_run, tmp_path, capsys):
    (tmp_path / "source").write_text("bamo\ndulu\n")
    (tmp_path / "target").write_text("ti\n")
    files = ["--source", str(tmp_path / "source"), "--target", str(tmp_path / "target")]
    assert main._run(["score", str(trained_run), *files]) == 2
    assert "has 2 lines" in capsys.readouterr().err


def test_columns_are_for_partitions(trained_run, tmp_path, capsys):
    files = [f"--source={tmp_path / 'a'}", f"--target={tmp_path / 'b'}"]
    assert main._run(["score", str(trained_run), *files, "--source-column", "text"]) == 2
    assert capsys.readouterr().err.startswith("error: --source-column: for partitions (--input) alone")
