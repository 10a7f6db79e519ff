"""What the benchmarks train on: a corpus through the package's own pipeline, or random ids of chosen lengths."""

import itertools
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from transduce.data import Batch, Store, make_batch, plan_epoch, plan_window, read_pairs, write_store
from transduce.text import learn_bpe

# Random sequences, too, begin, end and are padded with symbols of their own.
_PAD, _BEGIN, _END, _FIRST = range(4)


@final
@dataclass(frozen=True)
class Corpus:
    """Batches in the order of training, and the size of the vocabulary that their ids are of."""

    name: str
    batches: list[Batch]
    vocab_size: int

    def take(self, start: int, count: int) -> list[Batch]:
        """So many batches from the one numbered ``start``, from the first again behind the last."""
        return [self.batches[number % len(self.batches)] for number in range(start, start + count)]

    def describe(self) -> str:
        """The name, and how much of both sides is padding."""
        source, target = padding(self.batches, "source"), padding(self.batches, "target")
        share = f"padding {source:.1%} of the source side, {target:.1%} of the target side"
        return f"{self.name}; vocabulary {self.vocab_size:,}; {share if source or target else 'no padding'}"


def real_corpus(data: Path | None, batch_tokens: int, vocab_size: int, made_up: int = 20_000) -> Corpus:
    """``train.en.gz`` and ``train.de.gz`` of a folder, or made-up phrases, in the order of a first epoch."""
    pairs = list(read_pairs(data / "train.en.gz", data / "train.de.gz")) if data else _make_up_phrases(made_up)
    tokenizer = learn_bpe(itertools.chain.from_iterable(pairs), vocab_size)
    sides = (tokenizer.encode([pair[side] for pair in pairs]) for side in (0, 1))
    with tempfile.TemporaryDirectory() as folder:
        write_store(Path(folder) / "train.arrow", zip(*sides, itertools.repeat(0)), {})
        store = Store(Path(folder) / "train.arrow")
        plan = plan_epoch(store, batch_tokens, 1, 0)
        batches = [make_batch(store, rows, tokenizer.special) for rows in plan]
    name = f"{data.name if data else 'made-up phrases'}, batches of at most {batch_tokens:,} tokens a side"
    return Corpus(name, batches, tokenizer.vocab_size)


def fixed_corpus(pairs: int, length: int, vocab_size: int) -> Corpus:
    """One batch of random ids, all pairs of the same length on both sides."""
    lengths = np.full(pairs, length)
    batch = _draw(lengths, lengths, vocab_size, np.random.default_rng(1))
    return Corpus(f"one batch of {pairs} pairs of {length} tokens", [batch], vocab_size)


def mixed_corpus(pairs: int, batch_tokens: int, vocab_size: int) -> Corpus:
    """Random ids in pairs as long as those of news are: 27 tokens on average, the sides 15% apart, at most 200."""
    random = np.random.default_rng(1)
    lengths = 23 * np.exp(random.normal(0, 0.57, pairs))
    source, target = (
        (lengths * np.exp(random.normal(0, 0.15, pairs))).round().clip(2, 200).astype(np.int32) for _ in range(2)
    )
    plan = plan_window(source, target, batch_tokens, (1, 0))
    batches = [_draw(source[rows], target[rows], vocab_size, random) for rows in plan]
    return Corpus(f"random pairs of mixed lengths, at most {batch_tokens:,} tokens a side", batches, vocab_size)


def padding(some: list[Batch], side: Literal["source", "target"]) -> float:
    """The share of a side's positions that are padding."""
    positions = sum(int(getattr(batch, side).size) for batch in some)
    return 1 - sum(int(getattr(batch, f"{side}_lengths").sum()) for batch in some) / positions


def _make_up_phrases(pairs: int) -> list[tuple[str, str]]:
    from transduce.data.phrases import make_phrases  # noqa: PLC0415 - Babel, which it needs, is an extra

    return list(make_phrases(pairs, 1, 1).train)


def _draw(
    source: NDArray[np.integer[Any]], target: NDArray[np.integer[Any]], vocab_size: int, random: np.random.Generator
) -> Batch:
    """A batch of random ids with these lengths, the symbols of begin and end counted."""
    inputs, labels = (_draw_side(lengths, vocab_size, random) for lengths in (source, target))
    shifted = np.concatenate([np.full((len(labels), 1), _BEGIN), labels[:, :-1]], axis=1)
    shifted[np.arange(labels.shape[1]) >= target[:, None]] = _PAD
    return Batch(inputs, source.astype(np.int64), shifted, labels, target.astype(np.int64))


def _draw_side(lengths: NDArray[np.integer[Any]], vocab_size: int, random: np.random.Generator) -> NDArray[np.int64]:
    ids = random.integers(_FIRST, vocab_size, (len(lengths), int(lengths.max())))
    ids[np.arange(ids.shape[1]) >= lengths[:, None]] = _PAD
    ids[np.arange(len(lengths)), lengths - 1] = _END
    return ids
