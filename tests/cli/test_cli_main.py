import gc
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import transduce
from transduce.cli import main
from transduce.config import TransduceError

COMMAND = [str(Path(sys.executable).with_name("transduce"))]
VERBS = ["demo", "prepare", "train", "translate", "score", "evaluate", "average", "inspect", "reproduce"]


def test_help_comes_in_under_half_a_second():
    """By its name and as a module."""
    seconds = []
    for command in (COMMAND, [sys.executable, "-m", "transduce"], COMMAND):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        # The processor's time: the clock's depends on what else the machine does.
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert done.stderr == ""
        assert all(f"\n  {verb} " in done.stdout for verb in VERBS)
    assert min(seconds) < 0.5


@pytest.mark.parametrize("arguments", [["--help"], *([verb, "--help"] for verb in VERBS), ["--version"], ["bogus"]])
def test_none_of_it_imports_torch(arguments):
    check = (
        "import sys; from transduce.cli import main; main._run(sys.argv[1:]); "
        "sys.exit(bool({'torch', 'numpy', 'tokenizers', 'pyarrow'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", check, *arguments], capture_output=True, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(capsys, verb):
    assert main._run([verb, "--help"]) == 0
    shown = capsys.readouterr()
    assert f"Usage: transduce {verb} [OPTIONS]" in shown.out
    assert all(f"\n  {switch} " in shown.out for switch in ("--debug", "-q, --quiet", "-v, --verbose"))
    assert shown.err == ""


def test_what_is_imported_is_seldom_looked_through(monkeypatch):
    before, during = gc.get_threshold(), []
    monkeypatch.setattr(main, "_run", lambda _: during.append(gc.get_threshold()[0]))
    try:
        with pytest.raises(SystemExit):
            main.run()
    finally:
        gc.set_threshold(*before)
    assert during == [main.BETWEEN_COLLECTIONS]


def test_version(capsys):
    assert main._run(["--version"]) == 0
    assert capsys.readouterr() == (transduce.__version__ + "\n", "")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["translat"], "translat"),
        (["--bogus"], "--bogus"),
        (["translate"], "MODEL"),
        (["translate", "m", "--beam", "3"], "--beam"),
        (["translate", "m", "--beam-size", "many"], "--beam-size"),
        (["translate", "m", "--format", "xml"], "xml"),
        (["translate", "m", "--precision", "float64"], "float64"),
        (["doctor", "r.toml", "s.toml"], "s.toml"),
        (["evaluate", "m", "--source", "s"], "--reference"),
        (["train"], "RUN.toml"),
        (["train", "r.toml", "--out"], "--out"),
    ],
)
def test_wrong_use_is_one_line_and_a_2(capsys, arguments, named):
    assert main._run(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1
    assert named in shown.err
    verb = arguments[0] if arguments[0] in {"translate", "doctor", "evaluate", "train"} else ""
    verb = "" if named == "--out" else verb  # found before the verb is
    assert f"see {' '.join(['transduce', verb]).strip()} --help" in shown.err
    assert "Value error" not in shown.err


def test_no_command_is_wrong_use(capsys):
    assert main._run([]) == 2
    assert capsys.readouterr() == ("", "error: Missing command: see transduce --help\n")


def test_what_a_shell_makes_of_a_pattern_is_told(capsys):
    assert main._run(["score", "model", "--input", "a.en", "b.en"]) == 2
    assert "(b.en), such as a shell makes of a pattern: put '*.en' in quotes" in capsys.readouterr().err
    assert main._run(["train", "a.toml", "b.toml"]) == 2  # which reads no patterns
    assert "(b.toml): see transduce train --help" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (TransduceError("the model\nbroke"), 1, "error: the model broke\n"),
        (PermissionError(13, "Permission denied", "runs/x"), 2, "error: runs/x: Permission denied: give"),
        (ValueError("nobody thought of this"), 1, "error: ValueError: nobody thought of this"),
        (MemoryError(), 1, "error: MemoryError"),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
    ],
)
def test_every_error_is_one_line(capsys, monkeypatch, error, status, line):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("transduce.workflows.inspect.inspect_model", fail)
    assert main._run(["inspect", "base"]) == status
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(line)
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize("place", [0, 1, 2])
def test_debug_shows_the_traceback_wherever_it_stands(place, capsys):
    arguments = ["inspect", "no/such/model"]
    arguments.insert(place, "--debug")
    assert main._run(arguments) == 2
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first.startswith("Traceback")
    assert last.startswith("error: no/such/model: ")


def test_presets_are_where_they_are_promised():
    import transduce

    assert transduce.config.presets.PRESETS["base"].d_model == 512


def test_the_list_of_verbs_cuts_no_description_short(capsys):
    assert main._run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert "..." not in shown.partition("Commands:")[2]
    assert all(len(line) <= 80 for line in shown.splitlines())


@pytest.mark.parametrize("verb", VERBS)
def test_help_fits_80_columns(verb, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main._run([verb, "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert "Path]" not in shown


def test_options_come_in_sections(capsys):
    assert main._run(["translate", "--help"]) == 0
    shown = capsys.readouterr().out
    titles = [line.partition(" (")[0].rstrip(":") for line in shown.splitlines() if line[:1].isalpha()][1:]
    assert titles == [
        "Arguments",
        "Input and output",
        "Search",
        "Several outputs for each line",
        "Sampling",
        "What an output must have",
        "Speed",
        "Folders of partitions, and clusters",
        "Options",
    ]
    parts = re.split(r"\n\n\w[^\n]*:\n", shown)[1:]
    sections = dict(zip(titles, parts, strict=True))
    assert "--beam-size" in sections["Search"]
    assert "--temperature" in sections["Sampling"]
    assert "--device" in sections["Speed"]
    assert "--debug" in sections["Options"]


class TestCompletion:
    def _complete(self, line):
        words = line.split(" ")
        environment = os.environ | {
            "_TRANSDUCE_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        }
        done = subprocess.run(COMMAND, capture_output=True, text=True, check=True, env=environment)
        assert done.stderr == ""
        return done.stdout.split()

    def test_verbs_options_and_choices(self):
        assert self._complete("transduce ver") == ["verify-resume"]
        assert self._complete("transduce translate --must") == ["--must-contain", "--must-not-contain"]
        assert self._complete("transduce translate model --precision b") == ["bfloat16"]

    def test_models_and_runs_are_left_to_the_shell_which_completes_files(self):
        for line in ("transduce translate ru", "transduce evaluate model --source s", "transduce train m"):
            assert self._complete(line) == []

    def test_a_shell_can_be_told(self, capsys):
        assert main._run(["--help"]) == 0
        assert "--install-completion" in capsys.readouterr().out
