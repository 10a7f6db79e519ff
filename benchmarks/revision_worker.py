"""One revision's side of ``benchmarks.revisions``: questions in, answers out, a line of JSON each.

Run by the interpreter of whatever revision it speaks for, so it keeps to what all of them have.

    outputs        all outputs of all models, in every number format and kind of search
    cases          what can be timed
    time CASE      sentences or target tokens a second of the processor's time, once
"""

import gzip
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

import transduce
from benchmarks.peers.batches import real_corpus
from benchmarks.peers.sizes import make_config
from transduce.config import Precision, TrainConfig
from transduce.kernels import resolve_precision
from transduce.models import build
from transduce.training import make_optimizer, step_seed, train_step

FORMATS: tuple[Precision, ...] = ("float32", "bfloat16", "int8")
SEARCHES: dict[str, dict[str, Any]] = {
    "beam 4": {"beam_size": 4},
    "greedy": {"beam_size": 1},
    "3 best of 5, no bigram twice": {"beam_size": 5, "n_best": 3, "no_repeat_ngram": 2},
    "2 samples": {"n_best": 2, "sampling": True, "temperature": 0.9, "top_k": 50, "seed": 3},
}
TEXTS = 60
BATCH, ALONE = 64, 8  # sentences that are timed together, and one by one
PAIRS, VOCABULARY, STEPS, RATE = 3000, 8000, 2, 1e-4  # what batches are made of, and how many are trained on


def read_pairs(data: Path, model: Path) -> tuple[list[str], list[str]]:
    """Sources and targets of the test set that belongs to a run directory, by the name of its recipe."""
    if model.name.startswith("scan"):
        with gzip.open(data / "scan" / "tasks_test_simple.txt.gz", "rt", encoding="utf-8") as lines:
            pairs = [line.removeprefix("IN: ").rstrip("\n").split(" OUT: ") for line in lines]
        return [source for source, _ in pairs], [target for _, target in pairs]
    sides = []
    for language in ("en", "de"):
        with gzip.open(data / "multi30k" / f"test2016.{language}.gz", "rt", encoding="utf-8") as lines:
            sides.append(lines.read().splitlines())
    return sides[0], sides[1]


def outputs(data: Path, models: list[Path]) -> dict[str, list[tuple[list[str], list[float]]]]:
    """By what they were asked for: of each source its outputs, and their scores and log-probabilities."""
    found: dict[str, list[tuple[list[str], list[float]]]] = {}
    for model in models:
        sources, targets = read_pairs(data, model)
        for format_ in FORMATS:
            translator = transduce.load(model, format_)
            for name, options in SEARCHES.items():
                written = translator.translate(sources[:TEXTS], max_extra_length=8, **options)
                every = [(one, *one.alternatives) for one in written]
                found[f"{model.name}, {format_}, {name}"] = [
                    (
                        [each.text for each in several],
                        [x for each in several for x in (each.score, each.log_probability)],
                    )
                    for several in every
                ]
            scores = translator.score(sources[:TEXTS], targets[:TEXTS])
            found[f"{model.name}, {format_}, score"] = [([], [score]) for score in scores]
    return found


def write(translator: transduce.Translator, beam: int, batches: list[list[str]]) -> int:
    """How many sentences were written, none longer than its source."""
    return sum(len(translator.translate(batch, beam_size=beam, max_extra_length=0)) for batch in batches)


class Steps:
    """Training steps of a model of some size on Multi30k, as ``benchmarks.training_step`` makes them."""

    def __init__(self, data: Path, size: str) -> None:
        self._corpus = real_corpus(data / "multi30k", PAIRS, VOCABULARY)
        self._model = build(make_config(size, self._corpus.vocab_size))
        self._optimizer = make_optimizer(self._model, TrainConfig())
        self._dtype = resolve_precision("auto", torch.device("cpu"))
        self._batches = self._corpus.take(0, STEPS)

    def __call__(self) -> int:
        """How many target tokens were trained on, the same in every call."""
        for number, batch in enumerate(self._batches):
            seed = step_seed(0, number)
            train_step(self._model, self._optimizer, [batch], RATE, self._dtype, seed)
        return sum(batch.target_tokens for batch in self._batches)


def timings(data: Path, models: list[Path]) -> dict[str, Callable[[], int]]:
    """What can be timed, by name: each call gives how many sentences it wrote."""
    found: dict[str, Any] = {}
    for model in models:
        sources, _ = read_pairs(data, model)
        for format_ in ("int8", "float32"):
            translator = transduce.load(model, format_)
            for beam in (1, 4):
                name = f"{model.name}, {format_}, beam {beam}"
                found[name] = partial(write, translator, beam, [sources[:BATCH]])
                found[f"{name}, one by one"] = partial(write, translator, beam, [[text] for text in sources[:ALONE]])
    return found | {f"training, {size} (tokens)": Steps(data, size) for size in ("tiny", "recipe")}


def main() -> None:
    data, *models = map(Path, sys.argv[1:])
    cases: dict[str, Callable[[], int]] = {}
    for line in sys.stdin:
        match json.loads(line):
            case ["outputs"]:
                answer: object = outputs(data, models)
            case ["cases"]:
                cases = timings(data, models)
                answer = list(cases)
            case ["time", name]:
                start = time.process_time()
                count = cases[name]()
                answer = count / (time.process_time() - start)
            case other:
                raise ValueError(f"no such question: {other}")
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
