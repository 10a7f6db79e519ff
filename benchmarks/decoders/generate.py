"""Our model as ``transformers`` has it, for its ``generate``: Marian's if it is post-norm, Pegasus' if pre-norm."""

from importlib import import_module
from typing import Any, Final

import torch
from torch import nn

from benchmarks.peers.marian import rename
from transduce.bundle import Bundle
from transduce.config import ModelConfig, TransformerConfig
from transduce.models import Transformer

# Of their table of sinusoids, which takes its time to make.
LONGEST: Final = 512
_OTHERS: Final = {
    "embedding.weight": "model.shared.weight",
    "encoder_norm.weight": "model.encoder.layer_norm.weight",
    "encoder_norm.bias": "model.encoder.layer_norm.bias",
    "decoder_norm.weight": "model.decoder.layer_norm.weight",
    "decoder_norm.bias": "model.decoder.layer_norm.bias",
}


def can_generate(config: ModelConfig) -> bool:
    """Whether ``transformers`` has such a model."""
    if not isinstance(config, TransformerConfig):
        return False
    usual = TransformerConfig()
    same = (
        "compatibility",
        "attention_window",
        "feed_forward",
        "activation",
        "residual",
        "tied_projection",
        "source_vocab_size",
        "positions",
        "position_combination",
        "positions_at_every_layer",
    )
    widths = config.d_k == config.d_v == config.d_model // config.heads
    return widths and all(getattr(config, name) == getattr(usual, name) for name in same)


@torch.no_grad()
def make_generator(bundle: Bundle, dtype: torch.dtype) -> Any:  # noqa: ANN401 - an optional library's
    """Their model with our weights; what attention bias we lack is zero in theirs."""
    transformers, ours = import_module("transformers"), bundle.model
    assert isinstance(ours, Transformer)
    mine = ours.config
    special = bundle.tokenizers.special
    family = "Marian" if mine.norm == "post" else "Pegasus"
    config = getattr(transformers, f"{family}Config")(
        encoder_layers=mine.encoder_layers,
        decoder_layers=mine.decoder_layers,
        d_model=mine.d_model,
        encoder_ffn_dim=mine.d_ff,
        decoder_ffn_dim=mine.d_ff,
        encoder_attention_heads=mine.heads,
        decoder_attention_heads=mine.heads,
        activation_function="relu",
        scale_embedding=True,
        vocab_size=mine.vocab_size,
        max_position_embeddings=LONGEST,
        pad_token_id=special.pad,
        eos_token_id=special.end,
        decoder_start_token_id=special.begin,
        forced_eos_token_id=None,
    )
    kind = "MarianMTModel" if family == "Marian" else "PegasusForConditionalGeneration"
    theirs = getattr(transformers, kind)(config).eval()
    _copy(ours, theirs)
    return theirs.to(dtype)


def _copy(ours: Transformer, theirs: Any) -> None:  # noqa: ANN401
    for name, parameter in theirs.named_parameters():
        if name.endswith("_proj.bias"):
            parameter.zero_()
    for name, parameter in ours.named_parameters():
        theirs.get_parameter(_OTHERS.get(name) or rename(name)).copy_(parameter)
    for mine, stack in ((ours.encoder_positions, theirs.model.encoder), (ours.decoder_positions, theirs.model.decoder)):
        assert mine.table is not None
        stack.embed_positions.weight.copy_(mine.table(torch.arange(LONGEST), LONGEST))
    for module in theirs.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = ours.config.norm_epsilon
