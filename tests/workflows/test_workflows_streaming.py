"""Training on corpora that are read while it trains."""

import gzip
import json
import os
import shutil
import signal
import threading
import time

import pytest
import torch
from safetensors.torch import load_file

from transduce.cli.main import _run
from transduce.config import BadInputError, StoppedError, read_run
from transduce.data import stream
from transduce.training import join_processes, windows
from transduce.workflows import doctor
from transduce.workflows.doctor import examine
from transduce.workflows.run_directory import RunDirectory
from transduce.workflows.train import train_run
from transduce.workflows.trial import Trial

pytest_plugins = ["tiny_run", "together"]

SMALL = ("model.d_model=8", "model.d_ff=8", "train.batch_tokens=64", "train.max_steps=8", "train.validate_every=100")
STREAM = (*SMALL, "data.streaming=true", "data.shuffle_window=40", "data.max_length=60", "model.dropout=0.3")


@pytest.fixture
def corpus(tiny_run_file, tmp_path):
    """A run file whose training text is three compressed parts of JSON objects, and the parts' folder."""
    folder = tmp_path / "corpus"
    (folder / "parts").mkdir(parents=True)
    for name in ("dev.src", "dev.trg"):
        shutil.copy(tiny_run_file.parent / name, folder / name)
    sides = [(tiny_run_file.parent / f"train.{side}").read_text().splitlines() for side in ("src", "trg")]
    lines = [json.dumps({"source": left, "target": right}) + "\n" for left, right in zip(*sides, strict=True)]
    for name, start, stop in (("1", 0, 70), ("2", 70, 130), ("3", 130, 150)):
        with gzip.open(folder / "parts" / f"{name}.jsonl.gz", "wt") as file:
            file.writelines(lines[start:stop])
    settings = tiny_run_file.read_text().replace(
        '{ source = "train.src", target = "train.trg" }', '{ pairs = "parts" }'
    )
    (folder / "run.toml").write_text(settings)
    return folder / "run.toml", folder / "parts"


def run(run_file, out, *settings, stop_after=None, base=STREAM):
    directory = RunDirectory(out)
    config = read_run(run_file, (*base, *settings))
    return train_run(config, directory, resume=directory.has_checkpoints, stop_after=stop_after)


def weights(out, step):
    return load_file(out / "checkpoints" / f"step-{step}" / "model.safetensors")


def state(out, step):
    return json.loads((out / "checkpoints" / f"step-{step}" / "state.json").read_text())


def assert_same(one, other, step):
    left, right = weights(one, step), weights(other, step)
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)
    clock = {"seconds", "checkpoint_seconds"}
    left, right = state(one, step), state(other, step)
    assert {key: left[key] for key in left.keys() - clock} == {key: right[key] for key in right.keys() - clock}


