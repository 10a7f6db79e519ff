import json
import re
import shutil

import pytest
import torch

import transduce
from transduce.bundle import load_bundle
from transduce.config import BadInputError, TransduceError, preset, read_run
from transduce.data import read_lines
from transduce.evaluation import corpus_score
from transduce.models import build_without_storage
from transduce.training import DevOutputs, list_checkpoints
from transduce.workflows.dev_outputs import translate_dev
from transduce.workflows.prepare import prepare
from transduce.workflows.run_directory import RunDirectory, hold
from transduce.workflows.train import _describe_model, train_run

pytest_plugins = ["tiny_run"]

SHORT = ["train.max_steps=4", "train.validate_every=2", "train.checkpoint_every=2", "train.log_every=1"]


def _metrics(root):
    lines = [json.loads(line) for line in (root / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def _contents(root):
    return {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_training_prepares_first_and_leaves_what_is_promised(tiny_run_file, tmp_path):
    root = tmp_path / "run"
    progress = train_run(read_run(tiny_run_file, SHORT), RunDirectory(root), resume=False)
    assert (progress.step, progress.best_step in (2, 4)) == (4, True)
    assert sorted(path.name for path in root.iterdir()) == [
        "best",
        "checkpoints",
        "metrics.jsonl",
        "run.toml",
        "store",
        "tokenizer.json",
    ]
    assert [step for step, _ in list_checkpoints(root / "checkpoints")] == [2, 4]
    assert sorted(path.name for path in (root / "best").iterdir()) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
    ]
    assert (root / "best" / "tokenizer.json").read_bytes() == (root / "tokenizer.json").read_bytes()


def test_a_file_in_the_way_of_the_run_directory_is_named(tiny_config, tmp_path):
    (tmp_path / "file").touch()
    for out in ("file", "file/below"):
        with pytest.raises(BadInputError, match="a file of that name stands in the way"):
            train_run(tiny_config, RunDirectory(tmp_path / out), resume=False)


@pytest.mark.parametrize("name", ["best", "checkpoints", "store"])
def test_a_file_in_the_way_of_a_folder_of_the_run_is_named(tiny_config, tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(BadInputError, match=rf"{name}: is a file, and a run makes a folder of that name: move it away"):
        train_run(tiny_config, RunDirectory(tmp_path), resume=True)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_two_trainings_in_one_directory_are_refused(tiny_run_file, tmp_path):
    pytest.importorskip("fcntl", reason="Windows has no such locks")
    config, run = read_run(tiny_run_file, SHORT), RunDirectory(tmp_path / "run")
    with (
        hold(run.root),
        pytest.raises(BadInputError, match="another process trains here at this moment, or prepares: wait"),
    ):
        train_run(config, run, resume=False)
    assert train_run(config, run, resume=False).step == 4


def test_the_model_gets_the_tokenizers_vocabulary_and_the_runs_generation(trained_run):
    config = json.loads((trained_run / "best" / "config.json").read_text())
    vocabulary = json.loads((trained_run / "tokenizer.json").read_text())["model"]["vocab"]
    assert config["vocab_size"] == len(vocabulary)
    assert json.loads((trained_run / "best" / "generation_config.json").read_text())["max_extra_length"] == 3


def test_dev_bleu_is_of_greedily_translated_text(trained_run, tiny_config):
    dev = [line for line in _metrics(trained_run) if line["split"] == "dev"][-1]
    assert dev["step"] == 400  # the last measurement was the best, so ``best`` is the model it is about
    sources, references = (
        list(read_lines(tiny_config.data.folder / name))
        for name in (tiny_config.data.dev.source, tiny_config.data.dev.target)
    )
    outputs = transduce.load(trained_run, "float32").translate(sources, beam_size=1)
    assert corpus_score("bleu", [each.text for each in outputs], references).value == pytest.approx(dev["bleu"])
    assert dev["bleu"] > 50


def test_the_first_outputs_of_dev_are_kept_to_look_at(trained_run, tiny_config):
    (dev,) = [line for line in _metrics(trained_run) if line["split"] == "dev"]
    sources, references = (
        list(read_lines(tiny_config.data.folder / name))[:5]
        for name in (tiny_config.data.dev.source, tiny_config.data.dev.target)
    )
    outputs = [each.text for each in transduce.load(trained_run, "float32").translate(sources, beam_size=1)]
    assert [each["source"] for each in dev["samples"]] == sources
    assert [each["reference"] for each in dev["samples"]] == references
    assert [each["output"] for each in dev["samples"]] == outputs


def test_the_metric_that_decides_is_measured_beside_bleu(tiny_run_file, tmp_path):
    settings = [*SHORT, "train.best_metric=chrf"]
    progress = train_run(read_run(tiny_run_file, settings), RunDirectory(tmp_path), resume=False)
    dev = [line for line in _metrics(tmp_path) if line["split"] == "dev"]
    assert all(0 <= line["chrf"] <= 100 and "bleu" in line for line in dev)
    assert (progress.best_score, progress.best_metric) == (max(line["chrf"] for line in dev), "chrf")


def test_dev_loss_is_what_scoring_dev_gives(trained_run, tiny_config, translator):
    dev = [line for line in _metrics(trained_run) if line["split"] == "dev"][-1]
    sources, references = (
        list(read_lines(tiny_config.data.folder / name))
        for name in (tiny_config.data.dev.source, tiny_config.data.dev.target)
    )
    mean = -sum(translator.score(sources, references)) / translator.count_tokens(references)
    assert dev["loss"] == pytest.approx(mean, rel=1e-4)


def test_what_is_no_pair_of_dev_is_in_no_measurement(trained_run, tiny_run_file, tiny_config, tmp_path):
    """The same training with blank lines in dev, on either side, says the same."""
    folder = tmp_path / "corpus"
    shutil.copytree(tiny_run_file.parent, folder)
    for side, lines in (("src", ["", " ", "bamo"]), ("trg", ["ti", "ti", ""])):
        path = folder / f"dev.{side}"
        path.write_text("".join(f"{line}\n" for line in lines) + path.read_text())
    bundle = load_bundle(trained_run)
    config = read_run(folder / tiny_run_file.name, ["data.dev.tag='ti'"])
    measured = [
        translate_dev(each, "float32", lambda _: bundle)(bundle.model)
        for each in (config, read_run(tiny_run_file, ["data.dev.tag='ti'"]))
    ]
    assert measured[0] == measured[1]
    assert len(measured[0].samples) == 5


def test_a_second_training_is_refused_and_loses_nothing(trained_run, tiny_config, tmp_path):
    root = tmp_path / "copy"
    shutil.copytree(trained_run, root)
    before = _contents(root)
    with pytest.raises(BadInputError, match=r"holds a training at step 400: --resume"):
        train_run(tiny_config, RunDirectory(root), resume=False)
    assert _contents(root) == before


def test_resume_where_there_is_nothing_starts(tiny_run_file, tmp_path):
    config = read_run(tiny_run_file, SHORT)
    fresh, resumed = tmp_path / "fresh", tmp_path / "resumed"
    train_run(config, RunDirectory(fresh), resume=False)
    train_run(config, RunDirectory(resumed), resume=True)
    assert _metrics(resumed) == _metrics(fresh)


def test_two_halves_equal_the_whole(tiny_run_file, tmp_path):
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    train_run(read_run(tiny_run_file, SHORT), RunDirectory(whole), resume=False)
    train_run(read_run(tiny_run_file, [*SHORT, "train.max_steps=2"]), RunDirectory(halves), resume=False)
    train_run(read_run(tiny_run_file, SHORT), RunDirectory(halves), resume=True)
    assert _metrics(halves) == _metrics(whole)
    for name in ("model.safetensors", "optimizer.safetensors"):
        last = f"checkpoints/step-4/{name}"
        assert (halves / last).read_bytes() == (whole / last).read_bytes()
    assert (halves / "best/model.safetensors").read_bytes() == (whole / "best/model.safetensors").read_bytes()


def test_resuming_a_finished_training_changes_nothing(trained_run, tiny_config, tmp_path):
    root = tmp_path / "copy"
    shutil.copytree(trained_run, root)
    before = _contents(root)
    assert train_run(tiny_config, RunDirectory(root), resume=True).step == 400
    assert _contents(root) == before


def test_resume_refuses_a_checkpoint_of_another_model(trained_run, tiny_run_file, tmp_path):
    root = tmp_path / "copy"
    shutil.copytree(trained_run, root)
    with pytest.raises(BadInputError, match=r"model\.heads was 2 and is 4"):  # of the same shapes
        train_run(read_run(tiny_run_file, ["model.heads=4"]), RunDirectory(root), resume=True)


@pytest.mark.parametrize("setting", ["train.seed=2", "train.batch_tokens=128", 'train.precision="bfloat16"'])
def test_resume_refuses_what_would_change_the_rest_of_the_training(trained_run, tiny_run_file, tmp_path, setting):
    root = tmp_path / "copy"
    shutil.copytree(trained_run, root)
    key = setting.partition("=")[0]
    with pytest.raises(BadInputError, match=rf"{key} was .* and is"):
        train_run(read_run(tiny_run_file, [setting]), RunDirectory(root), resume=True)
    # Preparing again does not make it forget what it began with.
    prepare(read_run(tiny_run_file, [setting]), RunDirectory(root))
    with pytest.raises(BadInputError, match=rf"{key} was .* and is"):
        train_run(read_run(tiny_run_file, [setting]), RunDirectory(root), resume=True)


def test_auto_goes_on_in_the_precision_it_began_in(tiny_run_file, tmp_path, monkeypatch):
    run = RunDirectory(tmp_path / "run")
    found = {"auto": torch.bfloat16, "bfloat16": torch.bfloat16, "float32": torch.float32}
    monkeypatch.setattr("transduce.workflows.train.resolve_precision", lambda precision, _: found[precision])
    train_run(read_run(tiny_run_file, ["train.max_steps=2", 'train.precision="auto"']), run, resume=False)
    found["auto"] = torch.float32  # the same machine measures otherwise today
    progress = train_run(read_run(tiny_run_file, ["train.max_steps=3", 'train.precision="auto"']), run, resume=True)
    assert progress.fixed["train.precision"] == "bfloat16"


def test_time_ends_a_training_and_resuming_it_adds_nothing(tiny_run_file, tmp_path, caplog):
    run = RunDirectory(tmp_path / "run")
    config = read_run(tiny_run_file, ["train.max_minutes=1e-6"])
    assert train_run(config, run, resume=False).step == 1
    assert caplog.messages[-1].startswith("ended within the warm-up, at step 1 of train.warmup_steps = 60: ")
    assert train_run(config, run, resume=True).step == 1


def test_a_folder_that_another_training_has_now_is_left_to_it(tiny_run_file, tmp_path, monkeypatch, caplog):
    """Somebody deleted this one's amid its training, and began another there."""
    run = RunDirectory(tmp_path / "run")

    def be_replaced(*_):
        def translate(_):
            if not (tmp_path / "deleted").exists():
                run.root.rename(tmp_path / "deleted")
                (run.root / "checkpoints").mkdir(parents=True)
            return DevOutputs(scores={"bleu": 1.0})

        return translate

    monkeypatch.setattr("transduce.workflows.train.translate_dev", be_replaced)
    with pytest.raises(TransduceError, match="was deleted since, and what has its name now is another's") as caught:
        train_run(read_run(tiny_run_file, SHORT), run, resume=False)
    assert "with another --out where another training is in that folder now" in str(caught.value)
    assert [path.name for path in run.root.rglob("*")] == ["checkpoints"]


def test_a_checkpoint_that_was_never_finished_is_no_training(tiny_run_file, tmp_path):
    run = RunDirectory(tmp_path / "run")
    (run.checkpoints / "step-10.unfinished").mkdir(parents=True)
    assert not run.has_checkpoints
    prepare(read_run(tiny_run_file), run)
    prepare(read_run(tiny_run_file, ["tokenizer.symbols=['<new>']"]), run)
    assert "<new>" in (run.root / "tokenizer.json").read_text()


def test_resume_refuses_text_that_is_no_longer_the_same(tiny_run_file, tmp_path):
    """A tokenizer learned anew would give the old weights' rows to other symbols."""
    folder = tmp_path / "corpus"
    shutil.copytree(tiny_run_file.parent, folder)
    run = RunDirectory(tmp_path / "run")
    train_run(read_run(folder / tiny_run_file.name, [*SHORT, "train.max_steps=2"]), run, resume=False)
    learned = (run.root / "tokenizer.json").read_bytes()
    path = folder / "train.trg"
    path.write_text(path.read_text().replace("ti", "te"))  # as many symbols as before, but others
    with pytest.raises(BadInputError, match=rf"other text or .*\(files have changed since: {re.escape(str(path))}\)"):
        train_run(read_run(folder / tiny_run_file.name, SHORT), run, resume=True)
    assert (run.root / "tokenizer.json").read_bytes() == learned


def test_accumulating_goes_through_the_data_as_fast_as_larger_batches(tiny_run_file, tmp_path):
    """Two batches a step: after six steps, twelve batches are done."""
    run = RunDirectory(tmp_path / "run")
    progress = train_run(read_run(tiny_run_file, ["train.max_steps=6", "train.accumulate=2"]), run, resume=False)
    single = train_run(read_run(tiny_run_file, ["train.max_steps=12"]), RunDirectory(tmp_path / "one"), resume=False)
    assert (progress.epoch, progress.batch, progress.target_tokens) == (
        single.epoch,
        single.batch,
        single.target_tokens,
    )


def test_bpe_dropout_splits_words_anew_and_a_resumed_training_splits_them_alike(tiny_run_file, tmp_path):
    dropped = [*SHORT, "tokenizer.bpe_dropout=0.3", "train.batch_tokens=64"]
    whole, halves, plain = (RunDirectory(tmp_path / name) for name in ("whole", "halves", "plain"))
    progress = train_run(read_run(tiny_run_file, dropped), whole, resume=False)
    train_run(read_run(tiny_run_file, [*dropped, "train.max_steps=2"]), halves, resume=False)
    train_run(read_run(tiny_run_file, dropped), halves, resume=True)
    last = "checkpoints/step-4/model.safetensors"
    assert (halves.root / last).read_bytes() == (whole.root / last).read_bytes()
    without = train_run(read_run(tiny_run_file, [*dropped, "tokenizer.bpe_dropout=0"]), plain, resume=False)
    assert progress.target_tokens > 1.1 * without.target_tokens
    with pytest.raises(BadInputError, match=r"tokenizer\.bpe_dropout was 0\.3 and is 0\.1"):
        train_run(read_run(tiny_run_file, [*dropped, "tokenizer.bpe_dropout=0.1"]), whole, resume=True)


def test_a_half_written_checkpoint_is_named_and_the_one_before_it_used(tiny_run_file, tmp_path, caplog):
    config, root = read_run(tiny_run_file, SHORT), tmp_path / "run"
    train_run(config, RunDirectory(root), resume=False)
    weights = root / "checkpoints" / "step-4" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:1000])
    assert train_run(config, RunDirectory(root), resume=True).step == 4
    assert "step-4 is put aside, going on from step-2 instead" in caplog.text
    assert "model.safetensors" in caplog.text
    assert (root / "checkpoints" / "step-4.damaged").is_dir()
    assert weights.read_bytes() == whole


def test_a_training_without_its_preparation_is_not_sent_in_circles(trained_run, tiny_config, tmp_path):
    root = tmp_path / "copy"
    shutil.copytree(trained_run, root)
    (root / "store" / "dev.arrow").write_bytes(b"not this")
    with pytest.raises(BadInputError, match=r"dev\.arrow: .* copy store and tokenizer.* or train anew with another"):
        train_run(tiny_config, RunDirectory(root), resume=True)


@pytest.mark.parametrize("begun", [False, True])
def test_resuming_before_the_first_checkpoint_says_that_it_starts_anew(tiny_run_file, tmp_path, caplog, begun):
    """The folder may be another one than was meant."""
    run = RunDirectory(tmp_path / "run")
    config = read_run(tiny_run_file, SHORT)
    if begun:
        train_run(config, run, resume=False)
        shutil.rmtree(run.checkpoints)
    caplog.clear()
    train_run(config, run, resume=True)
    warmup, said = [record for record in caplog.records if record.levelname == "WARNING"]
    assert warmup.getMessage() == (
        "train.warmup_steps = 60 of train.max_steps = 4: the schedule's peak is never reached: fewer warmup_steps (a "
        "tenth of the steps is usual)"
    )
    assert said.getMessage().startswith(
        f"{run.root}: nothing to resume, no checkpoint was written yet: starting anew, with new weights. Where"
    )
    assert "--out" in said.getMessage()


def test_run_toml_is_what_was_trained(tiny_run_file, tmp_path, caplog):
    """Asked for less than what is trained, nothing is; refused settings are not trained either."""
    caplog.set_level("INFO", logger="transduce")
    run = RunDirectory(tmp_path / "run")
    train_run(read_run(tiny_run_file, SHORT), run, resume=False)
    before = run.config.read_bytes()
    fewer = read_run(tiny_run_file, [*SHORT, "train.max_steps=3", "train.warmup_steps=7", "model.dropout=0.3"])
    assert train_run(fewer, run, resume=True).step == 4
    assert run.config.read_bytes() == before
    assert "already trained to step 4, beyond train.max_steps = 3: nothing to do" in caplog.messages
    with pytest.raises(BadInputError, match=r"train\.seed was 1 and is 2"):
        train_run(read_run(tiny_run_file, [*SHORT, "train.seed=2", "train.max_steps=9"]), run, resume=True)
    assert run.config.read_bytes() == before
    train_run(read_run(tiny_run_file, [*SHORT, "train.max_steps=6", "train.warmup_steps=7"]), run, resume=True)
    trained = read_run(run.config).train
    assert (trained.max_steps, trained.warmup_steps) == (6, 7)


@pytest.mark.parametrize("further", [True, False])
def test_another_generation_counts_for_the_best_that_is_there(tiny_run_file, tmp_path, caplog, further):
    """None may be better. What people wrote into its own file stays where the run file says nothing new."""
    caplog.set_level("INFO", logger="transduce")
    run = RunDirectory(tmp_path / "run")
    settings = [*SHORT, "train.validate_every=4"]
    train_run(read_run(tiny_run_file, settings), run, resume=False)
    path = run.root / "best" / "generation_config.json"
    weights = (run.root / "best" / "model.safetensors").read_bytes()
    path.write_text(path.read_text().replace('"max_extra_length": 3', '"max_extra_length": 7'))
    train_run(read_run(tiny_run_file, settings), run, resume=True)
    assert json.loads(path.read_text())["max_extra_length"] == 7
    more = ["train.max_steps=5", "train.validate_every=1000"] if further else []
    train_run(read_run(tiny_run_file, [*settings, *more, "generation.beam_size=2"]), run, resume=True)
    best = json.loads(path.read_text())
    assert (best["beam_size"], best["max_extra_length"]) == (2, 3)
    assert f"{path}: the best model writes by the [generation] of the run file from here on" in caplog.messages
    assert read_run(run.config).generation.beam_size == 2
    if not further:
        assert read_run(run.config).train.max_steps == 4
        assert (run.root / "best" / "model.safetensors").read_bytes() == weights


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ([], "ended at step 4 by train.max_steps = 4"),
        (["train.max_minutes=1e-6"], "ended at step 1 by train.max_minutes = 1e-06"),
        (
            # At this rate nothing becomes better; its steps are those that only patience ends.
            ["train.learning_rate_factor=1e-9", "train.best_metric=loss", "train.max_steps=90", "train.early_stop=1"],
            "by train.early_stop = 1: so many validations since step ",
        ),
    ],
)
def test_a_training_that_ends_says_by_which_setting(tiny_run_file, tmp_path, caplog, settings, why):
    caplog.set_level("INFO", logger="transduce")
    train_run(read_run(tiny_run_file, [*SHORT, *settings]), RunDirectory(tmp_path / "run"), resume=False)
    [ended] = [message for message in caplog.messages if message.startswith("ended at step")]
    assert why in ended
    [model] = [message for message in caplog.messages if message.startswith("model: ")]
    assert re.fullmatch(r"model: transformer, [1-9]\d,\d{3} parameters; 211 training pairs, 23 of dev", model)


