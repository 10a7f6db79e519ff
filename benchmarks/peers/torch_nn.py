"""torch.nn.Transformer with our weights, and around it what it leaves out: embedding, positions, projection."""

import math
from typing import Any, Final, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.config import TransformerConfig
from transduce.layers import sinusoids
from transduce.models import Transformer

_LONGEST: Final = 512


@final
class TorchPeer(nn.Module):
    """torch's stacks between our embedding and our smoothed loss."""

    def __init__(self, ours: Transformer) -> None:
        super().__init__()
        config = ours.config
        self.smoothing, self.dropout, self.scale = config.label_smoothing, config.dropout, math.sqrt(config.d_model)
        self.embedding = nn.Parameter(ours.embedding.weight.detach().clone())
        places = sinusoids(torch.arange(_LONGEST), config.d_model, config.sinusoid_layout, config.sinusoid_range)
        self.register_buffer("table", places)
        self.table: Tensor
        self.encoder = nn.TransformerEncoder(
            _without_inner_dropout(nn.TransformerEncoderLayer(**_settings(config)), config),
            config.encoder_layers,
            nn.LayerNorm(config.d_model, eps=config.norm_epsilon) if config.norm == "pre" else None,
            enable_nested_tensor=False,
        )
        self.decoder = nn.TransformerDecoder(
            _without_inner_dropout(nn.TransformerDecoderLayer(**_settings(config)), config),
            config.decoder_layers,
            nn.LayerNorm(config.d_model, eps=config.norm_epsilon) if config.norm == "pre" else None,
        )
        self.to(ours.embedding.weight.device)
        _copy(ours, self)

    def forward(self, source: Tensor, real: Tensor | None, target: Tensor, labels: Tensor) -> Tensor:
        """The mean loss, in nats, over the labels that are not -100; ``real`` is False where the source is padding."""
        padded = None if real is None else ~real
        causal = nn.Transformer.generate_square_subsequent_mask(
            target.shape[1], device=target.device, dtype=self.embedding.dtype
        )
        memory = self.encoder(self._embed(source), src_key_padding_mask=padded)
        # What stands behind a target's end is never looked at by what stands before it.
        hidden = self.decoder(
            self._embed(target), memory, tgt_mask=causal, tgt_is_causal=True, memory_key_padding_mask=padded
        )
        logits = F.linear(hidden, self.embedding).flatten(0, 1)
        return F.cross_entropy(logits.float(), labels.flatten(), label_smoothing=self.smoothing)

    def _embed(self, ids: Tensor) -> Tensor:
        x = F.embedding(ids, self.embedding) * self.scale + self.table[: ids.shape[1]]
        return F.dropout(x, self.dropout, self.training)


def _settings(config: TransformerConfig) -> dict[str, Any]:
    return {
        "d_model": config.d_model,
        "nhead": config.heads,
        "dim_feedforward": config.d_ff,
        "dropout": config.dropout,
        "layer_norm_eps": config.norm_epsilon,
        "norm_first": config.norm == "pre",
        "batch_first": True,
    }


def _without_inner_dropout(layer: Any, config: TransformerConfig) -> Any:  # noqa: ANN401 - either of torch's layers
    """The layer with the paper's dropout alone: torch's one rate stands inside the sub-layers too."""
    layer.dropout.p = config.activation_dropout
    layer.self_attn.dropout = config.attention_dropout
    if isinstance(layer, nn.TransformerDecoderLayer):
        layer.multihead_attn.dropout = config.attention_dropout
    return layer


@torch.no_grad()
def _copy(ours: Transformer, theirs: TorchPeer) -> None:
    for mine, layer in zip(ours.encoder, theirs.encoder.layers, strict=True):
        _copy_sublayers(mine, layer, {"self_attention": "self_attn"})
    for mine, layer in zip(ours.decoder, theirs.decoder.layers, strict=True):
        _copy_sublayers(mine, layer, {"self_attention": "self_attn", "cross_attention": "multihead_attn"})
    for norm, twin in ((ours.encoder_norm, theirs.encoder.norm), (ours.decoder_norm, theirs.decoder.norm)):
        if twin is not None:
            twin.load_state_dict(norm.state_dict())


def _copy_sublayers(mine: Any, layer: Any, attentions: dict[str, str]) -> None:  # noqa: ANN401
    for ours, theirs in attentions.items():
        _copy_attention(getattr(mine, ours), getattr(layer, theirs))
    layer.linear1.load_state_dict(mine.feed_forward.inner.state_dict())
    layer.linear2.load_state_dict(mine.feed_forward.outer.state_dict())
    for number, name in enumerate([*attentions, "feed_forward"], 1):
        getattr(layer, f"norm{number}").load_state_dict(getattr(mine, f"{name}_residual").norm.state_dict())


def _copy_attention(mine: Any, theirs: nn.MultiheadAttention) -> None:  # noqa: ANN401
    maps = mine.query, mine.key, mine.value
    assert theirs.in_proj_weight is not None
    theirs.in_proj_weight.copy_(torch.cat([each.weight for each in maps]))
    theirs.in_proj_bias.copy_(torch.cat([each.bias for each in maps]))
    theirs.out_proj.load_state_dict(mine.output.state_dict())