def measured(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_an_interrupted_stream_trains_what_one_without_interruption_does(corpus, tmp_path, caplog):
    run_file, _ = corpus
    settings = ("tokenizer.bpe_dropout=0.2", "train.symbol_dropout=0.1", "train.accumulate=2", "train.log_every=1")
    run(run_file, tmp_path / "whole", *settings, "train.max_steps=12")
    for stop_after in (3, 7, None):
        run(run_file, tmp_path / "parts", *settings, "train.max_steps=12", stop_after=stop_after)
    assert_same(tmp_path / "whole", tmp_path / "parts", 12)
    end = state(tmp_path / "whole", 12)
    assert end["epoch"] > 0
    assert end["stream"]["files"][0].keys() == {"1.jsonl.gz", "2.jsonl.gz", "3.jsonl.gz"}
    assert not RunDirectory(tmp_path / "whole").train_store.exists()
    assert "parts: read while it trains" in RunDirectory(tmp_path / "whole").report.read_text()
    records = [line["records"] for line in measured(tmp_path / "whole") if line["split"] == "train"]
    assert records[0] == 40
    assert records == sorted(records)
    assert records[-1] > 150
    # What was read may not change.
    with gzip.open(run_file.parent / "parts" / "2.jsonl.gz", "wt") as file:
        file.write('{"source": "bamo", "target": "ti"}\n')
    with pytest.raises(BadInputError, match=r"parts: its file 2.jsonl.gz had \d+ bytes when it was read before"):
        run(run_file, tmp_path / "parts", *settings, "train.max_steps=13")
    with pytest.raises(BadInputError, match=r"cannot go on with other settings: data.shuffle_window was 40 and is 41"):
        run(run_file, tmp_path / "parts", *settings, "data.shuffle_window=41")


def test_a_window_with_room_for_all_trains_as_the_store_does(tiny_run_file, tmp_path):
    run(tiny_run_file, tmp_path / "store", base=SMALL)
    run(tiny_run_file, tmp_path / "stream", "data.streaming=true", "data.max_length=64", base=SMALL)
    stored, streamed = weights(tmp_path / "store", 8), weights(tmp_path / "stream", 8)
    assert all(torch.equal(stored[name], streamed[name]) for name in stored)
    assert "stream" not in state(tmp_path / "store", 8)
    assert not any("stream" in key or "at_end" in key for key in state(tmp_path / "store", 8)["fixed"])
    assert all("records" not in line for line in measured(tmp_path / "store"))
    with pytest.raises(BadInputError, match=r"data.streaming was False and is True"):
        run(tiny_run_file, tmp_path / "store", "data.streaming=true", "data.max_length=64", base=SMALL)


def test_a_training_may_end_with_its_text(corpus, tmp_path, caplog, capsys):
    run_file, _ = corpus
    settings = ("data.at_end=stop", "train.batch_tokens=128", "train.max_steps=1000", "train.validate_every=1000")
    caplog.set_level("INFO")
    progress = run(run_file, tmp_path / "out", *settings)
    assert progress.stream.ended
    assert progress.work.pairs == 150
    assert f"ended at step {progress.step} by data.at_end: all of the training corpora is read" in caplog.text
    assert "the training corpora are read to their end: " in caplog.text
    dev = [line["step"] for line in measured(tmp_path / "out") if line["split"] == "dev"]
    assert dev == [progress.step]
    caplog.clear()
    assert run(run_file, tmp_path / "out", *settings).step == progress.step
    assert "nothing to do" in caplog.text
    longer = progress.step + 3
    settings = ("data.at_end=repeat", "train.batch_tokens=128", f"train.max_steps={longer}")
    again = run(run_file, tmp_path / "out", *settings)
    assert (again.step, again.epoch) == (longer, 1)
    run(run_file, tmp_path / "repeat", *settings)
    assert all(
        torch.equal(*pair)
        for pair in zip(*(weights(tmp_path / name, longer).values() for name in ("out", "repeat")), strict=True)
    )
    assert _run(["report", str(tmp_path / "out"), "--out", str(tmp_path / "page.html")]) == 0


@pytest.fixture
def impatient(monkeypatch):
    for module in (stream, windows):
        monkeypatch.setattr(module, "_LOOK_SECONDS", 0.01)


def test_text_that_cannot_be_read_loses_no_step(corpus, tmp_path):
    run_file, parts = corpus
    # The tokenizer is learned from what can be read.
    settings = ("train.max_steps=16", "train.checkpoint_every=1000", "train.log_every=1", "tokenizer.learn_from=60")
    run(run_file, tmp_path / "whole", *settings)

    good = (parts / "3.jsonl.gz").read_bytes()
    (parts / "3.jsonl.gz").write_bytes(gzip.compress(b"no JSON\n"))
    with pytest.raises(BadInputError, match=r"3\.jsonl\.gz line 1"):
        run(run_file, tmp_path / "out", *settings)

    (left,) = (tmp_path / "out" / "checkpoints").glob("step-*")
    assert left.name == f"step-{measured(tmp_path / 'out')[-1]['step']}" != "step-0"
    (parts / "3.jsonl.gz").write_bytes(good)
    run(run_file, tmp_path / "out", *settings)
    assert_same(tmp_path / "whole", tmp_path / "out", 16)


def test_a_training_waits_for_what_is_still_being_written(corpus, tmp_path, impatient, caplog):
    run_file, parts = corpus
    caplog.set_level("INFO")
    settings = ("data.at_end=wait", "train.max_steps=1000", "train.validate_every=1000")
    whole = run(run_file, tmp_path / "whole", *settings[1:], "data.at_end=stop")
    (parts / "3.jsonl.gz").rename(parts / ".3.jsonl.gz")

    def write():
        while "waiting for its next file" not in caplog.text:
            time.sleep(0.01)
        (parts / ".3.jsonl.gz").rename(parts / "3.jsonl.gz")
        time.sleep(0.05)
        (parts / "_SUCCESS").touch()

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    grown = run(run_file, tmp_path / "grown", *settings, "tokenizer.learn_from=120")
    writer.join()
    assert grown.stream.ended
    assert (grown.step, grown.work.pairs) == (whole.step, 150)


def test_who_waits_for_text_can_be_stopped(corpus, tmp_path, impatient, caplog):
    run_file, parts = corpus
    caplog.set_level("INFO")
    settings = ("data.at_end=wait", "train.max_steps=1000", "train.validate_every=1000")

    def stop():
        while "waiting for its next file" not in caplog.text:
            time.sleep(0.01)
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGTERM)

    stopper = threading.Thread(target=stop, daemon=True)
    stopper.start()
    with pytest.raises(StoppedError, match=r"stopped by SIGTERM: .*step-\d+ is written, --resume goes on from there"):
        run(run_file, tmp_path / "out", *settings, "tokenizer.learn_from=100")
    stopper.join()
    (parts / "_SUCCESS").touch()
    ended = run(run_file, tmp_path / "out", *settings, "tokenizer.learn_from=100")
    run(run_file, tmp_path / "whole", *settings, "tokenizer.learn_from=100")
    assert_same(tmp_path / "out", tmp_path / "whole", ended.step)


