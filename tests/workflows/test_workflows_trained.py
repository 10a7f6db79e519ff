import json

import numpy as np
import pytest
import torch

import transduce
from transduce.config import Corpus, DataConfig, RunConfig, TokenizerConfig, TrainConfig, preset, read_run
from transduce.training import list_checkpoints

pytest_plugins = ["tiny_run"]

SHORT = ["train.max_steps=4", "train.validate_every=2", "train.checkpoint_every=2", "train.log_every=1"]
PLACES = [("train", 1), ("train", 2), ("dev", 2), ("train", 3), ("train", 4), ("dev", 4)]


def _place(measured):
    return measured["split"], measured["step"]


def test_a_training_from_python_tells_what_it_measures_and_ends_with_a_model(tiny_run_file, tmp_path):
    heard = []
    trained = transduce.train(tiny_run_file, out=tmp_path / "run", settings=SHORT, callbacks=[heard.append])
    assert [_place(measured) for measured in heard] == PLACES
    written = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert heard == written
    best = next(each for each in heard if _place(each) == ("dev", trained.best_step))
    assert (trained.run, trained.step, trained.init) == (tmp_path / "run", 4, None)
    assert trained.ended_by == "train.max_steps = 4"
    assert (trained.best_metric, trained.best_score) == ("bleu", best["bleu"])
    assert len(transduce.load(trained).translate(["bamo", "dulu"])) == 2


def test_losses_of_the_best_model_are_losses(tiny_run_file, tmp_path):
    """Progress keeps them negated, so that more is better."""
    settings = [*SHORT, "train.best_metric=loss"]
    heard = []
    trained = transduce.train(tiny_run_file, out=tmp_path, settings=settings, callbacks=[heard.append])
    losses = {each["step"]: each["loss"] for each in heard if each["split"] == "dev"}
    assert (
        (trained.best_metric, trained.best_score)
        == ("loss", losses[trained.best_step])
        == ("loss", min(losses.values()))
    )


def test_a_callback_that_returns_true_interrupts_the_training_which_goes_on_later(tiny_run_file, tmp_path):
    def enough(measured):
        heard.append(_place(measured))
        return measured["split"] == "dev"

    heard, all_heard = [], []
    config = read_run(tiny_run_file, [*SHORT, "train.max_steps=6"])
    trained = transduce.train(config, out=tmp_path, callbacks=[enough, all_heard.append])
    assert (trained.step, trained.ended_by) == (2, None)
    assert [step for step, _ in list_checkpoints(tmp_path / "checkpoints")][-1] == 2
    assert heard == [_place(each) for each in all_heard] == PLACES[:3]
    heard.clear()
    assert (
        transduce.train(config, out=tmp_path, resume=True, callbacks=[lambda each: heard.append(each) or 7]).step == 6
    )
    assert [_place(each) for each in heard] == [*PLACES[3:], ("train", 5), ("train", 6), ("dev", 6)]


def test_a_callback_may_want_no_step_at_all(tiny_run_file, tmp_path):
    """What a model scores before it is trained on may be enough to know."""
    transduce.train(tiny_run_file, out=tmp_path / "first", settings={"train.max_steps": 1})
    heard = []
    given = {"out": tmp_path / "second", "settings": {"train.max_steps": 2, "model": None}}
    trained = transduce.train(
        tiny_run_file, init=tmp_path / "first", callbacks=[lambda each: heard.append(_place(each)) or True], **given
    )
    assert (trained.step, heard) == (0, [("dev", 0)])
    assert transduce.train(tiny_run_file, resume=True, **given).step == 2


def test_what_a_callback_raises_ends_the_training_and_loses_no_checkpoint(tiny_run_file, tmp_path):
    def fail(measured):
        if _place(measured) == ("train", 3):
            raise LookupError("not mine")

    with pytest.raises(LookupError, match="not mine"):
        transduce.train(tiny_run_file, out=tmp_path, settings=SHORT, callbacks=[fail])
    assert [step for step, _ in list_checkpoints(tmp_path / "checkpoints")] == [2]
    assert transduce.train(tiny_run_file, out=tmp_path, settings=SHORT, resume=True).step == 4


def test_a_callback_may_change_what_it_is_given(tiny_run_file, tmp_path):
    heard = []
    transduce.train(tiny_run_file, out=tmp_path, settings=SHORT, callbacks=[dict.clear, heard.append])
    assert [_place(measured) for measured in heard] == PLACES


