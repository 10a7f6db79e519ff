"""MarianMTModel of ``transformers`` with our weights."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.models import Transformer

# How it can compute attention wherever torch runs.
ATTENTION: Final = ("eager", "sdpa")

# Our modules' names inside a layer, and theirs.
_NAMES: Final = {
    "self_attention.": "self_attn.",
    "self_attention_residual.norm.": "self_attn_layer_norm.",
    "cross_attention.": "encoder_attn.",
    "cross_attention_residual.norm.": "encoder_attn_layer_norm.",
    "feed_forward.inner.": "fc1.",
    "feed_forward.outer.": "fc2.",
    "feed_forward_residual.norm.": "final_layer_norm.",
    "query.": "q_proj.",
    "key.": "k_proj.",
    "value.": "v_proj.",
    "output.": "out_proj.",
}
_LONGEST: Final = 512  # it takes its time to make longer tables of sinusoids


def has_marian(model: Transformer) -> bool:
    """Whether ``transformers`` is installed and has such a model: post-norm, with bias in the attention."""
    config = model.config
    sayable = config.norm == "post" and not config.final_norm and config.attention_bias
    return find_spec("transformers") is not None and sayable


@final
class MarianPeer(nn.Module):
    """Marian's model under our smoothed loss; post-norm, all sines before all cosines, bias everywhere."""

    def __init__(self, ours: Transformer, attention: str) -> None:
        super().__init__()
        self.smoothing = ours.config.label_smoothing
        self.model = _make(ours, attention)
        _copy(ours, self.model)

    def forward(self, source: Tensor, real: Tensor | None, target: Tensor, labels: Tensor) -> Tensor:
        """The mean loss, in nats, over the labels that are not -100; ``real`` is False where the source is padding."""
        mask = None if real is None else real.long()
        # What stands behind a target's end is never looked at by what stands before it.
        logits = self.model(input_ids=source, attention_mask=mask, decoder_input_ids=target, use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), label_smoothing=self.smoothing)


def _make(ours: Transformer, attention: str) -> Any:  # noqa: ANN401 - an optional library's
    transformers, mine = import_module("transformers"), ours.config
    return transformers.MarianMTModel(
        transformers.MarianConfig(
            encoder_layers=mine.encoder_layers,
            decoder_layers=mine.decoder_layers,
            d_model=mine.d_model,
            encoder_ffn_dim=mine.d_ff,
            decoder_ffn_dim=mine.d_ff,
            encoder_attention_heads=mine.heads,
            decoder_attention_heads=mine.heads,
            dropout=mine.dropout,
            attention_dropout=mine.attention_dropout,
            activation_dropout=mine.activation_dropout,
            activation_function="relu",
            scale_embedding=True,
            vocab_size=mine.vocab_size,
            max_position_embeddings=_LONGEST,
            pad_token_id=0,
            eos_token_id=0,
            decoder_start_token_id=0,
            forced_eos_token_id=None,
            attn_implementation=attention,
        )
    ).to(ours.embedding.weight.device)


@torch.no_grad()
def _copy(ours: Transformer, theirs: Any) -> None:  # noqa: ANN401
    left = {name for name, parameter in theirs.named_parameters() if parameter.requires_grad}
    for name, parameter in ours.named_parameters():
        twin = "model.shared.weight" if name == "embedding.weight" else rename(name)
        theirs.get_parameter(twin).copy_(parameter)
        left.remove(twin)
    assert not left, f"weights that ours have no twin of: {left}"
    for stack in (theirs.model.encoder, theirs.model.decoder):
        stack.embed_tokens.padding_idx = None  # else one symbol would learn nothing from being read


def rename(name: str) -> str:
    """What they call our parameter: ``encoder.1.feed_forward.inner.bias`` is ``model.encoder.layers.1.fc1.bias``."""
    stack, layer, rest = name.split(".", 2)
    for ours, theirs in _NAMES.items():
        rest = rest.replace(ours, theirs)
    return f"model.{stack}.layers.{layer}.{rest}"
