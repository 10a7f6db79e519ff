"""Steps without numbers, and steps without memory, in whole trainings."""

import json
import logging

import numpy as np
import pytest
import torch

from tests.training.test_training_loop import CONFIG, Notes, _metrics, _train, corpora  # noqa: F401 - a fixture
from transduce.config import TransduceError
from transduce.training import Watch, list_checkpoints, loop, recovery, step
from transduce.training.step import compute_loss

SOUND = CONFIG.model_copy(update={"max_steps": 12, "checkpoint_every": 2, "log_every": 1, "validate_every": 12})


_FULL = torch.OutOfMemoryError("CUDA out of memory: 7 GiB")


class AllBut(set[int]):
    """What is not in it."""

    def __contains__(self, item):
        return not super().__contains__(item)


def weights(folder, step):
    return (folder / "checkpoints" / f"step-{step}" / "model.safetensors").read_bytes()


def state(folder, step):
    return json.loads((folder / "checkpoints" / f"step-{step}" / "state.json").read_text())


@pytest.fixture
def poison(monkeypatch):
    """Make the loss of some batches NaN: those of which the call's number, or the first pair's row, is named."""

    def apply(rows):
        calls = []

        def compute(model, batch, dtype, seed=None):
            sums = compute_loss(model, batch, dtype, seed)
            if not torch.is_grad_enabled():
                return sums
            calls.append(int(batch.rows[0]))
            factor = float("nan") if calls[-1] in rows else 1.0
            return type(sums)(sums.objective * factor, sums.nll * factor, sums.tokens)

        monkeypatch.setattr("transduce.training.step.compute_loss", compute)
        return calls

    return apply


