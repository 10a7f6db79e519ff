"""Every recipe is a run file that prepares and trains. That it learns too is slow, and in docs/results.md."""

import gzip
import random
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from transduce.bundle import load_bundle
from transduce.config import Corpus, RecurrentConfig, RunConfig, read_run
from transduce.data import corpus_paths
from transduce.inference import load
from transduce.workflows.evaluate import Measures, evaluate
from transduce.workflows.examples import read_own_examples
from transduce.workflows.initialize import read_training
from transduce.workflows.prepare import prepare
from transduce.workflows.run_directory import RunDirectory, corpus_files
from transduce.workflows.train import train_run

pytest_plugins = ["tiny_run"]

# What a width, a depth and a vocabulary cost says nothing about a recipe.
NARROW: dict[str, dict[str, Any]] = {
    "transformer": {"encoder_layers": 1, "decoder_layers": 1, "d_model": 16, "d_ff": 8, "heads": 2, "d_k": 8, "d_v": 8},
    "recurrent": {"embedding_size": 16, "hidden_size": 16, "attention_size": 16, "readout_size": 16},
    "convolutional": {
        **{"embedding_width": 16, "output_width": 16},
        **{"encoder_convolutions": ((16, 3, 1),), "decoder_convolutions": ((16, 3, 1),)},
    },
}
FINE_TUNING = ("multi30k-fine-tuned", "multi30k-minimum-risk")
RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.toml"))

PAPER = [path for path in RECIPES if path.stem.startswith("wmt14-")]


def _first(corpus: Corpus, pairs: int) -> Corpus:
    made: dict[str, Any] = {} if corpus.made_up is None else {"count": pairs}
    return corpus.model_copy(update={"lines": (1, pairs)} | made)


def _shortened(config: RunConfig, *, narrow: bool = True) -> RunConfig:
    """Some lines of the text, some steps of the training, a small model."""
    data = config.data.model_copy(
        update={
            "train": tuple(_first(corpus, 300) for corpus in config.data.train),
            "dev": _first(config.data.dev, 20),
            "test": config.data.test and _first(config.data.test, 20),
        }
    )
    steps: dict[str, Any] = dict.fromkeys(("max_steps", "validate_every", "checkpoint_every"), 2)
    steps |= {"precision": "float32", "max_minutes": None}
    steps["batch_tokens"] = min(config.train.batch_tokens, 512)
    if narrow:
        widths = NARROW[config.model.architecture]
        without = isinstance(config.model, RecurrentConfig) and config.model.attention == "none"
        there = {name: width for name, width in widths.items() if not (without and name == "attention_size")}
        config = config.model_copy(update={"model": config.model.model_copy(update=there)})
    # What has learned nothing finds no end.
    brief = config.generation.model_copy(update={"max_extra_length": 2})
    if config.train.objective != "likelihood":
        steps |= {"batch_tokens": 256, "samples": 2}
    train = config.train.model_copy(update=steps)
    return config.model_copy(update={"data": data, "train": train, "generation": brief})


def _texts(config: RunConfig) -> list[Path]:
    data = config.data
    return [*corpus_files(config), *(corpus_paths(data.test, data.folder) if data.test else [])]


def _copy_beginnings(config: RunConfig, root: Path) -> None:
    """The first lines of a recipe's files: trees are read to the end, and text in order to find its last line."""
    for path in set(_texts(config)):
        copy = root / path.relative_to(config.data.folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "rb") as whole, gzip.open(copy, "wb") as part:
            part.writelines(islice(whole, 300))


