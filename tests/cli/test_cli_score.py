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


def test_files_of_different_length_are_named(trained_run, tmp_path, capsys):
    (tmp_path / "source").write_text("bamo\ndulu\n")
    (tmp_path / "target").write_text("ti\n")
    files = ["--source", str(tmp_path / "source"), "--target", str(tmp_path / "target")]
    assert main._run(["score", str(trained_run), *files]) == 2
    assert "has 2 lines" in capsys.readouterr().err