@pytest.fixture(scope="module")
def healthy(corpora, tmp_path_factory):  # noqa: F811
    """A training that nothing happens to, and the first row of every step's batch."""
    folder, rows = tmp_path_factory.mktemp("sound") / "healthy", []

    def compute(model, batch, dtype, seed=None):
        if torch.is_grad_enabled():
            rows.append(int(batch.rows[0]))
        return compute_loss(model, batch, dtype, seed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transduce.training.step.compute_loss", compute)
        _train(folder, corpora, SOUND)
    return folder, rows


@pytest.fixture
def rows(healthy):
    return healthy[1]


def test_a_batch_without_a_gradient_moves_nothing(tmp_path, corpora, poison, healthy, caplog):  # noqa: F811
    healthy, rows = healthy
    poison({rows[4]})
    _, progress = _train(tmp_path / "run", corpora, SOUND)
    assert progress.step == 12
    assert progress.health.skipped == rows[:12].count(rows[4])
    assert weights(tmp_path / "run", 4) == weights(healthy, 4)
    assert weights(tmp_path / "run", 6) != weights(healthy, 6)
    (warning,) = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.startswith("step 5 (epoch 0 window 0 batch 4): the gradient's norm is nan, the loss nan: skipped")
    steps = [line for line in _metrics(tmp_path / "run") if line["split"] == "train"]
    assert [line["step"] for line in steps if "loss" not in line][:1] == [5]  # it has none, and not 0
    losses = [line["loss"] for line in steps if "loss" in line]
    assert np.isfinite(losses).all() and min(losses) > 1
    assert [line["skipped"] for line in steps[3:6]] == [0, 1, 1]
    assert [line["step"] for line in steps if "gradient_norm" not in line][:1] == [5]
    assert _metrics(tmp_path / "run")[-1]["target_tokens"] < _metrics(healthy)[-1]["target_tokens"]


def test_after_three_in_a_row_it_goes_back_and_leaves_them_out(tmp_path, corpora, poison, rows, caplog):  # noqa: F811
    poison(set(rows[5:8]))
    _, progress = _train(tmp_path / "run", corpora, SOUND)
    assert progress.step == 12
    assert [place.batch for place in progress.health.excluded] == [5, 6, 7]
    assert (progress.health.skipped, progress.health.back_to, progress.health.in_a_row) == (3, 4, 0)
    # After step 4 and its four batches comes a fifth one; the sixth step learns from the ninth batch.
    assert state(tmp_path / "run", 6)["batch"] == 9
    steps = [line for line in _metrics(tmp_path / "run") if line["split"] == "train"]
    assert [(line["step"], line["skipped"]) for line in steps] == [(step, 3 * (step > 4)) for step in range(1, 13)]
    assert any(
        "gradients of 3 steps in a row, to step 8, are infinite or NaN: going back to step 4, and on without epoch 0 "
        "window 0 batch 5, epoch 0 window 0 batch 6, epoch 0 window 0 batch 7" in record.message
        for record in caplog.records
    )


def test_an_interruption_behind_it_changes_nothing(tmp_path, corpora, poison, rows):  # noqa: F811
    poison(set(rows[5:8]))
    _train(tmp_path / "whole", corpora, SOUND)
    for stop in (4, 5, 7, 9, None):
        _train(tmp_path / "parts", corpora, SOUND, stop_after=stop)
    assert weights(tmp_path / "parts", 12) == weights(tmp_path / "whole", 12)
    lines = [[{**line, "seconds": 0} for line in _metrics(tmp_path / name)] for name in ("parts", "whole")]
    assert lines[0] == lines[1]
    parts, whole = state(tmp_path / "parts", 12), state(tmp_path / "whole", 12)
    assert parts["health"] == whole["health"]
    assert (parts["epoch"], parts["batch"]) == (whole["epoch"], whole["batch"])


def test_one_checkpoint_that_is_kept_is_one_to_go_back_to(tmp_path, corpora, poison, rows):  # noqa: F811
    poison(set(rows[5:8]))
    _, progress = _train(tmp_path / "run", corpora, SOUND.model_copy(update={"keep_checkpoints": 1}))
    assert (progress.step, progress.health.back_to) == (12, 4)


def test_going_back_forgets_no_best_model(tmp_path, corpora, poison, rows):  # noqa: F811
    """Dev is measured at step 6, amid failing steps: what is the best by then is on disk, whatever follows."""
    poison(set(rows[5:8]))
    config = SOUND.model_copy(update={"validate_every": 6})
    _, progress = _train(tmp_path / "run", corpora, config, Notes([9.0, 5.0, 4.0]))
    assert progress.health.back_to == 4
    assert (progress.best_step, progress.best_score) == (6, 9.0)
    assert progress.stale == 2  # measurements since then


@pytest.mark.parametrize(("bleus", "stale"), [([9, 4, 3, 2, 1, 1, 1], 11), ([5, 4, 3, 2, 9, 1, 1], 8)])
def test_what_is_measured_again_after_going_back_counts_once(tmp_path, corpora, poison, rows, bleus, stale):  # noqa: F811
    """Measured at every step; from step 7 back to 4, then eight times more. The best is of step 1, or of step 5."""
    poison(set(rows[5:8]))
    config = SOUND.model_copy(update={"validate_every": 1, "checkpoint_every": 4})
    _, progress = _train(tmp_path / "run", corpora, config, Notes([float(bleu) for bleu in bleus]))
    assert (progress.health.back_to, progress.step) == (4, 12)
    assert progress.stale == stale


def test_the_way_back_may_take_as_long_as_it_will(tmp_path, corpora, poison, rows, monkeypatch):  # noqa: F811
    """What ends a process that hangs is for steps: it would end one that reads a checkpoint from a slow disk."""
    poison(set(rows[5:8]))
    watched = []

    def go_back(*given):
        assert watched[-1] is None
        watched.append("back")
        return recovery.go_back(*given)

    monkeypatch.setattr(Watch, "beat", lambda _, what: watched.append(what))
    monkeypatch.setattr(Watch, "rest", lambda _: watched.append(None))
    monkeypatch.setattr(loop, "go_back", go_back)
    _train(tmp_path / "run", corpora, SOUND)
    assert watched.count("back") == 1


def test_the_list_is_on_disk_before_the_training_goes_on(tmp_path, corpora, poison, rows, monkeypatch):  # noqa: F811
    poison(set(rows[5:8]))
    taught = []

    def read_step_batches(*arguments):
        taught.append(arguments)
        if len(taught) == 2:
            raise RuntimeError("power cut")
        return step.read_step_batches(*arguments)

    monkeypatch.setattr(loop, "read_step_batches", read_step_batches)
    with pytest.raises(RuntimeError, match="power cut"):
        _train(tmp_path / "run", corpora, SOUND)
    assert [batch for _, _, batch in state(tmp_path / "run", 4)["health"]["excluded"]] == [5, 6, 7]
    # What was written amid the failing steps is of a course that is left.
    assert [step for step, _ in list_checkpoints(tmp_path / "run" / "checkpoints")][-1] == 4


def test_before_any_checkpoint_there_is_no_way_back(tmp_path, corpora, poison, rows):  # noqa: F811
    poison(set(rows[:3]))
    with pytest.raises(TransduceError, match=r"3 steps in a row, to step 3, .*no checkpoint to go back to.*warmup"):
        _train(tmp_path / "run", corpora, SOUND.model_copy(update={"checkpoint_every": 100}))


def test_a_checkpoint_of_failing_steps_is_none_to_go_back_to(tmp_path, corpora, poison, rows):  # noqa: F811
    """Nor to go on from with other settings: the weights themselves may be wrecked."""
    poison(set(rows[:3]))
    with pytest.raises(TransduceError, match=r"no checkpoint to go back to") as caught:
        _train(tmp_path / "run", corpora, SOUND)
    assert [step for step, _ in list_checkpoints(tmp_path / "run" / "checkpoints")] == [2]
    assert "checkpoints: all in it were written while gradients failed" in str(caught.value)
    assert "): train anew with another --out: lower train.learning_rate" in str(caught.value)


def test_it_does_not_go_back_for_ever(tmp_path, corpora, poison, rows):  # noqa: F811
    poison(AllBut(rows[:2]))
    with pytest.raises(TransduceError, match=r"though the training went back to step 2: lower"):
        _train(tmp_path / "run", corpora, SOUND)
    assert [step for step, _ in list_checkpoints(tmp_path / "run" / "checkpoints")] == [
        2,
        4,
    ]  # the latter of no sound step


@pytest.fixture
def little_memory(monkeypatch):
    """A device that has room for so many pairs at once."""

    def apply(pairs, error=_FULL, after=0):
        sizes = []

        def compute(model, batch, dtype, seed=None):
            if torch.is_grad_enabled():
                sizes.append(len(batch.source))
                if sizes[-1] > pairs and len(sizes) > after:
                    raise error
            return compute_loss(model, batch, dtype, seed)

        for module in ("step", "micro_batches"):
            monkeypatch.setattr(f"transduce.training.{module}.compute_loss", compute)
        return sizes

    return apply


# A step of batches cut in so many parts takes as long as ten others.
FEW = SOUND.model_copy(update={"max_steps": 4})


@pytest.fixture(scope="module")
def few_steps(corpora, tmp_path_factory):  # noqa: F811
    """Some steps of whole batches."""
    folder = tmp_path_factory.mktemp("sound") / "few"
    _train(folder, corpora, FEW)
    return folder


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 7 bytes"),
    ],
)
def test_batches_are_cut_before_the_first_step_and_every_step_learns_the_same(
    tmp_path,
    corpora,  # noqa: F811
    few_steps,
    little_memory,
    caplog,
    error,
):
    sizes = little_memory(3, error)
    _, progress = _train(tmp_path / "parts", corpora, FEW)
    assert progress.micro_batches >= 4  # batches of 64 tokens a side have from eight pairs on
    assert max(sizes[-20:]) <= 3
    assert "of which the gradients are summed: every step learns the same" in caplog.text
    parts = [line["loss"] for line in _metrics(tmp_path / "parts")]
    assert parts == pytest.approx([line["loss"] for line in _metrics(few_steps)], rel=1e-4)


