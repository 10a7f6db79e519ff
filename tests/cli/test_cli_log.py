"""What the command line tells people, and how -q and -v change that."""

import logging
import os
import pty
import re
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from transduce.cli import main

COMMAND = [str(Path(sys.executable).with_name("transduce"))]
LINE = ["average", "run", "--last", "2", "--out", "m"]
# Where a switch may stand in it: not before a value.
PLACES = [0, 1, 2, 4, 6]
TOLD = {
    None: "told\nwarning: beware\n",
    "-q": "warning: beware\n",
    "--quiet": "warning: beware\n",
    "-v": "workflows.average: in detail\ntold\nwarning: beware\n",
    "--verbose": "workflows.average: in detail\ntold\nwarning: beware\n",
}


@pytest.fixture(autouse=True)
def _talk(monkeypatch):
    """``transduce average`` says something of each kind, and does nothing else."""
    log = logging.getLogger("transduce.workflows.average")

    def average(*_):
        log.debug("in detail")
        log.info("told")
        log.warning("beware")
        return [3, 5]

    monkeypatch.setattr("transduce.workflows.average.average", average)


def _with(switch, place):
    return [*LINE[:place], *([switch] if switch else []), *LINE[place:]]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("switch", TOLD)
def test_a_switch_anywhere_chooses_what_is_told_and_leaves_results_alone(switch, place, capsys):
    assert main._run(_with(switch, place)) == 0
    assert capsys.readouterr() == ("m: the mean of steps 3, 5\n", TOLD[switch])


@pytest.mark.parametrize("switch", ["-q", "-v", "--quiet", "--verbose", "--debug"])
def test_the_value_of_an_option_is_no_switch(switch, capsys):
    assert main._run(["average", "run", "--last", "2", "--out", switch]) == 0
    assert capsys.readouterr() == (f"{switch}: the mean of steps 3, 5\n", TOLD[None])


def test_behind_two_dashes_nothing_is_a_switch(capsys):
    assert main._run(["inspect", "--", "-q"]) == 2
    assert capsys.readouterr().err.startswith("error: -q: ")


@pytest.mark.parametrize(
    "arguments", [["-q", "-v", *LINE], ["-v", *LINE, "--quiet"], [*LINE, "-vq"], [*LINE, "--quiet", "--verbose"]]
)
def test_both_are_wrong_use(arguments, capsys):
    assert main._run(arguments) == 2
    assert capsys.readouterr() == ("", "error: --quiet and --verbose exclude each other: give one of them\n")


@pytest.mark.parametrize("arguments", [["-q", *LINE, "-q"], [*LINE, "--quiet", "-qq"]])
def test_twice_the_same_is_once(arguments, capsys):
    assert main._run(arguments) == 0
    assert capsys.readouterr().err == TOLD["-q"]


def test_every_run_of_a_process_starts_afresh_and_leaves_nothing(capsys):
    """Standard error is another one for each test, so the handler of an earlier run would write to a closed file."""
    log = logging.getLogger("transduce")
    before = log.level, log.propagate, list(log.handlers)
    for switch in ("-q", None, "-v", None):
        assert main._run(_with(switch, 0)) == 0
        assert capsys.readouterr().err == TOLD[switch]
    assert main._run(["-v", "bogus"]) == 2
    assert (log.level, log.propagate, list(log.handlers)) == before


def test_a_root_log_that_somebody_set_up_does_not_double_the_lines(capsys):
    handler = logging.StreamHandler(sys.stderr)
    logging.getLogger().addHandler(handler)
    try:
        assert main._run(LINE) == 0
    finally:
        logging.getLogger().removeHandler(handler)
    assert capsys.readouterr().err == TOLD[None]


def test_errors_are_told_to_the_quiet_too(capsys):
    assert main._run(["inspect", "no/such/model", "-q"]) == 2
    assert capsys.readouterr().err.startswith("error: no/such/model: ")


def test_a_closed_standard_error_does_not_send_the_log_among_the_results():
    line = f"{COMMAND[0]} report no/such/run 2>&-"  # a verb that needs no torch
    done = subprocess.run(["sh", "-c", line], stdout=subprocess.PIPE, check=False)
    assert (done.returncode, done.stdout) == (2, b"")


