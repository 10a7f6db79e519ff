"""Models with random weights and a tokenizer of invented words, for figures that do not ask what is written."""

import random
from pathlib import Path
from typing import Final

import torch

from benchmarks.peers.sizes import make_config
from transduce.bundle import Bundle, save_bundle
from transduce.config import GenerationConfig
from transduce.models import build
from transduce.text import TokenizerPair, learn_bpe

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
WORDS: Final = 60_000


def make_up_sentences(count: int, words: int, vocabulary: int | None = None) -> list[str]:
    """Sentences of so many words each, of an invented language with so many words: always the same ones."""
    draw = random.Random(1)
    known = ["".join(draw.choices(_LETTERS, k=draw.randint(4, 9))) for _ in range(vocabulary or WORDS)]
    return [" ".join(draw.choices(known, k=words)) for _ in range(count)]


def make_up_model(size: str, vocab_size: int, path: Path, **changes: object) -> None:
    """Write a model directory; the size is one of ``benchmarks.peers.sizes``. No output is longer than its source."""
    tokenizer = learn_bpe(make_up_sentences(WORDS // 5, 10), vocab_size)
    torch.manual_seed(1)
    model = build(make_config(size, tokenizer.vocab_size, **changes)).eval()
    generation = GenerationConfig(max_extra_length=0, length_penalty_kind="none")
    save_bundle(Bundle(model, TokenizerPair.of(tokenizer), generation), path)