def test_how_it_was_cut_is_remembered(tmp_path, corpora, little_memory, caplog):  # noqa: F811
    little_memory(3)
    _train(tmp_path / "run", corpora, FEW, stop_after=3)
    assert state(tmp_path / "run", 3)["micro_batches"] >= 4
    caplog.clear()
    _train(tmp_path / "run", corpora, FEW)
    assert "too little memory" not in caplog.text


def test_memory_that_ends_later_cuts_later(tmp_path, corpora, few_steps, little_memory):  # noqa: F811
    little_memory(3, after=4)
    _train(tmp_path / "parts", corpora, FEW)
    assert state(tmp_path / "parts", 2)["micro_batches"] == 1
    assert state(tmp_path / "parts", 4)["micro_batches"] >= 4
    parts = [line["loss"] for line in _metrics(tmp_path / "parts")]
    assert parts == pytest.approx([line["loss"] for line in _metrics(few_steps)], rel=1e-4)


def test_a_pair_that_is_too_large_for_memory(tmp_path, corpora, little_memory):  # noqa: F811
    little_memory(0)
    with pytest.raises(TransduceError, match=r"a single pair needs more memory than there is.*data\.max_length"):
        _train(tmp_path / "run", corpora, SOUND)


def test_other_errors_are_raised(tmp_path, corpora, little_memory):  # noqa: F811
    little_memory(0, RuntimeError("shapes differ"))
    with pytest.raises(RuntimeError, match="shapes differ"):
        _train(tmp_path / "run", corpora, SOUND)


