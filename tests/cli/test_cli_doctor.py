from transduce.cli import main

pytest_plugins = ["tiny_run"]


def test_a_run_that_is_well(tiny_run_file, tmp_path, capsys):
    assert main._run(["doctor", str(tiny_run_file), "--out", str(tmp_path / "out")]) == 0
    shown, errors = capsys.readouterr()
    assert not errors
    assert all(line.startswith(("ok: ", "warning: ")) for line in shown.splitlines())
    assert "target tokens a second" in shown
    assert "GiB of memory" in shown
    assert not (tmp_path / "out").exists()


def test_a_problem_is_a_1(tiny_run_file, tmp_path, capsys):
    settings = ["--set", 'data.dev={source="nowhere", target="nowhere"}']
    assert main._run(["doctor", str(tiny_run_file), "--out", str(tmp_path), *settings]) == 1
    assert "problem: " in capsys.readouterr().out


def test_a_run_file_that_is_none_is_a_2(tmp_path, capsys):
    assert main._run(["doctor", str(tmp_path / "none.toml")]) == 2
    assert "none.toml" in capsys.readouterr().err
