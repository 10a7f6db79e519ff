"""The plain model in a narrower number format."""

import torch

from transduce.kernels import Format, pack
from transduce.layers import pack_linears
from transduce.models.transformer import Transformer


def narrow(model: Transformer, format_: Format) -> Transformer:
    """The same model, which is used up: bfloat16 throughout, or with linear maps of int8."""
    match format_:
        case "float32":
            return model
        case "bfloat16":
            return model.to(torch.bfloat16)
        case "int8":
            output = model.output
            pack_linears(model, format_)
            output.packed = pack(output.weight.detach(), None, format_)
            return model
