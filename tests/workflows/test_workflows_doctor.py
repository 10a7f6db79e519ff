import json
import re
import shutil

import pytest
import torch

from transduce.bundle import load_bundle
from transduce.config import TrainConfig, preset, read_run
from transduce.workflows import doctor, trial
from transduce.workflows.doctor import _settings, _sizes, examine
from transduce.workflows.initialize import read_training
from transduce.workflows.prepare import prepare
from transduce.workflows.run_directory import RunDirectory
from transduce.workflows.train import train_run
from transduce.workflows.trial import OutOfMemoryError, Trial, bfloat16_gain, full_batch, try_training

pytest_plugins = ["tiny_run"]

CPU, FLOAT32 = torch.device("cpu"), TrainConfig(precision="float32")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """No training step: what is found beside it."""
    monkeypatch.setattr(doctor, "try_training", lambda *_: Trial({2: 1000.0}, 2**30))
    monkeypatch.setattr(
        doctor, "try_batch_sizes", lambda _, train, *__: {train.batch_tokens * k // 2: 9.0 for k in (2, 1, 4)}
    )


@pytest.fixture
def copied(tiny_run_file, tmp_path):
    """The run file and its corpora, to be spoiled."""
    return shutil.copytree(tiny_run_file.parent, tmp_path / "corpus") / tiny_run_file.name


def found(run_file, out, *settings):
    return list(examine(read_run(run_file, settings), RunDirectory(out)))


def texts(findings, kind):
    return [finding.text for finding in findings if finding.kind == kind]


def test_a_run_that_is_well(tiny_run_file, tmp_path):
    findings = found(tiny_run_file, tmp_path / "out")
    assert not texts(findings, "problem")
    shown = "\n".join(finding.text for finding in findings)
    assert "train.src" in shown
    assert "211 pairs can be read" in shown
    # 400 steps of at most 256 target tokens, 1,000 of them a second
    assert "1,000 target tokens a second (threads: 2): at most 2 min for train.max_steps = 400" in shown
    assert "matrix products in float32" in shown
    assert not (tmp_path / "out").exists()


def test_the_steps_that_the_clock_leaves(tiny_run_file, tmp_path):
    """A step of 256 target tokens takes 0.256 s."""
    findings = found(tiny_run_file, tmp_path, "train.max_minutes=0.2")
    assert any(
        "train.max_minutes = 0.2 ends the training at about step 47 (at most 2 min for train.max_steps = 400)" in text
        for text in texts(findings, "ok")
    )
    assert any(
        "at about step 47, within the warm-up of train.warmup_steps = 60" in text for text in texts(findings, "warning")
    )


def test_a_prepared_run_says_how_many_epochs_it_is(tiny_run_file, tmp_path):
    run = RunDirectory(tmp_path)
    prepared = prepare(read_run(tiny_run_file), run)
    (line,) = (text for text in texts(found(tiny_run_file, tmp_path), "ok") if "are prepared" in text)
    assert line.startswith(f"{len(prepared.train):,} pairs are prepared: ")


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("train.warmup_steps=400", "train.warmup_steps = 400 of train.max_steps = 400"),
        ("train.validate_every=401", "train.validate_every = 401 is beyond train.max_steps"),
    ],
)
def test_settings_that_are_hardly_meant(setting, words, tiny_run_file, tmp_path):
    assert any(words in text for text in texts(found(tiny_run_file, tmp_path, setting), "warning"))


@pytest.mark.parametrize("prepared", [True, False])
def test_more_epochs_than_anybody_wants(prepared, tiny_run_file, tmp_path):
    """The default of train.max_steps is the paper's, and 211 pairs are 4 batches."""
    if prepared:
        prepare(read_run(tiny_run_file), RunDirectory(tmp_path))
    settings = ["train.max_steps=100_000", "train.accumulate=2"]
    (warning,) = [text for text in texts(found(tiny_run_file, tmp_path, *settings), "warning") if "epochs" in text]
    begin = "211 pairs are prepared: " if prepared else "211 pairs, by estimate: "
    epochs = int(re.match(rf"{begin}([\d,]+) epochs of them in train.max_steps = 100,000", warning)[1].replace(",", ""))
    steps = int(re.search(r"train.max_steps = ([\d,]+) are 100 epochs", warning)[1].replace(",", ""))
    assert 100_000 / epochs * 100 == pytest.approx(steps, rel=0.05)
    assert f"train.warmup_steps = {steps // 10:,}" in warning
    for ended in ("train.early_stop=3", "train.max_minutes=7"):
        findings = found(tiny_run_file, tmp_path, *settings, ended)
        assert not [text for text in texts(findings, "warning") if "epochs" in text]
        assert any(f"if {ended.split('=')[0]} does not end it before" in text for text in texts(findings, "ok"))