@pytest.mark.parametrize("size", ["small", pytest.param("whole", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "recipe", [path for path in RECIPES if path.stem not in FINE_TUNING], ids=lambda path: path.stem
)
def test_prepares_trains_and_scores_its_own_test_set(recipe, size, tmp_path):
    config = read_run(recipe)
    if not all(path.is_file() for path in _texts(config)):
        pytest.skip(f"the corpus is not in {config.data.root}")
    if size == "small":
        _copy_beginnings(config, tmp_path / "corpus")
        config = read_run(recipe, [f"data.root={tmp_path / 'corpus'}"])
    run = RunDirectory(tmp_path / recipe.stem)
    train_run(_shortened(config, narrow=size == "small"), run, resume=False)
    [score] = evaluate(load(run.root), read_own_examples(run.root), Measures(["exact"]))
    assert "lines:20" in score.signature


@pytest.mark.parametrize("name", FINE_TUNING)
def test_fine_tuning_takes_any_model(trained_run, tmp_path, name):
    """Its settings and its tokenizer; this one has never seen such text."""
    recipe, run = next(path for path in RECIPES if path.stem == name), RunDirectory(tmp_path / name)
    config = read_training(recipe, [], run, resume=False, init=trained_run)
    if not all(path.is_file() for path in corpus_files(config)):
        pytest.skip(f"the corpus is not in {config.data.root}")
    progress = train_run(_shortened(config, narrow=False), run, resume=False, init=trained_run)
    assert (progress.step, progress.init) == (2, str(trained_run))
    new, old = (load_bundle(path).config.model_dump(exclude={"label_smoothing"}) for path in (run.root, trained_run))
    assert new == old
    [score] = evaluate(load(run.root), read_own_examples(run.root), Measures(["exact"]))
    assert "lines:20" in score.signature


def test_every_corpus_has_its_recipe():
    assert {path.stem for path in RECIPES} == {
        "copy", "multi30k", "multi30k-back-translated", "multi30k-base", "multi30k-convolutional", "multi30k-de-en",
        *FINE_TUNING, "multi30k-no-attention", "multi30k-part", "multi30k-part-de-en", "multi30k-quick",
        "multi30k-recurrent", "multi30k-tokenized",
        "parsing-craft", "parsing-gum", "parsing-gum-semi", "parsing-wsj",
        "scan-addprim-jump", "scan-length", "scan-simple",
        "tatoeba", "tatoeba-student",
        *(f"wmt14-en-{language}-{name}" for language in ("de", "fr") for name in ("base", "big")),
    }  # fmt: skip


@pytest.fixture
def wmt14(tmp_path):
    """Made-up text in files of the names that the recipes of the paper's regime read, hyphenated compounds among it."""
    chance = random.Random(7)
    words = {"en": ["house", "dog", "well-known", "sees", "a"], "de": ["Haus", "Hund", "E-Mail", "sieht", "ein"]}
    words["fr"] = ["maison", "chien", "peut-être", "voit", "un"]
    configs = [read_run(recipe) for recipe in PAPER]
    names = {name for config in configs for name in (config.data.test.source, config.data.test.target)}
    for name in names | {path.name for config in configs for path in corpus_files(config)}:
        lines = [" ".join(chance.choices(words[name[-2:]], k=5)) for _ in range(40)]
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("recipe", PAPER, ids=lambda path: path.stem)
def test_the_papers_regime_runs_on_files_of_those_names(recipe, wmt14, tmp_path):
    """With its own text, tokenizer, schedule and search, but a model of one narrow layer and two steps."""
    config = read_run(recipe, [f"data.root={wmt14}"])
    small = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 16, "d_ff": 8, "heads": 2, "d_k": 8, "d_v": 8}
    steps = {"max_steps": 2, "validate_every": 2, "checkpoint_every": 1, "precision": "float32"}
    brief = {
        "model": config.model.model_copy(update=small),
        "train": config.train.model_copy(update=steps),
        "generation": config.generation.model_copy(update={"max_extra_length": 2}),
    }
    run = RunDirectory(tmp_path / "run")
    train_run(config.model_copy(update=brief), run, resume=False)
    examples = read_own_examples(run.root)
    assert len(examples.sources) == 40
    plain, split = (
        evaluate(load(run.root), examples, Measures(["bleu"], each))[0] for each in ("13a", "13a+compounds")
    )
    assert ("tok:13a|" in plain.signature, "tok:13a+compounds|" in split.signature) == (True, True)


def test_the_papers_regime_is_what_the_paper_says():
    """Sections 5.1, 5.2, 5.3 and 6.1, by hand."""
    for recipe in PAPER:
        config, big, french = read_run(recipe), recipe.stem.endswith("big"), "-fr-" in recipe.stem
        width = {"d_model": 1024, "d_ff": 4096, "heads": 16} if big else {"d_model": 512, "d_ff": 2048, "heads": 8}
        dropout = 0.3 if big and not french else 0.1
        assert {name: getattr(config.model, name) for name in (*width, "dropout", "label_smoothing")} == {
            **width, "dropout": dropout, "label_smoothing": 0.1,
        }  # fmt: skip
        assert config.tokenizer.shared
        assert (config.tokenizer.kind, config.tokenizer.vocab_size) == (
            ("wordpiece", 32_000) if french else ("bpe", 37_000)
        )
        train, last = config.train, 20 if big else 5
        assert (train.batch_tokens, train.max_steps, train.warmup_steps) == (25_000, 300_000 if big else 100_000, 4000)
        assert (train.checkpoint_minutes, train.average_last, train.keep_checkpoints) == (10, last, last)
        assert train.checkpoint_every >= train.max_steps
        assert (train.adam_beta1, train.adam_beta2, train.adam_epsilon) == (0.9, 0.98, 1e-9)
        assert (train.learning_rate, train.learning_rate_factor, train.cooldown_steps) == (None, 1.0, 0)
        search = config.generation
        assert (search.beam_size, search.length_penalty, search.max_extra_length, search.max_length) == (
            4,
            0.6,
            50,
            None,
        )


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
