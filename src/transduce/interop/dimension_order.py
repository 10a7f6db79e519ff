"""All sines before all cosines, where ours stand by turns: the model's dimensions in another order.

Every matrix's inputs or outputs that are dimensions of the model are permuted, which changes what is computed by the
order of sums alone.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Int64
from torch import Tensor

from transduce.config import TransformerConfig


def sines_first(state: Mapping[str, Tensor], config: TransformerConfig) -> dict[str, Tensor]:
    """The weights of a Transformer with its dimensions in this order."""
    order = torch.arange(config.d_model)
    if config.positions == "sinusoidal" and config.sinusoid_layout == "interleaved":
        order = torch.cat([order[0::2], order[1::2]])
    return {name: _permute(name, tensor, order) for name, tensor in state.items()}


def _permute(name: str, tensor: Tensor, order: Int64[Tensor, " model"]) -> Tensor:
    part = name.rpartition(".")[0].rpartition(".")[2]
    if part in ("norm", "output", "outer", "encoder_norm", "decoder_norm"):
        return tensor[order].contiguous()
    return tensor if tensor.dim() == 1 else tensor[:, order].contiguous()