def test_a_prepared_vocabulary_that_came_out_small(tiny_run_file, tmp_path):
    settings = ["tokenizer.vocab_size=9000"]
    prepare(read_run(tiny_run_file, settings), RunDirectory(tmp_path))
    warnings = texts(found(tiny_run_file, tmp_path, *settings), "warning")
    assert any("tokenizer: only " in text for text in warnings)
    assert any("many symbols will hardly be seen: take 300 or fewer" in text for text in warnings)


def test_every_problem_is_named_and_not_the_first_alone(copied, tmp_path):
    with (copied.parent / "train.trg").open("a", encoding="utf-8") as file:
        file.write("one line more\n")
    (copied.parent / "dev.src").write_bytes(b"\xff\n")
    first, second = texts(found(copied, tmp_path / "out"), "problem")
    assert "212" in first
    assert "dev.src" in second
    assert "UTF-8" in second


def test_a_missing_file(copied, tmp_path):
    (copied.parent / "train.src").unlink()
    (problem,) = texts(found(copied, tmp_path / "out"), "problem")
    assert "train.src: no such file" in problem


def test_every_missing_file(copied, tmp_path):
    for name in ("train.src", "dev.trg"):
        (copied.parent / name).unlink()
    problems = texts(found(copied, tmp_path / "out"), "problem")
    assert [problem.split(": ")[0] for problem in problems] == [
        str(copied.parent / "train.src"),
        str(copied.parent / "dev.trg"),
    ]


def test_an_empty_corpus(copied, tmp_path):
    for side in ("src", "trg"):
        (copied.parent / f"train.{side}").write_text("")
    (problem,) = texts(found(copied, tmp_path / "out"), "problem")
    assert "no pair in it" in problem


def test_many_empty_sides(copied, tmp_path):
    (copied.parent / "train.src").write_text("\n" * 199 + "bamo\n" * 12)
    (warning,) = [text for text in texts(found(copied, tmp_path / "out"), "warning") if "empty" in text]
    assert "199 of them are left out: empty side 199" in warning


def test_a_pair_that_no_batch_holds(tiny_run_file, tmp_path):
    prepare(read_run(tiny_run_file), RunDirectory(tmp_path))
    problems = texts(found(tiny_run_file, tmp_path, "train.batch_tokens=3"), "problem")
    assert any("train.batch_tokens = 3" in text for text in problems)


def test_a_file_where_the_run_directory_belongs(tiny_run_file, tmp_path):
    (tmp_path / "out").write_text("")
    (problem,) = texts(found(tiny_run_file, tmp_path / "out" / "run"), "problem")
    assert "not a folder that can be written" in problem


def test_a_full_disk(tiny_run_file, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))
    (problem,) = texts(found(tiny_run_file, tmp_path), "problem")
    assert "checkpoints and the store take" in problem
    assert "make room" in problem


def test_a_training_that_is_there(trained_run, tiny_run_file):
    findings = found(tiny_run_file, trained_run)
    assert any("holds a training at step 400: train --resume" in text for text in texts(findings, "ok"))


def test_a_training_that_cannot_go_on_with_these_settings(trained_run, tiny_run_file):
    config = read_run(tiny_run_file, ["model.d_ff=40"])
    problems = [each.text for each in examine(config, RunDirectory(trained_run)) if each.kind == "problem"]
    assert any("cannot go on with other settings: model.d_ff was " in text for text in problems)


def test_a_budget_that_the_longest_pair_may_not_fit(tiny_run_file, tmp_path):
    """Nothing is prepared, so that nobody knows whether there is such a pair."""
    config = read_run(tiny_run_file, ["train.batch_tokens=60", "data.max_length=64"])
    found = [each for each in _settings(config, None) if "data.max_length" in each.text]
    assert [each.kind for each in found] == ["warning"]
    assert not [each for each in _settings(read_run(tiny_run_file), None) if "data.max_length" in each.text]


