"""The model directory: configuration, weights and tokenizer, read and written safely."""

from transduce.bundle.directory import (
    Bundle,
    StoredBundle,
    find_model,
    load_bundle,
    load_settings,
    open_bundle,
    save_bundle,
    weights_file,
)
from transduce.bundle.elsewhere import BEST
from transduce.bundle.prepacked import PrepackedBundle, load_prepacked, read_prepacked
from transduce.bundle.shortlist import load_shortlist, save_shortlist
from transduce.bundle.weights import load_weights, read_tensors, save_tensors

__all__ = [
    "BEST",
    "Bundle",
    "PrepackedBundle",
    "StoredBundle",
    "find_model",
    "load_bundle",
    "load_prepacked",
    "load_settings",
    "load_shortlist",
    "load_weights",
    "open_bundle",
    "read_prepacked",
    "read_tensors",
    "save_bundle",
    "save_shortlist",
    "save_tensors",
    "weights_file",
]
