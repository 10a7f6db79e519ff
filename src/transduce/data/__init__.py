"""Corpora, the memory-mapped store, and batches planned by a budget of tokens. Knows no torch."""

from transduce.data.batches import Batch, Pairs, Resegment, drop_symbols, make_batch, pad, read_batches
from transduce.data.block import EncodedPair, Ids
from transduce.data.corpus import corpus_paths, name_corpus, read_corpus, read_numbered
from transduce.data.dictionary import read_dictionary
from transduce.data.filters import DuplicateFinder, HeldOut, PairFilter, Tally, text_flaw
from transduce.data.lexicon import Lexicon, learn_lexicon
from transduce.data.lines import (
    Bare,
    bare,
    check_length,
    create_binary,
    is_text,
    open_binary,
    raw_lines,
    read_lines,
    read_pairs,
    refuse_other_encodings,
)
from transduce.data.parts import Cursor, PartReader
from transduce.data.plan import Plan, Window, padding_share, plan_epoch, plan_window
from transduce.data.share import Share, deal, divide
from transduce.data.store import Store, write_store
from transduce.data.stream import Position, Record, Stream, StreamWindow, WindowQueue, read_beginning
from transduce.data.treebank import PlacedTree, read_treebank

__all__ = [
    "Bare",
    "Batch",
    "Cursor",
    "DuplicateFinder",
    "EncodedPair",
    "HeldOut",
    "Ids",
    "Lexicon",
    "PairFilter",
    "Pairs",
    "PartReader",
    "PlacedTree",
    "Plan",
    "Position",
    "Record",
    "Resegment",
    "Share",
    "Store",
    "Stream",
    "StreamWindow",
    "Tally",
    "Window",
    "WindowQueue",
    "bare",
    "check_length",
    "corpus_paths",
    "create_binary",
    "deal",
    "divide",
    "drop_symbols",
    "is_text",
    "learn_lexicon",
    "make_batch",
    "name_corpus",
    "open_binary",
    "pad",
    "padding_share",
    "plan_epoch",
    "plan_window",
    "raw_lines",
    "read_batches",
    "read_beginning",
    "read_corpus",
    "read_dictionary",
    "read_lines",
    "read_numbered",
    "read_pairs",
    "read_treebank",
    "refuse_other_encodings",
    "text_flaw",
    "write_store",
]