def test_a_training_that_begins_with_a_model(trained_run, tiny_run_file, tmp_path):
    """What the run file leaves out is the model's, its vocabulary above all."""
    run, run_file = RunDirectory(tmp_path / "run"), tmp_path / "fine.toml"
    data = tiny_run_file.read_text().partition("[model]")[0]
    run_file.write_text(data.partition("[tokenizer]")[0] + "[train]\nbatch_tokens = 256\nmax_steps = 10\n")
    config = read_training(run_file, [f"data.root={tiny_run_file.parent}"], run, resume=True, init=trained_run)
    assert config.model.d_model == load_bundle(trained_run).config.d_model
    assert _sizes(config, None)["vocab_size"] == load_bundle(trained_run).config.vocab_size
    text = [each.text for each in examine(config, run, trained_run)]
    assert any("a model that the training can begin with" in each for each in text)
    config = read_run(tiny_run_file, ["model.d_model=48"])
    problems = [each.text for each in examine(config, run, trained_run) if each.kind == "problem"]
    assert any("d_model" in text for text in problems)


def test_a_training_that_begins_with_a_model_of_another_vocabulary(trained_run, tiny_run_file, tmp_path):
    config, run = read_run(tiny_run_file, ["tokenizer.symbols=['<new>']"]), RunDirectory(tmp_path / "run")

    def find(**options):
        return [
            (each.kind, each.text)
            for each in examine(config, run, trained_run, **options)
            if each.text.startswith(str(trained_run))
        ]

    # Before anything is prepared nobody knows what vocabulary there will be.
    ((kind, text),) = find()
    assert (kind, "a tokenizer of its own (tokenizer.kind = 'bpe')" in text) == ("warning", True)
    assert [kind for kind, _ in find(carry_vocabulary=True)] == ["ok"]
    prepare(config, run)
    ((kind, text),) = find()
    assert (kind, "2 only here (' <new>', '<new>')" in text) == ("problem", True)
    assert [kind for kind, _ in find(carry_vocabulary=True)] == ["ok"]


def test_a_tokenizer_that_is_missing_is_one_problem_among_others(tiny_run_file, tmp_path):
    config = read_run(tiny_run_file, ["tokenizer.kind=existing", f"tokenizer.path={tmp_path}/none.json"])
    problems = [each.text for each in examine(config, RunDirectory(tmp_path / "run")) if each.kind == "problem"]
    assert any("none.json" in text for text in problems)


def test_too_little_memory(tiny_run_file, tmp_path, monkeypatch):
    def fail(*_):
        raise OutOfMemoryError("tried to allocate 7 GiB")

    monkeypatch.setattr(doctor, "try_training", fail)
    (warning,) = [text for text in texts(found(tiny_run_file, tmp_path), "warning") if "memory" in text]
    assert "train.batch_tokens = 256 needs more memory than there is: a training in one process splits it" in warning
    assert "7 GiB" in warning


def test_memory_that_is_nearly_all_there_is(tiny_run_file, tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "_available", lambda: 2**30)
    assert any("close to too much" in text for text in texts(found(tiny_run_file, tmp_path), "warning"))


def test_threads_that_are_faster_are_advised(tiny_run_file, tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "try_training", lambda *_: Trial({4: 1000.0, 2: 1500.0, 1: 1505.0}, 0))
    (warning,) = [text for text in texts(found(tiny_run_file, tmp_path), "warning") if "threads" in text]
    assert warning == "--threads 1 (or OMP_NUM_THREADS=1) is 1.5 times as fast"


def test_a_batch_size_that_is_as_fast_as_others_is_left(tiny_run_file, tmp_path):
    said = texts(found(tiny_run_file, tmp_path), "ok")
    assert "train.batch_tokens = 256 is no slower than 128 or 512" in said


@pytest.mark.parametrize(
    ("speeds", "accumulate", "kind", "words"),
    [
        ({256: 1000.0, 128: 1200.0}, 3, "warning", "128 is 1.2 times as fast as 256: with train.accumulate = 6 each"),
        ({256: 1000.0, 512: 1200.0}, 4, "warning", "512 is 1.2 times as fast as 256: with train.accumulate = 2 each"),
        ({256: 1000.0, 512: 1200.0}, 3, "ok", "512 is 1.2 times as fast as 256, but no train.accumulate gives a"),
        ({256: 1000.0}, 1, "ok", "256 is the only size tried"),
    ],
)
def test_what_another_batch_size_would_bring(speeds, accumulate, kind, words, tiny_run_file, tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "try_batch_sizes", lambda *_: speeds)
    findings = found(tiny_run_file, tmp_path, f"train.accumulate={accumulate}")
    assert any(f"train.batch_tokens = {words}" in text for text in texts(findings, kind))


