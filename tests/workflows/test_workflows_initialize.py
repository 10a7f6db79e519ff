"""Going on from a finished model."""

import json

import pytest
import torch

from transduce.bundle import load_bundle, read_tensors
from transduce.config import BadInputError, read_run
from transduce.workflows.run_directory import RunDirectory
from transduce.workflows.train import train_run

pytest_plugins = ["tiny_run"]

# At this rate nothing moves: what the training begins with is what it ends with.
STILL = ["train.max_steps=1", "train.learning_rate_factor=1e-12", "train.validate_every=1"]


@pytest.fixture
def settings(trained_run):
    """The same vocabulary as the finished model's."""
    return [*STILL, "tokenizer.kind=existing", f'tokenizer.path="{trained_run}"']


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
    with pytest.raises(BadInputError, match=r"source: .* only there"):
        train_run(config, run, resume=False, init=trained_run)
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
    run = RunDirectory(tmp_path / "on")
    train_run(read_run(tiny_run_file, settings), run, resume=False, init=trained_run)
    longer = read_run(tiny_run_file, [*settings, "train.max_steps=2"])
    # The model may be gone by then.
    assert train_run(longer, run, resume=True, init=tmp_path / "gone").step == 2


@pytest.mark.parametrize("carry", [False, True])
def test_a_projection_of_its_own_goes_on_too(tiny_run_file, tmp_path, carry):
    """Row by row where the vocabulary is another one; a symbol that is new keeps what it was drawn with."""
    untied = [*STILL, "model.tied_projection=false"]
    first, second = RunDirectory(tmp_path / "first"), RunDirectory(tmp_path / "second")
    train_run(read_run(tiny_run_file, untied), first, resume=False)
    text = "tokenizer.symbols=['<new>']" if carry else f'tokenizer.path="{first.root}"'
    settings = [*untied, text, *([] if carry else ["tokenizer.kind=existing"])]
    train_run(read_run(tiny_run_file, settings), second, resume=False, init=first.root, carry_vocabulary=carry)
    old, new = load_bundle(first.root), load_bundle(second.root)
    before, after = (each.tokenizers.target.vocabulary for each in (old, new))
    both = sorted(before.keys() & after.keys())
    assert len(both) > 260
    for name in ("projection.weight", "embedding.weight"):
        old_rows, new_rows = (
            bundle.model.get_parameter(name)[[vocabulary[symbol] for symbol in both]]
            for bundle, vocabulary in ((old, before), (new, after))
        )
        torch.testing.assert_close(new_rows, old_rows, atol=1e-6, rtol=0)
    assert not torch.allclose(new.model.get_parameter("projection.weight"), new.model.embedding.weight)
