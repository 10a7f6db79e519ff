"""Every recipe is a run file that prepares and trains. That it learns too is slow, and in docs/results.md."""

from pathlib import Path

import pytest

from transduce.bundle import load_bundle
from transduce.config import RunConfig, read_run
from transduce.inference import load
from transduce.workflows.evaluate import Measures, evaluate, read_own_examples
from transduce.workflows.initialize import read_training
from transduce.workflows.prepare import prepare
from transduce.workflows.run_directory import RunDirectory, corpus_files
from transduce.workflows.train import train_run

pytest_plugins = ["tiny_run"]

FINE_TUNING = ("multi30k-fine-tuned", "multi30k-minimum-risk")
RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.toml"))


def _shortened(config: RunConfig) -> RunConfig:
    """Some lines of the text, some steps of the training."""
    pairs = tuple(corpus.model_copy(update={"lines": (1, 300), "count": 300}) for corpus in config.data.train)
    some = {"lines": (1, 20), "count": 20}
    data = config.data.model_copy(
        update={
            "train": pairs,
            "dev": config.data.dev.model_copy(update=some),
            "test": config.data.test and config.data.test.model_copy(update=some),
        }
    )
    steps = {"max_steps": 2, "validate_every": 2, "checkpoint_every": 1, "precision": "float32", "max_minutes": None}
    # What has learned nothing finds no end.
    brief = config.generation.model_copy(update={"max_extra_length": 2})
    train = config.train.model_copy(update=steps)
    return config.model_copy(update={"data": data, "train": train, "generation": brief})


@pytest.mark.parametrize(
    "recipe", [path for path in RECIPES if path.stem not in FINE_TUNING], ids=lambda path: path.stem
)
def test_prepares_trains_and_scores_its_own_test_set(recipe, tmp_path):
    config = read_run(recipe)
    if not all(path.is_file() for path in corpus_files(config)):
        pytest.skip(f"the corpus is not in {config.data.root}")
    run = RunDirectory(tmp_path / recipe.stem)
    train_run(_shortened(config), run, resume=False)
    [score] = evaluate(load(run.root), read_own_examples(run.root), Measures(["exact"]))
    assert "lines:20" in score.signature


@pytest.mark.parametrize("name", FINE_TUNING)
def test_fine_tuning_takes_any_model(trained_run, tmp_path, name):
    """Its settings and its tokenizer; this one has never seen such text."""
    recipe, run = next(path for path in RECIPES if path.stem == name), RunDirectory(tmp_path / name)
    config = read_training(recipe, [], run, resume=False, init=trained_run)
    if not all(path.is_file() for path in corpus_files(config)):
        pytest.skip(f"the corpus is not in {config.data.root}")
    progress = train_run(_shortened(config), run, resume=False, init=trained_run)
    assert (progress.step, progress.init) == (2, str(trained_run))
    new, old = (load_bundle(path).config.model_dump(exclude={"label_smoothing"}) for path in (run.root, trained_run))
    assert new == old
    [score] = evaluate(load(run.root), read_own_examples(run.root), Measures(["exact"]))
    assert "lines:20" in score.signature


def test_every_corpus_has_its_recipe():
    assert {path.stem for path in RECIPES} == {
        "copy", "multi30k", "multi30k-base", "multi30k-de-en", *FINE_TUNING, "multi30k-quick", "multi30k-tokenized",
        "parsing-craft", "parsing-gum", "parsing-gum-semi", "parsing-wsj",
        "scan-addprim-jump", "scan-length", "scan-simple",
        "tatoeba", "tatoeba-student",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["simple", "length", "addprim-jump"])
def test_scan_leaves_dev_out_of_training_and_the_words_whole(name, tmp_path):
    config = read_run(next(path for path in RECIPES if path.stem == f"scan-{name}"))
    if not all(path.is_file() for path in corpus_files(config)):
        pytest.skip(f"the corpus is not in {config.data.root}")
    prepared = prepare(config, RunDirectory(tmp_path))
    assert len(prepared.dev) == 500
    # The published sizes of the training sets, but for the lines of dev.
    assert len(prepared.train) == {"simple": 16_728, "length": 16_990, "addprim-jump": 14_670}[name] - 500
    assert set(prepared.tokenizers.target.vocabulary) == {
        "<pad>", "<s>", "</s>", "<unk>", "I_JUMP", "I_LOOK", "I_RUN", "I_TURN_LEFT", "I_TURN_RIGHT", "I_WALK",
    }  # fmt: skip


@pytest.mark.slow
def test_the_copy_task_is_learned(tmp_path):
    run = RunDirectory(tmp_path / "copy")
    train_run(read_run(next(path for path in RECIPES if path.stem == "copy")), run, resume=False)
    [score] = evaluate(load(run.root), read_own_examples(run.root), Measures(["exact"]))
    assert score.value >= 99