@pytest.mark.parametrize(
    ("answer", "step"),
    [(np.bool_(True), 1), (torch.tensor(True), 1), (np.bool_(False), 2), (torch.tensor(False), 2), (1, 2), ("yes", 2)],
    ids=repr,
)
def test_true_is_true_of_any_library_and_nothing_else(tiny_run_file, tmp_path, answer, step):
    settings = {"train.max_steps": 2, "train.log_every": 1, "train.validate_every": 2}
    trained = transduce.train(tiny_run_file, out=tmp_path, settings=settings, callbacks=[lambda _: answer])
    assert trained.step == step


@pytest.mark.parametrize("callbacks", [print, None, [None], ["print"], 7])
def test_callbacks_are_looked_at_before_any_work(tiny_run_file, tmp_path, callbacks):
    with pytest.raises(transduce.BadInputError, match="callbacks: "):
        transduce.train(tiny_run_file, out=tmp_path / "run", callbacks=callbacks)
    assert not (tmp_path / "run").exists()


def test_a_callback_is_no_coroutine(tiny_run_file, tmp_path):
    async def late(measured):
        return True

    with pytest.raises(transduce.BadInputError, match="is no plain function of one argument"):
        transduce.train(tiny_run_file, out=tmp_path / "run", callbacks=[late])


def test_callbacks_of_a_generator_hear_everything(tiny_run_file, tmp_path):
    heard = []
    transduce.train(tiny_run_file, out=tmp_path, settings=SHORT, callbacks=(each for each in [heard.append]))
    assert [_place(measured) for measured in heard] == PLACES


def test_settings_are_a_mapping_too(tiny_run_file, tmp_path):
    settings = {"train.max_steps": 1, "train.warmup_steps": 1, "train.max_minutes": None, "data.root": tmp_path}
    settings["data.dev"] = {"source": tiny_run_file.parent / "dev.src", "target": tiny_run_file.parent / "dev.trg"}
    config = read_run(str(tiny_run_file), settings)
    assert (config.train.max_steps, config.train.max_minutes, config.data.root) == (1, None, str(tmp_path))
    assert config.data.dev.target == str(tiny_run_file.parent / "dev.trg")
    for wrong in ("train.max_steps=4", None, [None], [("train.max_steps", 4), 7], {3: 4}):
        with pytest.raises(transduce.BadInputError, match="settings"):
            transduce.train(tiny_run_file, out=tmp_path / "run", settings=wrong)


@pytest.mark.parametrize(
    "key", ["model.preset", "data.test.source", "generation.length_penalty", "data.train.7.weight"]
)
def test_none_leaves_a_setting_as_if_nobody_had_set_it(tiny_run_file, key):
    assert read_run(tiny_run_file, {key: None}) == read_run(tiny_run_file)


def test_none_for_a_preset_leaves_the_rest_of_the_model(tmp_path, tiny_run_file, caplog):
    file = tmp_path / "run.toml"
    file.write_text(tiny_run_file.read_text().replace("[model]", '[model]\npreset = "base"'))
    assert read_run(file, {"model.preset": None, "data.root": tiny_run_file.parent}).model == (
        read_run(tiny_run_file).model
    )
    assert not caplog.messages


def test_a_config_is_built_in_code_and_seen_to_be_valid(tiny_run_file, tmp_path):
    corpora = [Corpus(source=f"{name}.src", target=f"{name}.trg") for name in ("train", "dev")]
    config = RunConfig(
        data=DataConfig(root=str(tiny_run_file.parent), train=corpora[:1], dev=corpora[1]),
        tokenizer=TokenizerConfig(vocab_size=300),
        model=preset("tiny", {"d_model": 16, "d_ff": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}),
        train=TrainConfig(max_steps=2, log_every=1, batch_tokens=64, warmup_steps=1),
    )
    assert transduce.train(config, out=tmp_path / "run").step == 2
    wrong = config.model_copy(update={"train": config.train.model_copy(update={"max_steps": "zwanzig"})})
    with pytest.raises(transduce.BadInputError, match=r"train\.max_steps = 'zwanzig': "):
        transduce.train(wrong, out=tmp_path / "other")
    for nothing in ({"train": {}}, None, 7):
        with pytest.raises(transduce.BadInputError, match="give a run file, or a RunConfig"):
            transduce.train(nothing, out=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_without_a_file_the_run_directory_is_named_and_settings_are_in_the_config(tiny_config, tmp_path):
    with pytest.raises(transduce.BadInputError, match="no file whose name the run directory could take: give out"):
        transduce.train(tiny_config)
    with pytest.raises(transduce.BadInputError, match="settings are for a run file"):
        transduce.train(tiny_config, out=tmp_path, settings=["train.max_steps=4"])


def test_the_run_directory_is_named_after_the_run_file(tiny_run_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = [*SHORT, "train.max_steps=1"]
    assert str(transduce.train(str(tiny_run_file), settings=settings).run) == "runs/tiny"
