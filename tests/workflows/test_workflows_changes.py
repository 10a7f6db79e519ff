import logging
from pathlib import Path

import pytest

from transduce.config import BadInputError, RunConfig, read_run, write_run
from transduce.config.architectures import read_model
from transduce.training import Progress
from transduce.workflows.changes import find_changes, fix, tell_changes, tell_circumstances
from transduce.workflows.run_directory import RunDirectory

pytest_plugins = ["tiny_run"]


@pytest.mark.parametrize(
    ("setting", "before", "after", "effect"),
    [
        ("train.max_steps=500", 400, 500, "safe"),
        ("train.log_every=7", 50, 7, "safe"),
        ("train.early_stop=3", None, 3, "safe"),
        ("train.parallel=sharded", "data", "sharded", "safe"),
        ("train.hang_minutes=3", 10, 3, "safe"),
        ("generation.beam_size=7", 4, 7, "safe"),
        ("train.warmup_steps=61", 60, 61, "allowed"),
        ("train.learning_rate_factor=0.5", 0.4, 0.5, "allowed"),
        ("model.label_smoothing=0.2", 0.1, 0.2, "allowed"),
        ("train.seed=2", 1, 2, "refused"),
        ("train.batch_tokens=257", 256, 257, "refused"),
        ("train.accumulate=2", 1, 2, "refused"),
        ("model.heads=4", 2, 4, "refused"),
        ("tokenizer.vocab_size=401", 400, 401, "refused"),
        ("data.max_length=99", 256, 99, "refused"),
        ("data.train.weight=2.5", 1.0, 2.5, "refused"),
        ("data.dev.source=other", "dev.src", "other", "refused"),
    ],
)
def test_what_a_change_means(tiny_run_file, setting, before, after, effect):
    began, now = read_run(tiny_run_file), read_run(tiny_run_file, [setting])
    changes = [change for change in find_changes(began, now) if change.key not in {"model.d_k", "model.d_v"}]
    [change] = changes
    assert change.key.replace(".0.", ".") == setting.partition("=")[0]
    assert (change.before, change.after, change.effect) == (before, after, effect)


def test_a_constant_rate_may_take_the_schedules_place(tiny_run_file):
    began = read_run(tiny_run_file, ["train.learning_rate_factor=1.0"])
    now = read_run(tiny_run_file, ["train.learning_rate_factor=1.0", "train.learning_rate=3e-4"])
    [change] = find_changes(began, now)
    assert (change.key, change.before, change.after, change.effect) == ("train.learning_rate", None, 3e-4, "allowed")


def test_where_the_rate_falls_to_the_end_more_steps_are_another_training(tiny_run_file):
    settings = ["train.cooldown_steps=10"]
    began, now = (read_run(tiny_run_file, [*settings, f"train.max_steps={steps}"]) for steps in (100, 200))
    [change] = find_changes(began, now)
    assert (change.key, change.effect) == ("train.max_steps", "allowed")


def test_of_another_architecture_no_setting_is_compared(tiny_run_file):
    began = read_run(tiny_run_file)
    other = {"architecture": "recurrent", "embedding_size": 7, "hidden_size": 5}
    now = began.model_copy(update={"model": read_model(other)})
    [change] = find_changes(began, now)
    assert (change.key, change.before, change.after) == ("model.architecture", "transformer", "recurrent")
    assert change.effect == "refused"


def test_what_auto_means_only_a_checkpoint_knows(tiny_run_file):
    began, now = (read_run(tiny_run_file, [f"train.precision={name}"]) for name in ("auto", "bfloat16"))
    assert find_changes(began, now) == []
    [change] = find_changes(read_run(tiny_run_file), now)
    assert (change.before, change.after, change.effect) == ("float32", "bfloat16", "refused")


def test_a_test_set_may_come_and_go(tiny_config):
    began = tiny_config.model_dump()
    began["data"]["test"] = {"source": "test.src", "target": "test.trg"}
    effects = {change.effect for change in find_changes(RunConfig.model_validate(began), tiny_config)}
    assert effects == {"safe"}