def test_a_clock_ends_a_training_that_waits(corpus, tmp_path, impatient):
    run_file, _ = corpus
    settings = ("data.at_end=wait", "train.max_steps=1000", "tokenizer.learn_from=100", "train.max_minutes=0.03")
    progress = run(run_file, tmp_path / "out", *settings)
    assert 0 < progress.step < 1000
    assert progress.seconds >= 0.03 * 60
    assert [line["step"] for line in measured(tmp_path / "out") if line["split"] == "dev"] == [progress.step]
    assert run(run_file, tmp_path / "out", *settings).seconds == progress.seconds


def test_a_clock_that_ends_the_wait_measures_no_step_again(corpus, tmp_path, impatient):
    run_file, _ = corpus
    settings = ("data.at_end=wait", "train.max_steps=1000", "tokenizer.learn_from=100", "train.max_minutes=0.02")
    progress = run(run_file, tmp_path / "out", *settings, "train.validate_every=1", "train.best_metric=loss")
    steps = [line["step"] for line in measured(tmp_path / "out") if line["split"] == "dev"]
    assert steps == [*range(1, progress.step + 1)]
    assert progress.stale == progress.step - progress.best_step


def _train_as_one_of_several(run_file, out, *settings):
    for module in (stream, windows):
        setattr(module, "_LOOK_SECONDS", 0.05)  # noqa: B010 - it is final to all but tests
    config, directory = read_run(run_file, (*STREAM, *settings)), RunDirectory(out)
    with join_processes(1) as processes:
        train_run(config, directory, resume=directory.has_checkpoints, processes=processes)


def _wait_for(path, seconds=60):
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, path
        time.sleep(0.02)