# A training as the report sees it; the bar is drawn anew at every step.
TRAINING = """
import logging, sys
from pathlib import Path
from transduce.cli.log import be_quiet, be_verbose, log_on_standard_error
from transduce.training import Report

with log_on_standard_error():
    be_quiet("-q" in sys.argv)
    be_verbose("-v" in sys.argv)
    with Report(Path(sys.argv[1]), max_steps=3, step=0) as report:
        for step in (1, 2, 3):
            report.advance(step)
            report._bar.refresh()
            report.train({"step": step, "loss": 0.0, "learning_rate": 0.5}, tokens_per_second=7)
            report.say(f"said at {step}")
            logging.getLogger("transduce.workflows").warning(f"warned at {step}")
"""


def _on_a_terminal(*arguments, program=TRAINING):
    """What is left to read on a terminal that a program had as its standard error, line by line."""
    child, terminal = pty.fork()  # which has imported torch
    if child == 0:
        _become(program, arguments)
    shown = b""
    try:
        while block := os.read(terminal, 65_536):
            shown += block
    except OSError:  # how Linux says that nobody writes any more
        pass
    os.close(terminal)
    assert os.waitpid(child, 0)[1] == 0
    rows = shown.decode().replace("\r", "").split("\n")
    # What was erased is gone; colours and the cursor do not matter.
    return [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", row.rpartition("\x1b[2K")[2]) for row in rows if row]


def _become(program, arguments):
    """Run a program in the place of this process, which is a child of its own."""
    status = 1
    try:
        logging.getLogger().handlers.clear()  # pytest's
        os.environ |= {"TERM": "xterm", "COLUMNS": "80"}
        sys.argv, sys.stderr = ["-c", *arguments], os.fdopen(2, "w", buffering=1)
        exec(program, {})
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def test_lines_do_not_tear_the_bar(tmp_path):
    *lines, bar = [row for row in _on_a_terminal(str(tmp_path / "metrics")) if row]
    assert lines == [line for step in (1, 2, 3) for line in (f"said at {step}", f"warning: warned at {step}")]
    assert re.fullmatch(r"3/3 ━+ loss 0\.000 ppl 1 7 tok/s rate 5\.0e-01 \S+\s*", bar)


def test_the_bar_ends_with_the_time_that_is_left(tmp_path):
    """By steps or by ``max_minutes``, as the loop says; rich's own estimate knows steps only."""
    program = TRAINING.replace("advance(step)", "advance(step, 3723 - step)")
    *_, bar = [row for row in _on_a_terminal(str(tmp_path / "metrics"), program=program) if row]
    assert re.fullmatch(r"3/3 ━+ loss 0\.000 ppl 1 7 tok/s rate 5\.0e-01 1:02:00\s*", bar)


SIGNALLED = """
import os, signal, sys
from transduce.training import Requests, listen

requests = Requests()
with listen(requests), requests.within_steps():
    sys.stderr.write("3/9 a bar")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGTERM)
"""


def test_the_notice_of_a_signal_has_a_line_of_its_own():
    """Behind a bar, which ends no line, or the ^C that a terminal shows."""
    assert _on_a_terminal(program=SIGNALLED) == [
        "3/9 a bar",
        "SIGTERM: stopping after this step, with a checkpoint; a second signal stops at once",
    ]


def test_the_verbose_see_the_bars_measurements_as_lines_too(tmp_path):
    lines = _on_a_terminal(str(tmp_path / "metrics"), "-v")
    told = "training.report: step {}  loss 0.000  perplexity 1.00  7 tokens/s  rate 5.00e-01"
    assert [line for line in lines if line.startswith("training.report: ")] == [told.format(n) for n in (1, 2, 3)]


def test_the_quiet_see_no_bar(tmp_path):
    assert _on_a_terminal(str(tmp_path / "metrics"), "-q") == [f"warning: warned at {step}" for step in (1, 2, 3)]
