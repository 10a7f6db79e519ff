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
    """The same model, which is used up: linear maps in that format, or bfloat16 throughout.

    A recurrent model on a CPU has no more than its maps in bfloat16: its states, which are rounded again at every step,
    stay float32, which its C++ kernels take.
    """
    fold_normalization(model)
    on_cpu = next(model.parameters()).device.type == "cpu"
    match format_:
        case "float32":
            return model
        case "bfloat16" if not (isinstance(model, RecurrentModel) and on_cpu):
            return model.to(torch.bfloat16)
        case "bfloat16" | "int8":
            prepack_linears(model, format_)
            # For the states' sake, cells have more digits than int8; where these are emulated, PyTorch's products in
            # float32 are faster (79 sentences a second and 62, recipes/multi30k-recurrent.toml with AVX2).
            for layer in model.modules():
                if isinstance(layer, RecurrentLayer) and has_low_precision_products():
                    layer.prepack("bfloat16")
            # An embedding scores the outputs, which is no linear map.
            if isinstance(model, Transformer | RecurrentModel):
                model.output.prepacked = prepack(model.output.weight.detach(), model.output_bias, format_)
            return model
