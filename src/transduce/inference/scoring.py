"""The log-probabilities that a model gives to known targets."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from transduce.config import BadInputError, TransduceError
from transduce.data import bare
from transduce.inference.encoding import encode_within
from transduce.inference.engine import Engine
from transduce.text import TokenizerPair


@final
@dataclass(frozen=True)
class PairScores:
    """A number for each pair, nan where there is none, and why by the pair's index, in the pairs' order."""

    values: list[float]
    failures: Mapping[int, TransduceError]


def score_pairs(
    engine: Engine,
    tokenizers: TokenizerPair,
    sides: tuple[Sequence[str], Sequence[str]],
    limit: int,
    first: int,
    *,
    hurry: bool,
) -> PairScores:
    """The log-probability of each target given its source; neither side may have more than ``limit`` symbols.

    ``first`` is the first pair's number, for errors; ``hurry`` says that nothing is worth doing once a pair has failed.

    Raises:
        BadInputError: There are more sources than targets, or fewer.
    """
    if len(sides[0]) != len(sides[1]):
        raise BadInputError(f"{len(sides[0]):,} sources and {len(sides[1]):,} targets: give one target for each source")
    failures: dict[int, TransduceError] = {}
    encoded = []
    for name, tokenizer, texts in zip(("source", "target"), (tokenizers.source, tokenizers.target), sides, strict=True):
        found = encode_within(tokenizer, [bare(text) for text in texts], limit, engine.longest, "leave the pair out")
        for index, each in enumerate(found):
            if isinstance(each, TransduceError):
                failures.setdefault(index, type(each)(f"{name} {first + index:,}: {each}"))
        encoded.append(found)
    values = [math.nan] * len(sides[0])
    if hurry and failures:
        return _sorted(values, failures)
    pairs = {
        index: (source, target)
        for index, (source, target) in enumerate(zip(*encoded, strict=True))
        if isinstance(source, list) and isinstance(target, list)
    }
    scores = engine.score(*([pair[side] for pair in pairs.values()] for side in (0, 1)))
    for index, score in zip(pairs, scores, strict=True):
        if isinstance(score, float):
            values[index] = score
        else:
            symbols = sum(map(len, pairs[index]))
            reason = f"too little memory for {symbols:,} symbols ({score.reason}): leave the pair out"
            failures[index] = TransduceError(f"pair {first + index:,}: {reason}")
    return _sorted(values, failures)


def _sorted(values: list[float], failures: Mapping[int, TransduceError]) -> PairScores:
    return PairScores(values, {index: failures[index] for index in sorted(failures)})
