"""Going on from a finished model."""

import json
import shutil
from contextlib import contextmanager
from dataclasses import replace

import pytest
import tokenizers
import torch

from tests.random_bundle import SIZES, random_bundle
from transduce.bundle import load_bundle, read_tensors, save_bundle
from transduce.cli.main import _run
from transduce.config import BadInputError, read_run
from transduce.data import Store
from transduce.inference import load
from transduce.models import build
from transduce.text import Tokenizer, TokenizerPair
from transduce.training import read_progress
from transduce.workflows.initialize import check_init, read_training
from transduce.workflows.run_directory import RunDirectory
from transduce.workflows.train import train_run

pytest_plugins = ["tiny_run"]

# At this rate nothing moves: what the training begins with is what it ends with.
STILL = ["train.max_steps=1", "train.learning_rate_factor=1e-12", "train.validate_every=1"]


@pytest.fixture
def settings(trained_run):
    """The same vocabulary as the finished model's."""
    return [*STILL, "tokenizer.kind=existing", f'tokenizer.path="{trained_run}"']


CLOCKS = {"seconds", "checkpoint_seconds"}


def _metrics(root):
    lines = [json.loads(line) for line in (root / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def _weights(root):
    return read_tensors(root / "best" / "model.safetensors")


def test_begins_with_the_models_weights_and_a_new_optimizer(trained_run, tiny_run_file, settings, tmp_path):
    run = RunDirectory(tmp_path / "on")
    progress = train_run(read_run(tiny_run_file, settings), run, resume=False, init=trained_run)
    old, new = _weights(trained_run), _weights(run.root)
    assert all(torch.allclose(new[name], old[name], atol=1e-6) for name in old)
    assert progress.step == 1
    measured = [json.loads(line) for line in (trained_run / "metrics.jsonl").read_text().splitlines()]
    assert progress.best_score == pytest.approx(max(each.get("bleu", 0) for each in measured), abs=1)


def test_the_model_that_it_begins_with_is_measured_first_and_can_stay_the_best(
    trained_run, tiny_run_file, settings, tmp_path, capsys
):
    """Steps this large unlearn everything."""
    root = tmp_path / "on"
    steps = ["train.max_steps=6", "train.validate_every=3", "train.learning_rate_factor=90", "train.early_stop=2"]
    options = [f"--set={setting}" for setting in [*settings, *steps]]
    assert _run(["train", str(tiny_run_file), "--out", str(root), "--init", str(trained_run), *options]) == 0
    shown = capsys.readouterr()
    first, *later = [line for line in _metrics(root) if line["split"] == "dev"]
    [last] = [line for line in _metrics(trained_run) if line["split"] == "dev"]
    assert (first["step"], first["learning_rate"], first["target_tokens"]) == (0, 0, 0)
    assert (first["bleu"], first["loss"]) == (pytest.approx(last["bleu"]), pytest.approx(last["loss"]))
    assert [line["step"] for line in later] == [3, 6]
    assert all(line["bleu"] < first["bleu"] for line in later)
    old, new = _weights(trained_run), _weights(root)
    assert all(torch.equal(new[name], old[name]) for name in old)
    assert [line.endswith("(best so far)") for line in shown.err.splitlines() if "dev loss" in line] == [True] + [
        False
    ] * 2
    assert "best at step 0" in shown.out
    assert f"the model that it began with, {trained_run}; nothing became better" in shown.out
    assert "ended at step 6 by train.max_steps = 6\n" in shown.err


def test_patience_is_counted_from_the_model_that_it_begins_with(trained_run, tiny_run_file, settings, tmp_path, caplog):
    caplog.set_level("INFO", logger="transduce")
    steps = ["train.max_steps=9", "train.validate_every=2", "train.learning_rate_factor=90", "train.early_stop=2"]
    run = RunDirectory(tmp_path / "on")
    assert train_run(read_run(tiny_run_file, [*settings, *steps]), run, resume=False, init=trained_run).step == 4
    assert "ended at step 4 by train.early_stop = 2: so many validations since step 0 were not better" in caplog.text


def test_two_halves_of_fine_tuning_are_the_whole(trained_run, tiny_run_file, settings, tmp_path):
    """What was measured at step 0 is known to the second half, and the mean of checkpoints is of the same ones."""
    steps = ["train.learning_rate_factor=0.4", "train.checkpoint_every=2", "train.validate_every=2"]
    config, half = (
        read_run(tiny_run_file, [*settings, *steps, "train.average_last=2", f"train.max_steps={number}"])
        for number in (6, 2)
    )
    whole, halves, begun = (RunDirectory(tmp_path / name) for name in ("whole", "halves", "begun"))
    train_run(config, whole, resume=False, init=trained_run)
    train_run(half, halves, resume=False, init=trained_run)
    train_run(config, halves, resume=True)
    # Killed right behind the measurement of what it begins with: it goes on without --init, nor measures that again.
    with died_in_its_first_step():
        train_run(config, begun, resume=False, init=trained_run)
    assert [path.name for path in begun.checkpoints.iterdir()] == ["step-0"]
    train_run(config, begun, resume=True)
    for run in (halves, begun):
        assert _metrics(run.root) == _metrics(whole.root)
        for name in ("model.safetensors", "optimizer.safetensors"):
            last = f"checkpoints/step-6/{name}"
            assert (run.root / last).read_bytes() == (whole.root / last).read_bytes()
        ends = [read_progress(each.checkpoints / "step-6").model_dump(exclude=CLOCKS) for each in (run, whole)]
        assert ends[0] == ends[1]
        assert (run.root / "best/model.safetensors").read_bytes() == (
            whole.root / "best/model.safetensors"
        ).read_bytes()


@contextmanager
def died_in_its_first_step():
    def die(*_, **__):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("transduce.training.loop.train_step", die)
        yield


def test_regularization_may_differ(trained_run, tiny_run_file, settings, tmp_path):
    config = read_run(tiny_run_file, [*settings, "model.dropout=0.4", "model.label_smoothing=0.0"])
    train_run(config, RunDirectory(tmp_path / "on"), resume=False, init=trained_run)
    assert load_bundle(tmp_path / "on").config.dropout == 0.4


def test_another_model_is_refused_by_its_settings(trained_run, tiny_run_file, settings, tmp_path):
    config = read_run(tiny_run_file, [*settings, "model.heads=4", "model.norm=post"])
    with pytest.raises(BadInputError, match=r"model\.heads is 4 but 2 there; .*model\.norm is 'post' but 'pre' there"):
        train_run(config, RunDirectory(tmp_path / "on"), resume=False, init=trained_run)


def test_another_vocabulary_is_refused_by_its_symbols(trained_run, tiny_run_file, tmp_path):
    config = read_run(tiny_run_file, [*STILL, "tokenizer.symbols=['<new>']"])
    with pytest.raises(BadInputError) as caught:
        train_run(config, RunDirectory(tmp_path / "on"), resume=False, init=trained_run)
    message = str(caught.value)
    assert "2 only here (' <new>', '<new>')" in message
    assert "with another number (" in message
    assert 'tokenizer.kind = "existing"' in message
    assert "--carry-vocabulary" in message


def test_another_vocabulary_is_carried_over_where_asked(trained_run, tiny_run_file, tmp_path, caplog):
    run = RunDirectory(tmp_path / "on")
    config = read_run(tiny_run_file, [*STILL, "tokenizer.symbols=['<new>']"])
    with caplog.at_level("INFO", logger="transduce"):
        train_run(config, run, resume=False, init=trained_run, carry_vocabulary=True)
    old, new = load_bundle(trained_run), load_bundle(run.root)
    before, after = old.tokenizers.target.vocabulary, new.tokenizers.target.vocabulary
    assert after.keys() - before.keys() == {"<new>", " <new>"}
    for symbol in ("ti", " bamo", "</s>"):
        if symbol in before and symbol in after:
            new_row, old_row = new.model.embedding.weight[after[symbol]], old.model.embedding.weight[before[symbol]]
            assert torch.allclose(new_row, old_row, atol=1e-6)
    shared = len(after.keys() & before.keys())
    assert f"{shared} of {len(after)} symbols carried over" in caplog.text
    name = "decoder.0.cross_attention.query.weight"
    assert torch.allclose(_weights(run.root)[name], _weights(trained_run)[name], atol=1e-6)


def test_a_shared_vocabulary_goes_on_as_two(trained_run, tiny_run_file, tmp_path):
    run = RunDirectory(tmp_path / "on")
    config = read_run(tiny_run_file, [*STILL, "tokenizer.source.kind=bpe", "tokenizer.target.kind=bpe"])
    with pytest.raises(BadInputError, match=r"its source has the target's embeddings, .*: .* give one \[tokenizer\]"):
        train_run(config, run, resume=False, init=trained_run)
    assert not run.train_store.parent.exists()
    train_run(config, run, resume=False, init=trained_run, carry_vocabulary=True)
    old, new = load_bundle(trained_run), load_bundle(run.root)
    for side, matrix in (("source", new.model.source_embedding), ("target", new.model.embedding)):
        vocabulary = getattr(new.tokenizers, side).vocabulary
        theirs = old.tokenizers.target.vocabulary
        rows = [(row, theirs[symbol]) for symbol, row in vocabulary.items() if symbol in theirs]
        assert len(rows) > 260
        ours, old_rows = (list(column) for column in zip(*rows, strict=True))
        assert torch.allclose(matrix.weight[ours], old.model.embedding.weight[old_rows], atol=1e-6)


def test_what_is_no_model_is_refused(tiny_run_file, settings, tmp_path):
    run = RunDirectory(tmp_path / "on")
    with pytest.raises(BadInputError, match="no such model directory"):
        train_run(read_run(tiny_run_file, settings), run, resume=False, init=tmp_path / "x")
    assert not run.root.exists()  # before anything is prepared


def test_a_resumed_training_does_not_begin_again(trained_run, tiny_run_file, settings, tmp_path):
    """The same command again is what a launcher gives; another model would be passed over in silence."""
    run = RunDirectory(tmp_path / "on")
    train_run(read_run(tiny_run_file, settings), run, resume=False, init=trained_run)
    longer = read_run(tiny_run_file, [*settings, "train.max_steps=2"])
    with pytest.raises(BadInputError, match=r"at step 1 that began with the model .*tiny, not with .*gone: --resume w"):
        train_run(longer, run, resume=True, init=tmp_path / "gone")
    assert train_run(longer, run, resume=True, init=trained_run).step == 2


def test_what_began_with_new_weights_is_not_resumed_with_a_models(trained_run, tiny_run_file, tmp_path):
    run, config = RunDirectory(tmp_path / "new"), read_run(tiny_run_file, STILL)
    train_run(config, run, resume=False)
    before = run.config.read_bytes()
    with pytest.raises(BadInputError, match="that began with new weights, not with"):
        train_run(read_run(tiny_run_file, ["train.max_steps=2"]), run, resume=True, init=trained_run)
    assert run.config.read_bytes() == before


@pytest.mark.parametrize("carry", [False, True])
def test_a_projection_of_its_own_goes_on_too(tiny_run_file, tmp_path, carry):
    """Row by row where the vocabulary is another one; a symbol that is new keeps what it was drawn with."""
    untied = [*STILL, "model.tied_projection=false", "model.output_bias=true"]
    first, second = RunDirectory(tmp_path / "first"), RunDirectory(tmp_path / "second")
    train_run(read_run(tiny_run_file, untied), first, resume=False)
    text = "tokenizer.symbols=['<new>']" if carry else f'tokenizer.path="{first.root}"'
    settings = [*untied, text, *([] if carry else ["tokenizer.kind=existing"])]
    train_run(read_run(tiny_run_file, settings), second, resume=False, init=first.root, carry_vocabulary=carry)
    old, new = load_bundle(first.root), load_bundle(second.root)
    before, after = (each.tokenizers.target.vocabulary for each in (old, new))
    both = sorted(before.keys() & after.keys())
    assert len(both) > 260
    for name in ("projection.weight", "embedding.weight", "output_bias"):
        old_rows, new_rows = (
            bundle.model.get_parameter(name)[[vocabulary[symbol] for symbol in both]]
            for bundle, vocabulary in ((old, before), (new, after))
        )
        torch.testing.assert_close(new_rows, old_rows, atol=1e-6, rtol=0)
    assert not torch.allclose(new.model.get_parameter("projection.weight"), new.model.embedding.weight)


@pytest.fixture
def bare(tiny_run_file, tmp_path):
    """A run file that leaves model, tokenizer and generation to the model that it fine-tunes."""
    path = tmp_path / "fine.toml"
    data = tiny_run_file.read_text().split("[tokenizer]")[0]
    steps = "max_steps = 4\nwarmup_steps = 1\nvalidate_every = 2\ncheckpoint_every = 2\n"
    path.write_text(
        data.replace("[data]", f'[data]\nroot = "{tiny_run_file.parent}"')
        + f"[train]\nbatch_tokens = 256\nlearning_rate = 1e-4\n{steps}"
    )
    return path


def test_a_run_file_of_data_and_rate_fine_tunes(trained_run, bare, tmp_path, capsys):
    """And goes on by itself, by its run.toml, and by the very same command, each without another word."""
    root = tmp_path / "fine"
    begin = ["train", str(bare), "--out", str(root), "--init", str(trained_run)]
    assert _run(begin) == 0
    shown = capsys.readouterr()
    assert f"fine-tuning {trained_run}: its weights and its vocabulary\n" in shown.err
    old, new, written = load_bundle(trained_run), load_bundle(root), read_run(root / "run.toml")
    assert new.config == old.config
    assert new.generation == old.generation == written.generation
    assert written.model == old.config.model_copy(update={"vocab_size": written.model.vocab_size})
    assert (written.tokenizer.kind, written.tokenizer.path) == ("existing", str(trained_run))
    ways = [
        ["train", str(bare), "--out", str(root), "--resume"],
        ["train", str(root / "run.toml"), "--resume"],
        [*begin, "--resume"],
    ]
    for steps, way in zip((6, 8, 10), ways, strict=True):
        assert _run([*way, f"--set=train.max_steps={steps}"]) == 0
        shown = capsys.readouterr()
        assert shown.out.startswith(f"{root}: step {steps}, best at step ")
        told = [line for line in shown.err.splitlines() if line.startswith("train.") or ": was " in line]
        assert told == [f"train.max_steps: was {steps - 2} and is {steps} (safe: what is learned stays the same)"]
    assert {line["learning_rate"] for line in _metrics(root)} == {0, 1e-4}


def test_a_rate_that_the_warm_up_never_reaches_is_a_warning(trained_run, bare, tmp_path, capsys):
    """The default is made for long trainings."""
    begin = ["train", str(bare), "--init", str(trained_run)]
    for steps, warns in ((4000, True), (4, False)):
        assert _run([*begin, "--out", str(tmp_path / f"{steps}"), f"--set=train.warmup_steps={steps}"]) == 0
        said = (
            "warning: train.warmup_steps = 4,000 of train.max_steps = 4: train.learning_rate = 0.0001 is never reached"
        )
        assert (said in capsys.readouterr().err) == warns


def test_a_fine_tuned_training_goes_on_where_the_model_is_gone(trained_run, bare, tmp_path, capsys):
    root, model = tmp_path / "fine", tmp_path / "model"
    shutil.copytree(trained_run / "best", model)
    assert _run(["train", str(bare), "--out", str(root), "--init", str(model)]) == 0
    shutil.rmtree(model)
    assert _run(["train", str(bare), "--out", str(root), "--resume", "--set=train.max_steps=6"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"{root}: step 6")
    # But text that has changed is noticed as ever.
    assert _run(["train", str(bare), "--out", str(root), "--resume", "--set=data.train.source=dev.src"]) == 2
    assert "data.train.0.source was 'train.src' and is 'dev.src'" in capsys.readouterr().err


def test_a_new_vocabulary_is_carried_over_to_the_models_settings(trained_run, bare, tmp_path, capsys):
    root = tmp_path / "fine"
    options = ["--init", str(trained_run), "--carry-vocabulary", "--set=tokenizer.vocab_size=320"]
    assert _run(["train", str(bare), "--out", str(root), *options]) == 0
    assert "symbols carried over" in capsys.readouterr().err
    new, old = load_bundle(root), load_bundle(trained_run)
    assert new.config.d_model == old.config.d_model
    assert new.tokenizers.target.vocab_size < old.tokenizers.target.vocab_size
    assert read_run(root / "run.toml").tokenizer.kind == "bpe"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set=model.heads=4"], "--set model.heads = 4, but {init}, which the training begins with, has 2: leave it"),
        (["--set=model.preset=tiny"], "another model than this run's: model.encoder_layers is 4 but 1 there; "),
        (["--set=train.learning_rate_factor=3.0"], "learning_rate = 0.0001 is the rate itself"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_prepared(trained_run, bare, tmp_path, capsys, options, message):
    root = tmp_path / "fine"
    assert _run(["train", str(bare), "--out", str(root), "--init", str(trained_run), *options]) == 2
    assert message.format(init=trained_run) in capsys.readouterr().err
    assert not (root / "store").exists()


@pytest.fixture
def imported(trained_run, tmp_path):
    """The trained model as OPUS-MT's are: two tokenizers of one vocabulary, each cutting text in its own way."""
    bundle = load_bundle(trained_run)
    spelling = json.loads(bundle.tokenizers.source.to_json())
    spelling["model"]["merges"] = []
    source = Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(spelling)))
    assert source.encode(["bamo"]) != bundle.tokenizers.target.encode(["bamo"])
    imported = replace(bundle, tokenizers=TokenizerPair(source, bundle.tokenizers.target))
    save_bundle(imported, tmp_path / "imported")
    return tmp_path / "imported"


def test_two_tokenizers_of_one_vocabulary_go_on_as_they_are(imported, bare, tiny_run_file, tmp_path, capsys):
    """Sources are cut by the one and targets by the other, into rows of one matrix."""
    root = tmp_path / "fine"
    assert _run(["train", str(bare), "--out", str(root), "--init", str(imported)]) == 0
    assert f"fine-tuning {imported}: its weights and its vocabulary\n" in capsys.readouterr().err
    old, new = load_bundle(imported), load_bundle(root)
    assert new.config == old.config
    assert new.config.source_vocab_size is None
    for side in ("source", "target"):
        assert getattr(new.tokenizers, side).to_json() == getattr(old.tokenizers, side).to_json()
    assert (root / "tokenizer.source.json").is_file()
    texts = ((tiny_run_file.parent / f"train.{side}").read_text().split("\n")[0] for side in ("src", "trg"))
    (source,), (target,) = map(Tokenizer.encode, (old.tokenizers.source, old.tokenizers.target), ([t] for t in texts))
    assert [list(ids) for ids in Store(RunDirectory(root).train_store).pair(0)] == [source, target]
    assert _run(["train", str(root / "run.toml"), "--resume", "--set=train.max_steps=5"]) == 0
    assert load(root).translate("kari").text != ""


def test_embeddings_of_each_side_go_on_though_both_know_the_same_symbols(trained_run, bare, tmp_path, capsys):
    bundle = load_bundle(trained_run)
    torch.manual_seed(5)
    own = bundle.config.model_copy(update={"source_vocab_size": bundle.config.vocab_size})
    save_bundle(replace(bundle, model=build(own)), tmp_path / "own")
    root = tmp_path / "fine"
    assert _run(["train", str(bare), "--out", str(root), "--init", str(tmp_path / "own")]) == 0
    assert load_bundle(root).config == own
    assert _run(["train", str(bare), "--out", str(root), "--resume", "--set=train.max_steps=5"]) == 0


@pytest.mark.parametrize("prepared", [False, True])
def test_one_tokenizer_for_embeddings_of_each_side_is_refused_with_what_to_give(bare, tmp_path, prepared):
    own = random_bundle(source_vocab_size=SIZES["vocab_size"])
    save_bundle(own, tmp_path / "own")
    config = read_training(
        bare,
        ["tokenizer.kind=existing", f"tokenizer.path={tmp_path / 'own'}"],
        RunDirectory(tmp_path / "on"),
        resume=True,
        init=tmp_path / "own",
    )
    tokenizers = own.tokenizers if prepared else None
    message = r"its source has embeddings of its own, .* give \[tokenizer\.source\] and \[tokenizer\.target\]"
    with pytest.raises(BadInputError, match=message):
        check_init(config, tmp_path / "own", tokenizers)
    check_init(config, tmp_path / "own", tokenizers, carry_vocabulary=True)