def test_a_model_is_told_by_its_preset_whatever_its_vocabulary():
    """61 million parameters are what [model] is where it is left out."""
    model = build_without_storage(preset("base", {"vocab_size": 32_000}))
    parameters = sum(weight.numel() for weight in model.parameters())
    assert _describe_model(model) == f"model: transformer, preset base, {parameters:,} parameters"


def test_a_cooldown_that_the_clock_will_not_reach_is_a_warning(tiny_run_file, tmp_path, caplog):
    """Once, while it can still be helped. What a session's clock ends goes on another time."""
    settings = ["train.max_steps=1000000", "train.cooldown_steps=1000", "train.validate_every=1000000"]
    settings.append("train.warmup_steps=1")
    config = read_run(tiny_run_file, [*settings, "train.max_minutes=0.01", "train.checkpoint_every=1000000"])
    train_run(config, RunDirectory(tmp_path / "session"), resume=False, session_only=True)
    assert caplog.messages == []
    progress = train_run(config, RunDirectory(tmp_path / "run"), resume=False)
    [said] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said.startswith("at this speed train.max_minutes = 0.01 ends the training at about step ")
    assert "before the cooldown begins, the last 1,000 of train.max_steps = 1,000,000" in said
    about = int(said.split("about step ")[1].split(", ")[0].replace(",", ""))
    assert about < 100 * progress.step
