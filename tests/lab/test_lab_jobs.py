"""Trainings of a table at the same time, each in a process of its own: what they come to, fail of, and stop at."""

import io
import json
import os
import shutil
import signal
import threading
import time
from dataclasses import replace

import pytest
import torch

from transduce.config import VARIATIONS, StoppedError, TransduceError, read_run
from transduce.lab import jobs, measurement, reproduce, table3_trainings, worker
from transduce.lab.measurement import read_jobs, read_measurements
from transduce.lab.regime import make_regime
from transduce.lab.table3_trainings import Plan, reproduce_table3
from transduce.training import Progress, list_checkpoints
from transduce.workflows.corpus_folder import find_corpora
from transduce.workflows.run_directory import RunDirectory

pytest_plugins = ["tiny_run"]

ROW = next(row for row in VARIATIONS if row.preset == "table3-c-n2")
# What the clock says, and how many there were.
OTHER = {"seconds": 0.0, "flops_by_time": None, "decoded_sentences": None, "decoded_tokens": None, "jobs": 1}
PATIENCE = 120  # seconds


def silent(_):
    pass


@pytest.fixture(scope="module", autouse=True)
def _no_picture():
    """Drawing takes longer than these trainings, and has its own test."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(table3_trainings, "import_draw", lambda: lambda lines, path: path.write_text(str(len(lines))))
        yield


@pytest.fixture(scope="module")
def plan(short_text):
    """Base and a row with one layer, one seed, two steps, on few short lines of dev."""
    return Plan(find_corpora(short_text), [ROW], seeds=1, steps=2, device="cpu")


@pytest.fixture(scope="module")
def in_turn(plan, tmp_path_factory):
    """Base with two seeds, one after the other, on a processor that is named by its number."""
    out = tmp_path_factory.mktemp("out") / "table3"
    reproduce_table3(replace(plan, rows=[], seeds=2, device="cpu:0"), out, silent)
    return out


def runs(out, name):
    """Measurements without what company changes."""
    return [run.model_copy(update=OTHER) for run in read_measurements(out, name)]


def test_one_that_fails_in_turn_ends_no_other_either(plan, in_turn, tmp_path):
    """Base's first seed is in the way of nothing but itself, and the same command tries it again."""
    out, said = tmp_path / "out", []
    plan = replace(plan, rows=[], seeds=2)
    shutil.copytree(in_turn, out)
    shutil.rmtree(out / "base-seed2")
    (out / "base-seed1" / "measured.json").unlink()
    newest = list_checkpoints(RunDirectory(out / "base-seed1").checkpoints)[-1][1]
    kept = (newest / "model.safetensors").read_bytes()
    (newest / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(TransduceError, match=r"out: 1 of 2 trainings failed: base-seed1: the reasons are above"):
        reproduce_table3(plan, out, said.append)
    assert any(line.startswith("training 1 of 2: base-seed1: failed: ") for line in said)
    assert said[-1] == f"{out / 'table3.md'}: 1 of 2 trainings"
    assert runs(out, "base") == runs(in_turn, "base")[1:]
    (newest / "model.safetensors").write_bytes(kept)
    reproduce_table3(plan, out, silent)
    assert runs(out, "base") == runs(in_turn, "base")


def test_a_signal_in_turn_ends_all(plan, tmp_path, monkeypatch):
    def stop(*_):
        raise StoppedError("stopped by SIGTERM", signal.SIGTERM)

    monkeypatch.setattr(reproduce, "finish", stop)
    with pytest.raises(StoppedError, match=r"stopped by SIGTERM: .* the same command goes on"):
        reproduce_table3(plan, tmp_path, silent)


def test_one_that_fails_ends_no_other_and_all_come_to_what_they_do_in_turn(plan, in_turn, tmp_path):
    """A file stands in the way of base's second seed; when it is gone, the same command trains that one alone."""
    out, said = tmp_path / "out", []
    plan = replace(plan, rows=[], seeds=2)
    out.mkdir()
    (out / "base-seed2").write_text("in the way")
    with pytest.raises(TransduceError, match=r"out: 1 of 2 trainings failed: base-seed2: the reasons are above"):
        reproduce_table3(replace(plan, jobs=2), out, said.append)
    named = {line.split(": ")[1]: line for line in said if line.startswith("training ")}
    assert named["base-seed1"].startswith("training 1 of 2: base-seed1: perplexity ")
    assert named["base-seed2"].startswith("training 2 of 2: base-seed2: failed: ")
    assert said[-1] == f"{out / 'table3.md'}: 1 of 2 trainings"
    assert runs(out, "base") == runs(in_turn, "base")[:1]
    assert "Up to 2 of them ran at a time (`--jobs`)" in (out / "table3.md").read_text()
    (out / "base-seed2").unlink()
    reproduce_table3(plan, out, silent)
    assert runs(out, "base") == runs(in_turn, "base")
    assert [run.jobs for run in read_measurements(out, "base")] == [2, 1]


@pytest.mark.slow
def test_a_signal_stops_all_at_a_checkpoint_and_the_same_command_goes_on(plan, in_turn, tmp_path, monkeypatch):
    steps, names = 5000, ["base-seed1", f"{ROW.preset}-seed1"]
    folders = [RunDirectory(tmp_path / name) for name in names]
    plan, over = replace(plan, steps=steps), threading.Event()

    def regime(*given):
        return make_regime(*given).model_copy(update={"log_every": 1})

    def stop():
        """Once both have taken a step."""
        end = time.monotonic() + PATIENCE
        while not over.wait(0.01) and time.monotonic() < end:
            if all(folder.metrics.is_file() and folder.metrics.stat().st_size for folder in folders):
                os.kill(os.getpid(), signal.SIGTERM)
                return

    monkeypatch.setattr(table3_trainings, "make_regime", regime)
    stopper = threading.Thread(target=stop)
    stopper.start()
    try:
        with pytest.raises(StoppedError, match=r"stopped by SIGTERM: .* the same command goes on") as stopped:
            reproduce_table3(replace(plan, jobs=2), tmp_path, silent)
    finally:
        over.set()
        stopper.join()
    assert stopped.value.status == 128 + signal.SIGTERM
    came_to = [list_checkpoints(folder.checkpoints)[-1][0] for folder in folders]
    assert all(0 < step < steps for step in came_to)
    # Whoever finishes them, the clock was not theirs alone.
    assert [read_jobs(folder) for folder in folders] == [2, 2]
    began = []

    def train(config, run, *, resume, **_):
        began.append((run.root.name, resume))
        return Progress(step=steps)

    monkeypatch.setattr(reproduce, "train_run", train)
    monkeypatch.setattr(
        reproduce, "measure", lambda run, _: shutil.copy(in_turn / "base-seed1" / "measured.json", run.root)
    )
    reproduce_table3(plan, tmp_path, silent)
    assert began == [(name, True) for name in names]


def test_what_is_not_begun_where_the_input_ends_is_not_begun(monkeypatch):
    """An interrupt while a process still starts: its first job and the end are there before it looks."""
    monkeypatch.setattr("sys.stdin", io.StringIO("a job\n"))
    lines = worker.Input()
    end = time.monotonic() + PATIENCE
    while not lines.ended and time.monotonic() < end:
        time.sleep(0.01)
    assert lines.take() is None


@pytest.mark.parametrize("ended", [False, True])
def test_a_signal_from_elsewhere_is_no_end_of_the_budget(ended, in_turn, tmp_path, monkeypatch):
    def stop(*_):
        raise StoppedError("stopped by SIGTERM", signal.SIGTERM)

    monkeypatch.setattr(worker, "finish", stop)
    lines = object.__new__(worker.Input)
    lines.ended = ended
    config = read_run(RunDirectory(in_turn / "base-seed1").config)
    job = json.loads(jobs.Job("a title", config, tmp_path / "run").to_line())
    session = reproduce.Session.begin(PATIENCE, silent, device="cpu")
    failure = {} if ended else {"failure": "stopped by SIGTERM"}
    assert worker._work(job, RunDirectory(in_turn / "base-seed1"), session, lines) == {"finished": False, **failure}


def test_where_the_time_is_over_nothing_is_begun(plan, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "_Process", None)
    said = []
    reproduce_table3(replace(plan, jobs=2), tmp_path, said.append, budget=0.0)
    assert said[-1].endswith("0 of 2 trainings: the budget is used up, the same command goes on")


def test_a_process_that_dies_is_told_of_by_its_training(plan, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "_WORKER", "transduce.no_such_module")
    names, said = [f"{name}-seed{seed}" for name in ("base", ROW.preset) for seed in (1, 2)], []
    with pytest.raises(TransduceError, match=f"4 of 4 trainings failed: {', '.join(names)}: "):
        reproduce_table3(replace(plan, seeds=2, jobs=2), tmp_path, said.append)
    failed = [line for line in said if line.endswith(": failed: its process died (status 1)")]
    assert sorted(line.split(": ")[1] for line in failed) == names


def test_processes_share_threads_and_take_devices_by_turns(plan, in_turn, tmp_path, monkeypatch):
    asked = []

    class Process:
        def __init__(self, settings, device):
            asked.append((settings.threads, device))

        def train(self, job):
            shutil.copytree(in_turn / "base-seed1", job.root)
            return jobs.Outcome(finished=True)

        def close(self):
            pass

        wait = close

    monkeypatch.setattr(jobs, "_Process", Process)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    monkeypatch.setattr(reproduce, "_find_devices", lambda _: tuple(torch.device("cuda", each) for each in range(2)))
    barrier = threading.Barrier(3)
    train = Process.train
    monkeypatch.setattr(Process, "train", lambda self, job: barrier.wait(PATIENCE) < 3 and train(self, job))
    shutil.copytree(in_turn / "base-seed1", tmp_path / "base-seed1")
    reproduce_table3(replace(plan, seeds=2, jobs=3), tmp_path, silent)
    assert asked == [(2, "cuda:0"), (2, "cuda:1"), (2, "cuda:0")]


def test_without_a_name_all_gpus_are_taken(monkeypatch):
    assert reproduce._find_devices(torch.device("cpu")) == (torch.device("cpu"),)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert reproduce._find_devices(None) == (torch.device("cpu"),)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert reproduce._find_devices(None) == tuple(torch.device("cuda", number) for number in range(3))


def test_a_model_is_measured_where_it_was_trained(in_turn, tmp_path, monkeypatch):
    """Speed and rate too: the bundle that is read lies on the CPU, wherever the translator computes."""
    out = shutil.copytree(in_turn, tmp_path / "out")
    devices = []
    translator, rate = measurement.Translator, measurement.measure_rate

    def translate(bundle, precision, device):
        devices.append(device)
        return translator(bundle, precision, torch.device("cpu"))

    def sustain(dtype, device):
        devices.append(device)
        return rate(dtype, torch.device("cpu"))

    monkeypatch.setattr(measurement, "Translator", translate)
    monkeypatch.setattr(measurement, "measure_rate", sustain)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"card {device.index}")
    measured = measurement.measure(RunDirectory(out / "base-seed1"), torch.device("cuda", 1))
    assert devices == [torch.device("cuda", 1)] * 2
    assert measured.machine == "card 1"


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
def test_several_train_and_are_measured_on_one_gpu(plan, tmp_path):
    reproduce_table3(replace(plan, rows=[], seeds=2, jobs=2, device="cuda:0"), tmp_path, silent)
    found = read_measurements(tmp_path, "base")
    assert [(run.seed, run.jobs, run.machine) for run in found] == [
        (seed, 2, torch.cuda.get_device_name(0)) for seed in (1, 2)
    ]
    # By the rate of the card, in company too: no processor multiplies so fast.
    assert min(run.flops_by_time / run.seconds for run in found) > 5e12


def test_a_run_remembers_its_largest_company(tmp_path):
    run = RunDirectory(tmp_path)
    assert read_jobs(run) == 1
    for jobs_, known in ((1, 1), (5, 5), (3, 5)):
        measurement.note_jobs(run, jobs_)
        assert read_jobs(run) == known