def test_all_changes_are_said_before_some_are_refused(tiny_run_file, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    run = RunDirectory(tmp_path)
    write_run(read_run(tiny_run_file), run.config)
    with pytest.raises(BadInputError, match=r"train\.seed was 1 and is 2: set them back .*run\.toml --resume\), or"):
        tell_changes(read_run(tiny_run_file, ["train.seed=2", "train.log_every=1", "model.dropout=0.2"]), run)
    said = {message.split(":")[0]: message for message in caplog.messages}
    assert list(said) == ["model.dropout", "model.embedding_dropout", "train.seed", "train.log_every"]
    assert said["train.log_every"] == "train.log_every: was 50 and is 1 (safe: what is learned stays the same)"
    assert "(refused: " in said["train.seed"]
    assert "(allowed: " in said["model.dropout"]


def test_without_a_readable_run_file_nothing_is_shown(tiny_config, tmp_path, caplog):
    tell_changes(tiny_config, RunDirectory(tmp_path))
    assert "what has changed since the training began cannot be shown" in caplog.text


def test_another_number_of_threads_is_named(caplog):
    now = {"torch": "2.13.0", "threads": "2"}
    progress = tell_circumstances(Progress(circumstances=now | {"threads": "1"}), now)
    assert progress.circumstances == now
    assert caplog.messages[0].startswith("threads was 1 and is 2: sums may round differently")
    tell_circumstances(progress, now)
    tell_circumstances(Progress(), now)
    assert len(caplog.messages) == 1


def _old_checkpoint(config: RunConfig, **changes: object) -> Progress:
    """The progress of a checkpoint, as an older version would have written it; None leaves a setting out."""
    fixed = fix(Progress(), config, config.train, RunDirectory(Path("run")), "the text").fixed
    fixed |= {key.replace("__", "."): value for key, value in changes.items()}
    return Progress(fixed={key: value for key, value in fixed.items() if value is not None})


def test_a_checkpoint_may_know_a_setting_by_its_former_name(tiny_run_file):
    began = read_run(tiny_run_file, ["model.attention_window=4"])
    old = _old_checkpoint(began, model__neighbourhood=4, model__attention_window=None)
    again = fix(old, began, began.train, RunDirectory(Path("run")), "the text")
    assert again.fixed["model.attention_window"] == 4
    assert "model.neighbourhood" not in again.fixed
    other = read_run(tiny_run_file, ["model.attention_window=6"])
    with pytest.raises(BadInputError, match=r"model\.attention_window was 4 and is 6"):
        fix(old, other, other.train, RunDirectory(Path("run")), "the text")


def test_a_setting_that_is_younger_than_a_checkpoint_had_its_default(tiny_run_file):
    began = read_run(tiny_run_file, ["model.norm=post"])
    old = _old_checkpoint(began, model__residual=None, model__norm=None, train__accumulate=None)
    assert fix(old, began, began.train, RunDirectory(Path("run")), "the text").fixed["model.norm"] == "post"
    other = read_run(tiny_run_file, ["model.norm=pre"])
    with pytest.raises(BadInputError, match=r"model\.norm was 'post' and is 'pre'"):
        fix(old, other, other.train, RunDirectory(Path("run")), "the text")


def test_what_is_fixed_follows_from_the_settings(tiny_config):
    fixed = fix(Progress(), tiny_config, tiny_config.train, RunDirectory(Path("run")), "the text").fixed
    rest = {key for key in fixed if not key.startswith("model.")}
    assert rest == {
        *(f"train.{name}" for name in ("batch_tokens", "accumulate", "seed", "precision")),
        "data.text",
        "data.train.weight",
        "tokenizer.bpe_dropout",
    }
    assert "model.dropout" not in fixed
    assert "model.vocab_size" not in fixed
    assert fixed["model.d_model"] == tiny_config.model.d_model


def test_another_preparation_is_refused_and_an_older_checkpoint_knows_none(tiny_config):
    run = RunDirectory(Path("run"))
    began = fix(Progress(), tiny_config, tiny_config.train, run, "the text")
    assert fix(began, tiny_config, tiny_config.train, run, "the text").fixed == began.fixed
    with pytest.raises(BadInputError, match=r"run: its training began with another preparation, of other text"):
        fix(began, tiny_config, tiny_config.train, run, "another text")
    old = Progress(fixed={key: value for key, value in began.fixed.items() if key != "data.text"})
    assert fix(old, tiny_config, tiny_config.train, run, "another text").fixed["data.text"] == "another text"
