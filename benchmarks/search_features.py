"""What each feature of the search costs: sentences per second with it on, beside the plain beam, in one run.

    python -m benchmarks.search_features [--sentences 128] [--rounds 3]

A base-size model with random weights and a vocabulary of 10,000, sources of 14 tokens, outputs of exactly 14, so that
every way of searching writes equally much. The features take turns, so that whatever else the machine does meets all of
them alike; a row is the median of the rounds. Writes ``benchmarks/results/search_features.md``.
"""

import argparse
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.page import circumstances, table
from benchmarks.rounds import medians
from transduce.config import SpecialIds, preset
from transduce.inference import Engine
from transduce.models import build
from transduce.search import (
    Containing,
    LengthPenalty,
    NoRepeat,
    Prefixes,
    Sampling,
    SearchSettings,
    Without,
)

SPECIAL: Final = SpecialIds(0, 1, 2, 3)
VOCABULARY: Final = 10_000
LENGTH: Final = 14
RESULT: Final = Path(__file__).parent / "results" / "search_features.md"


def words(sentence: int, count: int) -> list[int]:
    """Ids that follow from the sentence's number."""
    return random.Random(sentence).choices(range(4, VOCABULARY), k=count)


def features(sentences: int) -> dict[str, dict[str, Any]]:
    """Every feature as what it changes of a beam of four."""
    numbers = range(sentences)
    banned = [words(-number - 1, 2) for number in range(100)]
    wanted = {number: [words(number, 2), words(number + sentences, 2)] for number in numbers}
    return {
        "beam 4": {},
        "greedy": {"beam_size": 1},
        "n-best 4": {"n_best": 4},
        "length penalty marian": {"penalty": LengthPenalty("marian", 0.6)},
        "stopping full_beam": {"stopping": "full_beam"},
        "coverage penalty": {"coverage": 0.2},
        "diversity": {"diversity": 0.5},
        "no 3-gram twice": {"constraints": (NoRepeat(3),)},
        "one word banned": {"constraints": (Without([words(0, 1)]),)},
        "prefix of 3": {"constraints": (Prefixes({number: words(number, 3) for number in numbers}),)},
        "100 phrases banned": {"constraints": (Without(banned),)},
        "2 phrases of 2 wanted": {"constraints": (Containing(wanted, SPECIAL.end),)},
        "sampling": {"beam_size": 1, "sampling": Sampling()},
        "sampling, top-k 10": {"beam_size": 1, "sampling": Sampling(top_k=10)},
        "sampling, top-p 0.9": {"beam_size": 1, "sampling": Sampling(top_p=0.9)},
    }


def measure(model: Mapping[str, Any], sentences: int, rounds: int) -> dict[str, float]:
    """Sentences per second of every feature, and of what is not a matter of the search alone."""
    torch.manual_seed(1)
    one, other = (build(preset("base", {"vocab_size": VOCABULARY, **model})) for _ in range(2))
    engine, both = Engine(one, SPECIAL), Engine([one, other], SPECIAL)
    sources = [words(number, LENGTH) for number in range(sentences)]
    plain = SearchSettings(SPECIAL.begin, SPECIAL.end, (SPECIAL.pad, SPECIAL.begin, SPECIAL.unknown), min_length=LENGTH)

    def search(engine: Engine, changes: Mapping[str, Any]) -> None:
        found = engine.search(sources, replace(plain, **changes), 0, LENGTH)
        assert all(isinstance(each, list) and len(each[0].ids) == LENGTH for each in found)

    calls: dict[str, Callable[[], object]] = {
        name: partial(search, engine, changes) for name, changes in features(sentences).items()
    }
    calls["ensemble of two"] = partial(search, both, {})
    calls["forced pass for attention (alone)"] = lambda: list(engine.attention(sources, sources))
    return {name: sentences / seconds for name, seconds in medians(calls, rounds).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sentences", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    found = measure({}, options.sentences, options.rounds)
    plain = found["beam 4"]
    rows = [[name, f"{speed:.1f}", f"{speed / plain:.2f}"] for name, speed in found.items()]
    lines = [
        "# Features of the search",
        "",
        f"Base size, random weights, vocabulary {VOCABULARY:,}, sources and outputs of {LENGTH} tokens, "
        f"{options.sentences} sentences, `auto` precision; median of {options.rounds} rounds in turns.",
        f"{circumstances()}; `python -m benchmarks.search_features`.",
        "",
        *table(["feature", "sentences/s", "beside beam 4"], rows),
    ]
    print("\n".join(lines))
    RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
