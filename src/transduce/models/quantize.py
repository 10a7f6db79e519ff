"""The plain model in a low-precision number format."""

from typing import TypeVar

import torch

from transduce.kernels import Format, has_low_precision_products, prepack
from transduce.layers import fold_normalization, prepack_linears
from transduce.layers.recurrent import RecurrentLayer
from transduce.models.contract import TrainableModel
from transduce.models.recurrent import RecurrentModel
from transduce.models.transformer import Transformer

Model = TypeVar("Model", bound=TrainableModel)


def quantize(model: Model, format_: Format) -> Model:
    """The same model, which is used up: bfloat16 throughout, or with linear maps of int8."""
    fold_normalization(model)
    match format_:
        case "float32":
            return model
        case "bfloat16":
            return model.to(torch.bfloat16)
        case "int8":
            prepack_linears(model, format_)
            # A state is rounded again at every step, so cells have more digits; where these are emulated, PyTorch's
            # products in float32 are faster (79 sentences a second and 62, recipes/multi30k-recurrent.toml with AVX2).
            for layer in model.modules():
                if isinstance(layer, RecurrentLayer) and has_low_precision_products():
                    layer.prepack("bfloat16")
            # An embedding scores the outputs, which is no linear map.
            if isinstance(model, Transformer | RecurrentModel):
                model.output.prepacked = prepack(model.output.weight.detach(), model.output_bias, format_)
            return model