@pytest.fixture
def little_memory_for_dev(monkeypatch):
    """A device that has none for the longest pairs of dev, as long as ``there`` is empty."""

    def apply(there, error=_FULL):
        def compute(model, batch, dtype, seed=None):
            if not there:
                raise error
            return compute_loss(model, batch, dtype, seed)

        monkeypatch.setattr("transduce.training.validation.compute_loss", compute)

    return apply


@pytest.mark.parametrize(("step", "regular"), [(4, True), (5, False)])
def test_memory_that_is_too_small_for_dev_loses_no_step(
    tmp_path,
    corpora,  # noqa: F811
    little_memory_for_dev,
    step,
    regular,
):
    """The checkpoint that is due, or one beside the others, is written before dev is measured."""
    config = SOUND.model_copy(update={"validate_every": step, "max_steps": 8})
    _train(tmp_path / "whole", corpora, config)
    there = []
    little_memory_for_dev(there)
    with pytest.raises(TransduceError, match=r"too small to measure dev \(CUDA out of memory: 7 GiB\)") as caught:
        _train(tmp_path / "run", corpora, config)
    longest = max(range(len(corpora.dev)), key=lambda row: sum(map(len, corpora.dev.pair(row))))
    length = len(corpora.dev.pair(longest)[0])
    named = f"of its 12 pairs the longest is number {longest + 1}, of {length} source and {length} target tokens"
    assert named in str(caught.value)
    assert f"stands at step {step}, and no step of it is lost: " in str(caught.value)
    left = state(tmp_path / "run", step)
    assert (left["unvalidated"], left["asked"]) == (True, not regular)
    with pytest.raises(TransduceError, match="too small to measure dev"):  # still
        _train(tmp_path / "run", corpora, config)
    there.append("more")
    _train(tmp_path / "run", corpora, config)
    assert weights(tmp_path / "run", 8) == weights(tmp_path / "whole", 8)
    lines = [[{**line, "seconds": 0} for line in _metrics(tmp_path / name)] for name in ("run", "whole")]
    assert lines[0] == lines[1]


def test_other_errors_of_measuring_dev_are_raised(tmp_path, corpora, little_memory_for_dev):  # noqa: F811
    little_memory_for_dev([], RuntimeError("shapes differ"))
    with pytest.raises(RuntimeError, match="shapes differ"):
        _train(tmp_path / "run", corpora, SOUND)


def test_a_training_that_has_diverged_says_what_to_lower(tmp_path, corpora, monkeypatch, caplog):  # noqa: F811
    """Of a step and more whose loss is no ten nats below a uniform guess, for want of a real divergence."""
    monkeypatch.setattr("transduce.training.health._BEGINNING", 1)
    monkeypatch.setattr("transduce.training.health._LEARNED", 2)
    monkeypatch.setattr("transduce.training.health._WORSE", -10.0)
    _train(tmp_path, corpora, CONFIG.model_copy(update={"max_steps": 4}))
    [said] = [message for message in caplog.messages if "diverged" in message]
    assert said.startswith("step 2: the loss is about ")
    assert said.endswith("with a lower train.learning_rate_factor, or with more train.warmup_steps")
