"""Trainings of two processes of which one is killed, or one hears a signal."""

import json
import os
import random
import shutil
import signal
import sys
import time
from functools import partial
from itertools import count

import pytest

from tests.command import hear_ctrl_c
from tests.faults.faults import POINTS, Faults
from tests.faults.small import command, copy_prepared, ends_alike
from transduce.training import list_checkpoints, read_progress

pytest_plugins = ["tiny_run", "together"]


def _train(arguments, rank=None, *fault):
    """The command line; with a fault in the process of that rank."""
    from transduce.cli.main import run

    hear_ctrl_c()
    if fault and os.environ["RANK"] == str(rank):
        Faults(*fault).arm()
    sys.argv = ["transduce", *arguments]
    run()


@pytest.fixture(scope="module")
def train(tiny_run_file):
    # Until it is over, processes wait for one that died before they met.
    return partial(command, tiny_run_file, hang_minutes=0.5)


@pytest.fixture(scope="module")
def run(run_together):
    return partial(run_together, 2)


@pytest.fixture(scope="module")
def whole(train, run, tmp_path_factory):
    """A training of two processes that nothing happens to."""
    folder = tmp_path_factory.mktemp("whole")
    run(folder, _train, train(folder / "run"))
    return folder / "run"


@pytest.fixture
def root(whole, tmp_path):
    return copy_prepared(whole, tmp_path / "run")


def wait_for(started, rank, text):
    """Until this process has said it."""
    deadline = time.monotonic() + 120
    while text not in (started.said(rank) if started.logs[rank].exists() else ""):
        assert started.processes[rank].exitcode is None, started.said(0) + started.said(1)
        assert time.monotonic() < deadline, started.said(0) + started.said(1)
        time.sleep(0.01)


def wait_for_lines(started, number):
    """Until the training has begun and so much was measured, or it is over."""
    while started.processes[0].is_alive():
        said = started.said(0) if started.logs[0].exists() else ""
        if "on cpu in" in said and said.count(" loss ") >= number:
            return
        time.sleep(0.001)


def kill(started, rank):
    """Whether that process was killed, and had not ended: the other one ends by itself then."""
    started.processes[rank].kill()
    started.processes[1 - rank].join(90)
    assert started.processes[1 - rank].exitcode is not None, "it waits for a process that is dead"
    statuses = started.join()
    assert statuses[rank] in (0, -signal.SIGKILL), started.said(rank)
    return statuses[rank] != 0


@pytest.mark.slow
@pytest.mark.parametrize("kills", [3, 50])
def test_one_of_two_is_killed_at_random_moments(train, run, start_together, whole, root, tmp_path, kills):
    chance, starts = random.Random(kills), count()
    while kills:
        shutil.rmtree(root / "checkpoints", ignore_errors=True)
        killed = True
        while kills and killed:
            started, rank = start_together(2, tmp_path / str(next(starts)), _train, train(root)), kills % 2
            wait_for_lines(started, chance.randint(0, 10))
            time.sleep(chance.uniform(0, 0.05))  # about a step
            killed = kill(started, rank)
            kills -= killed
        run(tmp_path, _train, train(root))
        assert ends_alike(root, whole)


def dies_and_goes_on(train, run, started, whole, root, tmp_path):
    started.processes[0].join(90)
    started.processes[1].join(90)
    statuses = started.join()
    assert statuses[0] == -signal.SIGKILL, f"the training has no such event: {started.said(0)}"
    assert statuses[1] == 1
    assert "has lost the others" in started.said(1)
    assert "Traceback" in started.said(1)  # where it stood
    run(tmp_path, _train, train(root))
    assert ends_alike(root, whole)


@pytest.mark.parametrize(("point", "count"), [("rename", 9)])
def test_the_one_that_writes_dies_inside_a_checkpoint(train, run, start_together, whole, root, tmp_path, point, count):
    started = start_together(2, tmp_path, _train, train(root), 0, root, point, count)
    dies_and_goes_on(train, run, started, whole, root, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("count", [1, 2, 4, 6, 7])
def test_the_one_that_writes_dies_at_any_of_many_moments(
    train, run, start_together, whole, root, tmp_path, point, count
):
    started = start_together(2, tmp_path, _train, train(root), 0, root, point, count)
    dies_and_goes_on(train, run, started, whole, root, tmp_path)


@pytest.mark.parametrize(("number", "rank"), [(signal.SIGTERM, 1), (signal.SIGINT, 0)])
def test_a_stop_of_one_stops_both_with_a_checkpoint(train, start_together, root, tmp_path, number, rank):
    endless = {"max_steps": 10**6, "checkpoint_every": 10**6, "validate_every": 10**6}
    started = start_together(2, tmp_path, _train, train(root, **endless))
    wait_for(started, 0, "step 3 ")
    os.kill(started.processes[rank].pid, number)
    assert started.join() == [128 + number] * 2
    [(step, path)] = list_checkpoints(root / "checkpoints")
    assert step >= 3
    assert read_progress(path).asked
    for log in range(2):
        assert f"stopped by {number.name}: {path} is written, --resume goes on from there" in started.said(log)


def test_a_checkpoint_that_one_is_asked_for_is_written(train, start_together, root, tmp_path):
    endless = {"max_steps": 10**6, "checkpoint_every": 10**6, "validate_every": 10**6}
    started = start_together(2, tmp_path, _train, train(root, **endless))
    wait_for(started, 0, "step 3 ")
    os.kill(started.processes[1].pid, signal.SIGUSR1)
    wait_for(started, 0, "checkpoint written")
    [(step, path)] = list_checkpoints(root / "checkpoints")
    assert read_progress(path).asked
    wait_for(started, 0, f"step {step + 2} ")
    os.kill(started.processes[0].pid, signal.SIGTERM)
    assert started.join() == [143, 143]


@pytest.mark.parametrize(("rank", "unvalidated"), [(0, True), pytest.param(1, False, marks=pytest.mark.slow)])
def test_a_stop_while_dev_is_translated_reaches_all(train, run, start_together, root, tmp_path, rank, unvalidated):
    """The first one leaves dev for later; of another, it is heard once dev is measured. Nothing is measured twice."""
    # Translating dev with what one step has learned takes far longer than the step.
    settings = train(root, max_steps=2, validate_every=1, checkpoint_every=10)
    started = start_together(2, tmp_path, _train, settings)
    wait_for(started, 0, "step 1  loss")
    os.kill(started.processes[rank].pid, signal.SIGTERM)
    assert started.join() == [143, 143]
    [(step, path)] = list_checkpoints(root / "checkpoints")
    assert (step, read_progress(path).unvalidated) == (1, unvalidated)
    run(tmp_path, _train, settings)
    lines = [json.loads(line) for line in (root / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], line["split"]) for line in lines] == [(1, "train"), (1, "dev"), (2, "train"), (2, "dev")]
