"""Corpora, the memory-mapped store, and batches planned by a budget of tokens. Knows no torch."""

from transduce.data.batches import Batch, make_batch, pad, read_batches
from transduce.data.corpus import corpus_paths, read_corpus
from transduce.data.lines import open_binary, raw_lines, read_lines, read_pairs
from transduce.data.plan import Plan, plan_epoch
from transduce.data.store import EncodedPair, Store, write_store

__all__ = [
    "Batch",
    "EncodedPair",
    "Plan",
    "Store",
    "corpus_paths",
    "make_batch",
    "open_binary",
    "pad",
    "plan_epoch",
    "raw_lines",
    "read_batches",
    "read_corpus",
    "read_lines",
    "read_pairs",
    "write_store",
]
