"""A made-up language and a run on it, small enough to train in seconds; test modules ask for it by ``pytest_plugins``.

It is no conftest, so that the folders of several rooms share one trained model.
"""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

from transduce.config import RunConfig, read_run
from transduce.inference import Translator, load
from transduce.workflows.run_directory import RunDirectory
from transduce.workflows.train import train_run

# Seven invented words and what each of them becomes; a sentence is translated word by word.
DICTIONARY = {
    "bamo": "ti",
    "dulu": "sor",
    "fepi": "nal",
    "gozu": "ved",
    "kari": "mup",
    "luso": "hax",
    "wemo": "yob",
}
TRAIN_PAIRS, DEV_PAIRS = 211, 23

RUN = """
[data]
train = { source = "train.src", target = "train.trg" }
dev = { source = "dev.src", target = "dev.trg" }

[tokenizer]
vocab_size = 400

[model]
encoder_layers = 1
decoder_layers = 1
d_model = 32
d_ff = 64
heads = 2
norm = "pre"

[train]
batch_tokens = 256
max_steps = 400
warmup_steps = 60
learning_rate_factor = 0.4
log_every = 50
validate_every = 400  # once, at the end: whatever the rounding, ``best`` is the model that was measured last
checkpoint_every = 200
precision = "float32"

[generation]
max_extra_length = 3
"""


def _sentences(number: int, chance: random.Random) -> tuple[str, str]:
    rows = [chance.choices(list(DICTIONARY), k=chance.randint(1, 6)) for _ in range(number)]
    targets = [[DICTIONARY[word] for word in row] for row in rows]
    source, target = ("".join(" ".join(row) + "\n" for row in side) for side in (rows, targets))
    return source, target


def make_once(name: str, factory: pytest.TempPathFactory, make: Callable[[Path], object]) -> Path:
    """A folder that one of the workers of pytest-xdist makes, and the others wait for."""
    shared = factory.getbasetemp() if "PYTEST_XDIST_WORKER" not in os.environ else factory.getbasetemp().parent
    folder = shared / name
    with FileLock(shared / f"{name}.lock"):
        if not (shared / f"{name}.done").exists():
            make(folder)
            (shared / f"{name}.done").touch()
    return folder


def _write_corpora(folder: Path) -> None:
    folder.mkdir()
    chance = random.Random(5)
    for name, number in (("train", TRAIN_PAIRS), ("dev", DEV_PAIRS)):
        for side, text in zip(("src", "trg"), _sentences(number, chance), strict=True):
            (folder / f"{name}.{side}").write_text(text, encoding="utf-8")
    (folder / "tiny.toml").write_text(RUN, encoding="utf-8")


@pytest.fixture(scope="session")
def tiny_run_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run file beside its corpora. Nothing may be written into its folder."""
    return make_once("corpus", tmp_path_factory, _write_corpora) / "tiny.toml"


@pytest.fixture(scope="session")
def tiny_config(tiny_run_file: Path) -> RunConfig:
    """The run file as read."""
    return read_run(tiny_run_file)


@pytest.fixture(scope="session")
def trained_run(tiny_config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of a finished training. Nothing may be changed in it: copy it first."""
    return make_once("tiny", tmp_path_factory, lambda root: train_run(tiny_config, RunDirectory(root), resume=False))


@pytest.fixture(scope="session")
def translator(trained_run: Path) -> Translator:
    """The trained model in float32."""
    return load(trained_run, "float32")