@pytest.mark.slow
def test_several_processes_share_a_stream_that_grows(corpus, tmp_path, start_together):
    run_file, parts = corpus
    settings = ("data.at_end=wait", "train.max_steps=1000", "train.validate_every=1000", "train.checkpoint_every=1")
    settings += ("tokenizer.learn_from=100",)
    (parts / "3.jsonl.gz").rename(parts / ".3.jsonl.gz")
    together = start_together(2, tmp_path / "said", _train_as_one_of_several, run_file, tmp_path / "two", *settings)
    _wait_for(tmp_path / "two" / "checkpoints" / "step-5")
    (parts / ".3.jsonl.gz").rename(parts / "3.jsonl.gz")
    (parts / "_SUCCESS").touch()
    assert together.join() == [0, 0], together.said(0) + together.said(1)
    alone = run(run_file, tmp_path / "one", *settings)
    assert alone.stream.ended
    one, two = (weights(tmp_path / name, alone.step) for name in ("one", "two"))
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, two[name], rtol=1e-3, atol=1e-5)
    assert state(tmp_path / "two", alone.step)["work"] == state(tmp_path / "one", alone.step)["work"]
    assert state(tmp_path / "two", alone.step)["stream"] == state(tmp_path / "one", alone.step)["stream"]


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [1, 2, 3])
def test_several_processes_that_wait_stop_together_and_go_on(corpus, tmp_path, start_together, accumulate):
    run_file, parts = corpus
    settings = ("data.at_end=wait", "train.max_steps=1000", "train.validate_every=1000", "train.checkpoint_every=1")
    settings += ("tokenizer.learn_from=100", f"train.accumulate={accumulate}")
    start = (_train_as_one_of_several, run_file, tmp_path / "two", *settings)
    together = start_together(2, tmp_path / "said", *start)
    _wait_for(tmp_path / "two" / "checkpoints" / "step-2")
    time.sleep(3)
    os.kill(together.processes[1].pid, signal.SIGTERM)
    assert together.join() != [0, 0]
    assert all("SIGTERM" in together.said(rank) for rank in (0, 1))
    (parts / "_SUCCESS").touch()
    again = start_together(2, tmp_path / "again", *start)
    assert again.join() == [0, 0], again.said(0) + again.said(1)
    alone = run(run_file, tmp_path / "one", *settings)
    one, two = (weights(tmp_path / name, alone.step) for name in ("one", "two"))
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, two[name], rtol=1e-3, atol=1e-5)


def test_prepare_says_that_there_is_nothing_to_prepare(corpus, tmp_path, capsys):
    run_file, _ = corpus
    assert _run(["prepare", str(run_file), "--set", "data.streaming=true", "--out", str(tmp_path / "out")]) == 2
    assert "there is nothing to prepare: transduce train" in " ".join(capsys.readouterr().err.split())
    with pytest.raises(BadInputError, match=r"data.max_length = 256 is beyond train.batch_tokens = 64"):
        read_run(run_file, ("data.streaming=true", "train.batch_tokens=64"))


def test_the_doctor_reads_the_beginning_of_a_stream(corpus, tmp_path, monkeypatch):
    run_file, parts = corpus
    monkeypatch.setattr(doctor, "try_training", lambda *_: Trial({2: 1000.0}, 2**30))
    monkeypatch.setattr(doctor, "try_batch_sizes", lambda _, train, *__: {train.batch_tokens: 9.0})
    config, out = read_run(run_file, STREAM), RunDirectory(tmp_path / "out")
    said = [(finding.kind, finding.text) for finding in examine(config, out)]
    assert not [text for kind, text in said if kind == "problem"]
    assert any("parts: 150 pairs can be read" in text for _, text in said)
    shutil.rmtree(parts)
    config = read_run(run_file, (*STREAM, "data.at_end=wait"))
    said = [(finding.kind, finding.text) for finding in examine(config, out)]
    assert ("warning", f"{parts}: no pair in it yet: a training waits for its first file") in said
