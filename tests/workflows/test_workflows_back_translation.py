"""From monolingual text to a training: what each verb writes, the next one reads, by the names that the recipe has."""

import gzip
import json
import random
from pathlib import Path

import pytest

from tests.tiny_run import DICTIONARY
from transduce.cli import main
from transduce.config import read_run
from transduce.data import read_corpus
from transduce.inference import Translator
from transduce.workflows.prepare import prepare
from transduce.workflows.run_directory import RunDirectory
from transduce.workflows.train import train_run

pytest_plugins = ["tiny_run"]

RECIPES = Path(__file__).parents[2] / "recipes"
RECIPE, REVERSE, BASELINE = (RECIPES / f"multi30k-{name}.toml" for name in ("back-translated", "part-de-en", "part"))
MONOLINGUAL = ["bamo dulu", "kari luso wemo", "gozu", "fepi ЖЩ"]
PAIRS = 41


def _write(path: Path, lines: list[str]) -> None:
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))


@pytest.fixture
def back(tmp_path):
    """The folder that the recipe reads: pairs by Multi30k's names, monolingual text of their target language."""
    chance, data = random.Random(3), read_run(RECIPE).data
    for corpus in (data.train[0], data.dev, data.test):
        rows = [chance.choices(list(DICTIONARY), k=4) for _ in range(PAIRS)]
        _write(tmp_path / corpus.target, [" ".join(row) for row in rows])
        _write(tmp_path / corpus.source, [" ".join(DICTIONARY[word] for word in row) for row in rows])
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "german.txt").write_text("\n".join(MONOLINGUAL) + "\n", encoding="utf-8")
    return tmp_path


def _objects(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _means(translator: Translator, pairs: list[tuple[str, str]]) -> list[float]:
    """Log-probability for each token of the target, end symbol counted."""
    targets = [target for _, target in pairs]
    lengths = [len(ids) + 1 for ids in translator.tokenizers.target.encode(targets)]
    scores = translator.score([source for source, _ in pairs], targets)
    return [score / length for score, length in zip(scores, lengths, strict=True)]


def test_monolingual_text_becomes_tagged_pairs_that_a_model_learns_from(back, trained_run, translator, tmp_path):
    bulk = [str(trained_run), "--precision", "float32", "-q"]
    asked = ["--input", f"{back}/text", "--format", "jsonl", "--output", f"{back}/translated"]
    assert main._run(["translate", *bulk, *asked]) == 0
    written = [(each["source"], each["text"]) for each in _objects(back / "translated" / "german.jsonl")]
    assert [source for source, _ in written] == MONOLINGUAL

    means = _means(translator, written)
    lowest, second, *_ = sorted(means)
    expected = [pair for pair, mean in zip(written, means, strict=True) if mean > lowest]
    assert len(expected) == len(MONOLINGUAL) - 1
    asked = ["--target-column", "text", "--min-score", str((lowest + second) / 2), "--output", f"{back}/kept"]
    assert main._run(["score", *bulk, "--input", f"{back}/translated", *asked]) == 0
    kept = [(each["source"], each["text"]) for each in _objects(back / "kept" / "german.jsonl")]
    assert kept == expected
    with (back / "kept" / "german.jsonl").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps({"source": "bamo", "text": "ti sor ti sor ti sor"}) + "\n")

    small = {
        "tokenizer": {"vocab_size": 300},
        "model": {"encoder_layers": 1, "decoder_layers": 1, "d_model": 16, "d_ff": 8, "heads": 2},
        "train": {"max_steps": 2, "validate_every": 2, "checkpoint_every": 2, "batch_tokens": 256},
    }
    config = read_run(RECIPE, [f"data.root={back}"])
    gold, synthetic = config.data.train
    assert list(read_corpus(synthetic, back))[:-1] == [(f"<bt> {text}", source) for source, text in expected]
    corpora = (gold.model_copy(update={"lines": (1, PAIRS)}), synthetic)
    sections = {name: getattr(config, name).model_copy(update=update) for name, update in small.items()}
    sections["data"] = config.data.model_copy(update={"train": corpora})
    config = config.model_copy(update=sections)
    run = RunDirectory(tmp_path / "run")
    prepared = prepare(config, run)
    assert len(prepared.train) == PAIRS + len(expected)
    assert "1 dropped: length ratio" in (run.root / "store" / "report.txt").read_text(encoding="utf-8")
    assert "<bt>" in prepared.tokenizers.source.vocabulary
    assert train_run(config, run, resume=True).step == 2
    assert (run.root / "best" / "config.json").is_file()


def test_the_recipes_differ_in_their_text_alone():
    """A difference of scores is the monolingual text's: the reverse model knows no pairs but the baseline's."""
    back, reverse, baseline = map(read_run, (RECIPE, REVERSE, BASELINE))
    for section in ("tokenizer", "model", "train", "generation"):
        assert getattr(back, section) == getattr(reverse, section) == getattr(baseline, section)
    gold, synthetic = back.data.train
    [pairs], [swapped] = baseline.data.train, reverse.data.train
    assert (gold.source, gold.target, gold.lines) == (pairs.source, pairs.target, pairs.lines)
    assert (gold.source, gold.target, gold.lines) == (swapped.target, swapped.source, swapped.lines)
    assert (gold.tag, synthetic.tag) == (None, "<bt>")
    assert (back.data.dev, back.data.test) == (baseline.data.dev, baseline.data.test)
