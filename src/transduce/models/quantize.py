"""The plain model in a narrower number format."""

import torch

from transduce.kernels import Format, prepack
from transduce.layers import prepack_linears
from transduce.models.transformer import Transformer


def quantize(model: Transformer, format_: Format) -> Transformer:
    """The same model, which is used up: bfloat16 throughout, or with linear maps of int8."""
    match format_:
        case "float32":
            return model
        case "bfloat16":
            return model.to(torch.bfloat16)
        case "int8":
            output = model.output
            prepack_linears(model, format_)
            output.prepacked = prepack(output.weight, model.output_bias, format_)
            return model
