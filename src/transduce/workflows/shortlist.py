"""A shortlist for a run's model, learned from what it was trained on, and what it covers of dev."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import numpy as np
import torch

from transduce.bundle import find_model, save_shortlist
from transduce.config import BadInputError, SpecialIds
from transduce.data import Store, learn_lexicon, pad
from transduce.models import Shortlist, Tokens
from transduce.text import TokenizerPair
from transduce.workflows.run_directory import RunDirectory

# Sentences whose lists are made together.
_BATCH: Final = 256


@final
@dataclass(frozen=True)
class Coverage:
    """The share of the target symbols (no end symbols) that are in their sentences' lists, and a list's mean length."""

    share: float
    symbols: float
    vocabulary: int


def make_shortlist(run: RunDirectory, size: int, first: int, pairs: int) -> tuple[Path, Coverage]:
    """Write the shortlist of a run's ``best``; return the file, and what it covers of dev.

    Raises:
        BadInputError: It is a model directory and no run, the run has no model or no prepared data, or a number is
            out of range.
    """
    model = find_model(run.root)
    if model == run.root and not run.train_store.exists():
        # best, from within, is a path without a name
        above = run.root.absolute().parent
        here = (
            f"here that is {above}" if RunDirectory(above).train_store.exists() else "the folder that train --out named"
        )
        raise BadInputError(
            f"{run.root}: a model directory: a shortlist is learned from the text that the model was trained on, which "
            f"only its run directory has: give that one ({here})"
        )
    if not run.train_store.exists() and run.dev_store.exists():
        raise BadInputError(
            f"{run.root}: its training streams (data.streaming), and stored no text that a shortlist is learned from: "
            f"prepare a part of the corpora in another folder (--set data.streaming=false --out DIR), with the run's "
            f"tokenizer, and learn it there"
        )
    tokenizers = TokenizerPair.load(model)
    shortlist = learn_shortlist(Store(run.train_store), tokenizers, size, first, pairs)
    return save_shortlist(shortlist, run.root), cover(shortlist, Store(run.dev_store), tokenizers.special)


def learn_shortlist(store: Store, tokenizers: TokenizerPair, size: int, first: int, pairs: int) -> Shortlist:
    """The ``size`` likeliest translations of every source symbol, and the ``first`` most frequent target symbols.

    Where both sides have one vocabulary, a symbol can always be copied: names and numbers often are.

    Raises:
        BadInputError: A number is out of range.
    """
    sources, targets = (each.vocab_size for each in (tokenizers.source, tokenizers.target))
    for name, value, least, most in (
        ("size", size, 1, targets),
        ("first", first, 0, targets),
        ("pairs", pairs, 1, None),
    ):
        if value < least or (most is not None and value > most):
            raise BadInputError(f"--{name} {value}: must be {least} or more" + (f", up to {most:,}" if most else ""))
    lexicon = learn_lexicon(store, (sources, targets), size, first, pairs=pairs)
    translations = torch.from_numpy(lexicon.translations)
    if tokenizers.shared:
        translations = torch.cat([torch.arange(targets, dtype=torch.int32).unsqueeze(1), translations], dim=1)
    return Shortlist(translations, torch.from_numpy(lexicon.frequent), targets)


def cover(shortlist: Shortlist, store: Store, special: SpecialIds) -> Coverage:
    """What the lists of a store's sources have of its targets."""
    inside = total = symbols = 0
    for sources, targets in _batches(store):
        ids, lengths = pad([[*source, special.end] for source in sources], special.pad)
        needed = [(special.end,)] * len(sources)
        lists = shortlist.allowed(Tokens(torch.from_numpy(ids), torch.from_numpy(lengths)), needed)
        symbols += int(lists.lengths.sum())
        for row, length, target in zip(lists.symbols.numpy(), lists.lengths.tolist(), targets, strict=True):
            inside += int(np.isin(target, row[:length]).sum())
            total += len(target)
    return Coverage(inside / max(total, 1), symbols / max(len(store), 1), shortlist.vocabulary)


def _batches(store: Store) -> Iterator[tuple[list[list[int]], list[list[int]]]]:
    for start in range(0, len(store), _BATCH):
        pairs = [store.pair(index) for index in range(start, min(start + _BATCH, len(store)))]
        yield [source.tolist() for source, _ in pairs], [target.tolist() for _, target in pairs]
