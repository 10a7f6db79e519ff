"""Models that nobody has trained, with everything that a model directory has."""

from typing import Any

import tokenizers
import torch

from transduce.bundle import Bundle
from transduce.config import GenerationConfig, TransformerConfig
from transduce.models import build
from transduce.text import Tokenizer, TokenizerPair
from transduce.text.tokenizer import SPECIAL_SYMBOLS

SIZES = {"encoder_layers": 2, "decoder_layers": 3, "d_model": 20, "d_ff": 28, "heads": 5, "vocab_size": 31}


def words(count: int) -> Tokenizer:
    """A tokenizer of so many symbols: the special ones and invented words, which spaces part."""
    symbols = [*SPECIAL_SYMBOLS, *(f"w{number}" for number in range(4, count))]
    backend = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({symbol: index for index, symbol in enumerate(symbols)}, unk_token="<unk>")
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return Tokenizer(backend)


def random_bundle(**changes: Any) -> Bundle:
    """A random model: no scale is one, and no shift is zero."""
    torch.manual_seed(11)
    config = TransformerConfig(**{**SIZES, **changes})
    model = build(config).eval()
    for name, parameter in model.named_parameters():
        if "norm" in name or "bias" in name:
            torch.nn.init.normal_(parameter, mean=float("weight" in name), std=0.3)
    target = words(config.vocab_size)
    source = target if config.source_vocab_size is None else words(config.source_vocab_size)
    return Bundle(model, TokenizerPair(source, target), GenerationConfig())
