"""A run directory as a page: what is read, and what is said of what cannot be."""

import json
import re
import shutil

import pytest

from transduce.config import BadInputError, read_run
from transduce.workflows.prepare import prepare
from transduce.workflows.report import read_metrics, view_training
from transduce.workflows.run_directory import RunDirectory
from transduce.workflows.train import train_run

pytest_plugins = ["tiny_run"]

LINES = [{"step": 5, "split": "train"}, {"step": 10, "split": "train"}, {"step": 10, "split": "dev", "bleu": 1.5}]


def write(path, *rows):
    path.write_text("".join(rows), encoding="utf-8")
    return path


def row(line):
    return json.dumps(line) + "\n"


def test_the_page_says_what_was_trained(trained_run, tiny_config):
    page = view_training(RunDirectory(trained_run)).html()
    assert f"<h1>Training {trained_run.name}</h1>" in page
    assert "encoder_layers 1, decoder_layers 1, d_model 32, d_ff 64, heads 2" in page
    assert "max_steps 400, batch_tokens 256" in page
    assert "<dd>bpe, 400</dd>" in page
    assert "211 of 211 pairs kept" in page
    assert re.search(r"<dt>Best BLEU on dev</dt><dd>[\d.]+ at step 400", page)
    assert page.count('class="sample"') == 5
    (dev,) = [line for line in read_metrics(trained_run / "metrics.jsonl")[0] if line["split"] == "dev"]
    assert dev["samples"][0]["output"] in page


def test_the_best_is_that_of_the_training(tiny_run_file, tmp_path):
    """By the metric that decided, means of checkpoints among them, in two sittings."""
    settings = ["train.log_every=2", "train.validate_every=4", "train.checkpoint_every=4", "train.average_last=2"]
    settings += ["train.best_metric=chrf", "train.max_steps=24"]
    run = RunDirectory(tmp_path / "run")
    train_run(read_run(tiny_run_file, settings), run, resume=False, stop_after=9)
    progress = train_run(read_run(tiny_run_file, settings), run, resume=True)
    page = view_training(run).html()
    assert f"<dt>Best chrF on dev</dt><dd>{progress.best_score:.2f} at step {progress.best_step:,}" in page


@pytest.mark.parametrize("cut", [1, 2, 20])
def test_a_last_line_that_is_cut_short_is_said_and_left_out(tmp_path, cut):
    text = "".join(map(row, LINES))
    lines, notes = read_metrics(write(tmp_path / "metrics.jsonl", text[:-cut]))
    assert lines == LINES[: 3 if cut == 1 else 2]
    assert [note.partition(",")[0] for note in notes] == ([] if cut == 1 else ["the last line is cut short"])


def test_other_damage_is_counted_and_named(tmp_path):
    odd = ["7", "nothing", '{"step": -1, "split": "dev"}', '{"step": "5", "split": "dev"}', '{"step": 5}', 5000 * "["]
    between = "".join(f"{each}\n" for each in odd)
    path = write(tmp_path / "metrics.jsonl", row(LINES[0]), between, row(LINES[1]), "\n", row(LINES[2]), '{"st')
    lines, notes = read_metrics(path)
    assert lines == LINES
    assert [note.partition(" (")[0] for note in notes] == [
        "the last line is cut short, as a crash or a full disk leaves it: left out",
        "damaged lines are left out: 2, 3, 4, 5, 6 and 1 more",
    ]
    path.write_bytes(b"\xff\xfe\n" + row(LINES[0]).encode())
    assert read_metrics(path) == (LINES[:1], ["damaged lines are left out: 1"])


def test_damage_stands_on_the_page_and_in_the_log(trained_run, tmp_path, caplog):
    run = RunDirectory(shutil.copytree(trained_run, tmp_path / "run"))
    with run.metrics.open("a") as stream:
        stream.write('{"step": 410, "spl')
    assert "the last line is cut short" in view_training(run).html()
    assert f"{run.metrics}: the last line is cut short" in caplog.text


def test_a_run_that_measured_nothing_says_when_it_will(tiny_config, tmp_path):
    run = RunDirectory(tmp_path / "run")
    prepare(tiny_config, run)
    if not run.config.exists():
        shutil.copy(tiny_config.data.folder / "tiny.toml", run.config)
    with pytest.raises(BadInputError, match=r"metrics\.jsonl: is missing: nothing was trained yet; transduce train"):
        view_training(run)
    for text in ("", '{"st'):
        run.metrics.write_text(text)
        with pytest.raises(
            BadInputError, match=r"no measurement yet: the first one comes at step 50 \(train\.log_every\)"
        ):
            view_training(run)


def test_what_is_no_run_is_named(trained_run, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    model = shutil.copytree(trained_run / "best", tmp_path / "model")
    for root, said in (
        (tmp_path / "none", "no such run directory: give the folder that train --out named"),
        (empty, "not a run directory: run.toml is missing; give the folder that train --out named"),
        (model, "a model directory and no run: run.toml is missing; give the folder that train --out named"),
        (trained_run / "best", f"a model directory and no run: run.toml is missing; its run is {trained_run}"),
        (trained_run / "checkpoints", f"not a run directory: run.toml is missing; its run is {trained_run}"),
        (trained_run / "run.toml", "is a file, a run directory belongs here: the folder that train --out named"),
    ):
        with pytest.raises(BadInputError) as raised:
            view_training(RunDirectory(root))
        assert str(raised.value) == f"{root}: {said}"