def test_half_and_twice_the_batch_are_tried_where_they_fit(monkeypatch):
    tried = []

    def try_training(model, config, batches, device, *, other_threads):
        (batch,) = batches
        tried.append(batch.target.size)
        if batch.target.size > 100:
            raise OutOfMemoryError
        return Trial({1: 7.0}, 0)

    monkeypatch.setattr(trial, "try_training", try_training)
    model, config = preset("tiny", {"vocab_size": 101}), TrainConfig(batch_tokens=60)
    assert trial.try_batch_sizes(model, config, 10, CPU, 1000.0) == {60: 1000.0, 30: 7.0}
    assert tried == [30, 120]
    assert trial.try_batch_sizes(model, config, 40, CPU, 1.0) == {60: 1.0}  # too short a half, too slow a double


@pytest.mark.parametrize(
    ("setting", "words"),
    [("model.dropout=0.1", "a C++ kernel"), ("model.positions=relative", "PyTorch's operations on padded sentences")],
)
def test_how_attention_is_computed(setting, words, tiny_run_file, tmp_path, monkeypatch):
    monkeypatch.setattr("transduce.kernels.ragged_attention.has_native", lambda *_: True)
    said = texts(found(tiny_run_file, tmp_path, setting), "ok")
    assert f"attention over 25 tokens a sentence: {words}" in said


def test_the_chosen_format_is_the_one_that_a_training_uses(tiny_run_file, tmp_path, monkeypatch):
    """One choice behind both: what it says decides what doctor prints and what ``train`` multiplies in."""
    for fast, name in ((True, "bfloat16"), (False, "float32")):
        monkeypatch.setattr("transduce.kernels.precision._multiplies_bfloat16_fast", lambda _, fast=fast: fast)
        said = texts(found(tiny_run_file, tmp_path, "train.precision=auto"), "ok")
        assert f"matrix products in {name}, which auto means on this machine" in said
        run = RunDirectory(tmp_path / name)
        train_run(read_run(tiny_run_file, ["train.precision=auto", "train.max_steps=1"]), run, resume=False)
        state = json.loads((run.checkpoints / "step-1" / "state.json").read_text())
        assert state["fixed"]["train.precision"] == name


@pytest.mark.parametrize(
    ("fast", "gain", "kind", "words"),
    [
        (True, 2.5, "ok", "measured now, products in bfloat16 are 2.5 times as fast as in float32"),
        (False, 0.3, "ok", "measured now, products in bfloat16 are 3.3 times as slow as in float32"),
        (True, 0.5, "warning", 'if it stays so set train.precision = "float32"'),
        (False, 2.5, "warning", 'train.precision = "bfloat16" makes use of it'),
    ],
)
def test_the_formats_are_measured_beside_the_table(fast, gain, kind, words, tiny_run_file, tmp_path, monkeypatch):
    monkeypatch.setattr("transduce.kernels.precision._multiplies_bfloat16_fast", lambda _: fast)
    monkeypatch.setattr("transduce.workflows.doctor.bfloat16_gain", lambda _: gain)
    said = texts(found(tiny_run_file, tmp_path, "train.precision=auto"), kind)
    assert any(words in each for each in said)


def test_the_gain_is_of_products():
    assert 0 < bfloat16_gain(CPU) < 1000


def test_a_gain_within_the_noise_is_no_advice():
    assert Trial({4: 1000.0, 2: 1050.0}, 0).best == 4


def test_steps_are_measured():
    model = preset("tiny", {"vocab_size": 101, "encoder_layers": 1, "decoder_layers": 1})
    threads = torch.get_num_threads()
    found = try_training(model, FLOAT32, [full_batch(model, 64, 7)], CPU)
    assert found.now == threads == torch.get_num_threads()
    assert min(found.speeds.values()) > 0
    # Weights, gradients and two moments, four bytes each.
    assert found.memory > 0


def test_a_step_that_fails_for_want_of_memory(monkeypatch):
    def fail(*_):
        raise RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 7 bytes.")

    monkeypatch.setattr(trial, "train_step", fail)
    model = preset("tiny", {"vocab_size": 101, "encoder_layers": 1, "decoder_layers": 1})
    with pytest.raises(OutOfMemoryError, match="7 bytes"):
        try_training(model, FLOAT32, [full_batch(model, 64, 7)], CPU)


def test_a_full_batch_fills_the_budget():
    model = preset("tiny", {"vocab_size": 101, "source_vocab_size": 53})
    batch = full_batch(model, 1000, 7)
    assert batch.source.shape == batch.target.shape == (142, 7)
    assert batch.source.max() < 53
    assert batch.target_tokens == 142 * 7
