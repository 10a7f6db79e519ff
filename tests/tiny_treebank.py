"""A made-up treebank in the folders of the Penn Treebank, and a parser trained on it in seconds.

Test modules ask for it by ``pytest_plugins``.
"""

import random
from pathlib import Path

import pytest

from tests.tiny_run import make_once
from transduce.config import read_run
from transduce.workflows.run_directory import RunDirectory
from transduce.workflows.train import train_run

NOUNS, VERBS, NAMES = ("bamo", "dulu", "kari"), ("fepi", "gozu"), ("Luso", "Wemo")
TRAINING, DEV, TEST = range(2, 22), 22, 23  # sections

RUN = """
[data]
train = { trees = [SECTIONS], tags = "kept" }
dev = { trees = "wsj/22", tags = "kept" }
test = { trees = "wsj/23", tags = "kept" }

[tokenizer.source]
kind = "words"

[tokenizer.target]
kind = "words"

[model]
encoder_layers = 1
decoder_layers = 1
d_model = 32
d_ff = 64
heads = 2
norm = "pre"

[train]
batch_tokens = 512
max_steps = 500
warmup_steps = 60
learning_rate_factor = 0.4
log_every = 50
validate_every = 500
checkpoint_every = 250
best_metric = "brackets"
precision = "float32"

[generation]
max_extra_length = 40
"""


def _noun_phrase(draw: random.Random, depth: int = 0) -> str:
    if draw.random() < 0.3:
        return f"(NP-SBJ (NNP {draw.choice(NAMES)}))"
    inner = f"(NP (DT ti) (NN {draw.choice(NOUNS)}))"
    if depth < 2 and draw.random() < 0.3:
        return f"(NP {inner} (PP (IN sor) {_noun_phrase(draw, depth + 1)}))"
    return inner


def make_tree(draw: random.Random) -> str:
    """A sentence as in the Penn Treebank's files, over two lines, with a trace in some."""
    trace = " (NP-1 (-NONE- *T*-1))" if draw.random() < 0.3 else ""
    verb = f"(VP (VBZ {draw.choice(VERBS)})"
    phrase = f"{verb}{trace})" if draw.random() < 0.4 else f"{verb} {_noun_phrase(draw)}{trace})"
    return f"( (S {_noun_phrase(draw)}\n    {phrase} (. .)) )"


def _write(folder: Path) -> None:
    draw = random.Random(9)
    for section in (*TRAINING, DEV, TEST):
        directory = folder / "wsj" / f"{section:02}"
        directory.mkdir(parents=True)
        for file in range(2):
            trees = [make_tree(draw) for _ in range(6)]
            (directory / f"wsj_{section:02}{file:02}.mrg").write_text("\n".join(["", *trees, ""]), encoding="utf-8")
        (directory / "README").write_text("no trees\n", encoding="utf-8")
    sections = ", ".join(f'"wsj/{section:02}"' for section in TRAINING)
    (folder / "run.toml").write_text(RUN.replace("SECTIONS", sections), encoding="utf-8")


@pytest.fixture(scope="session")
def treebank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder. Nothing may be written into it."""
    return make_once("treebank", tmp_path_factory, _write)


@pytest.fixture(scope="session")
def trained_parser(treebank: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of a finished training. Nothing may be changed in it."""
    config = read_run(treebank / "run.toml")
    return make_once("parser", tmp_path_factory, lambda root: train_run(config, RunDirectory(root), resume=False))
