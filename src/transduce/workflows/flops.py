"""Floating-point operations of training, counted as they run on tensors without storage.

Matrix products only; a multiplication and an addition count as two.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, final

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from transduce.config import ConvolutionalConfig, ModelConfig, TransformerConfig
from transduce.config.model import VOCABULARY_SIZES
from transduce.models import Tokens, TrainableModel, build_without_storage
from transduce.training import Work, pair_work

# Lengths of source and target that tell the six terms of a batch's operations apart. They are short, as recurrent
# models take a step for each symbol, and restricted attention sees all of a few. For convolutional models they are
# round: ByteNet rounds 1.2 |s|.
_LENGTHS: Final = ((2, 3), (3, 2), (4, 2), (2, 4), (4, 4), (3, 3))
_ROUND_LENGTHS: Final = ((5, 5), (10, 5), (5, 10), (10, 10), (15, 5), (5, 15))
_aten: Final = torch.ops.aten


@final
@dataclass(frozen=True)
class Flops:
    """Operations of the forward pass, and those that gradients take on top."""

    forward: int
    backward: int

    def __add__(self, other: "Flops") -> "Flops":
        return Flops(self.forward + other.forward, self.backward + other.backward)

    def __sub__(self, other: "Flops") -> "Flops":
        return Flops(self.forward - other.forward, self.backward - other.backward)

    @property
    def both(self) -> int:
        """Forward and backward."""
        return self.forward + self.backward


def count_parts(config: ModelConfig, length: int) -> dict[str, Flops]:
    """The operations of each part of a model, for one pair of ``length`` source and ``length`` target symbols.

    A Transformer is divided into layers. Those of a stack are alike: each costs what a second one adds to a first.
    (torch's counter divides by module too, but by calls of ``forward`` only; a decoder layer has other verbs.) What is
    left over is the embeddings'. Other architectures have a body and a projection.
    """
    projection = {"projection": _count_projection(config, length)}
    config = _without_what_costs_nothing(config)
    if not isinstance(config, TransformerConfig):
        return {"body": _count_body(config, length, length)} | projection
    shallow = config.model_copy(update={"encoder_layers": 1, "decoder_layers": 1})
    first = _count_body(shallow, length, length)
    parts = {"embeddings": _count_body(config, length, length)}
    for stack, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        second = _count_body(shallow.model_copy(update={f"{stack}_layers": 2}), length, length)
        for number in range(1, layers + 1):
            parts[f"{stack} layer {number}"] = second - first
            parts["embeddings"] -= second - first
    return parts | projection


def count_training(config: ModelConfig, work: Work) -> int:
    """The operations that training on pairs of such lengths asks for, forward and backward.

    A layer's products of s source and t target symbols with its weights grow with these; those of attention with s s,
    s t and t t, and what a pair asks for once, as where a recurrent decoder begins, with the pairs. What one of each
    costs follows from six counts. Counted is the plain way to compute each formula, pair
    by pair: not what attention over a padded batch multiplies with padding, nor what attention in chunks multiplies a
    second time to save memory; and restricted attention counts as if it saw all.
    """
    body, projection = _body_costs(_without_what_costs_nothing(config)), _projection_cost(config)
    return sum(cost * number for cost, number in zip(body, work.terms, strict=True)) + work.target * projection


def _without_what_costs_nothing(config: ModelConfig) -> ModelConfig:
    """A model whose body has the same products: no vocabulary is in them, and dropout takes time to draw."""
    rates = {name: 0.0 for name in type(config).model_fields if name.endswith("dropout") or name == "label_smoothing"}
    sizes = {name: 1 for name in VOCABULARY_SIZES if getattr(config, name) is not None}
    return config.model_copy(update=rates | sizes)


@lru_cache
def _body_costs(config: ModelConfig) -> tuple[int, ...]:
    """What one of each of ``Work.terms`` costs."""
    model = build_without_storage(config)
    fits = config.longest is None or config.longest >= max(map(max, _ROUND_LENGTHS))
    lengths = _ROUND_LENGTHS if fits and isinstance(config, ConvolutionalConfig) else _LENGTHS
    shapes = [pair_work(source, target).terms for source, target in lengths]
    counts = [_count_body_of(model, source, target).both for source, target in lengths]
    costs = np.linalg.solve(np.array(shapes, float), np.array(counts, float))
    return tuple(round(float(cost)) for cost in costs)


@lru_cache
def _projection_cost(config: ModelConfig) -> int:
    """That of one target symbol."""
    return _count_projection(config, 1).both


def _count_body(config: ModelConfig, source: int, target: int) -> Flops:
    return _count_body_of(build_without_storage(config), source, target)


def _count_body_of(model: TrainableModel, source: int, target: int) -> Flops:
    """Everything before the projection, for one pair."""

    def run() -> Tensor:
        return model.decode(model.encode(_tokens(source)), _tokens(target)).hidden

    return _count(run)


def _count_projection(config: ModelConfig, length: int) -> Flops:
    model = build_without_storage(config)
    hidden = torch.zeros(1, length, model.width, device="meta", requires_grad=True)
    return _count(lambda: model.project(hidden))


def _tokens(length: int) -> Tokens:
    return Tokens(torch.zeros(1, length, dtype=torch.long, device="meta"), torch.full((1,), length))


@final
class _Products(TorchDispatchMode):
    """Counts the operations of products while it is entered, by torch's own formulas.

    torch's counter, ``FlopCounterMode``, divides them by module and by operation as well, and takes longer.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - an operation, as torch knows it
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the operation gives
        shaped = _SHAPES.get(func) if args and isinstance(args[0], Tensor) and args[0].is_meta else None
        result = (shaped or func)(*args, **(kwargs or {}))
        if (formula := flop_registry.get(func.overloadpacket)) is not None:
            self.flops += formula(*args, **(kwargs or {}), out_val=result)
        return result


def _norm(x: Tensor, shape: list[int], *_: object) -> tuple[Tensor, Tensor, Tensor]:
    statistics = x.new_empty(*x.shape[: x.dim() - len(shape)], *(1 for _ in shape))
    return torch.empty_like(x), statistics, torch.empty_like(statistics)


def _norm_backward(gradient: Tensor, x: Tensor, shape: list[int], *others: Any) -> list[Tensor | None]:  # noqa: ANN401
    _, _, weight, bias, wanted = others
    return [torch.empty_like(each) if want else None for each, want in zip((x, weight, bias), wanted, strict=True)]


def _like(x: Tensor, *_: object) -> Tensor:
    return torch.empty_like(x)


def _broadcast(x: Tensor, y: Tensor | float, **_: object) -> Tensor:
    shape = np.broadcast_shapes(x.shape, y.shape) if isinstance(y, Tensor) else x.shape
    return x.new_empty(shape, dtype=torch.result_type(x, y))


def _product(x: Tensor, y: Tensor) -> Tensor:
    return x.new_empty(*x.shape[:-1], y.shape[-1])


def _added_product(added: Tensor, x: Tensor, y: Tensor, **_: object) -> Tensor:
    return _product(x, y)


# Of most operations nothing matters but the shape of what they give. torch works it out in Python, which took most of
# the time of a count; these are the ones that come often.
_SHAPES: Final[Mapping[object, Callable[..., Any]]] = {
    _aten.native_layer_norm.default: _norm,
    _aten.native_layer_norm_backward.default: _norm_backward,
    _aten.mm.default: _product,
    _aten.bmm.default: _product,
    _aten.addmm.default: _added_product,
    _aten.masked_fill.Scalar: _like,
    _aten.add.Tensor: _broadcast,
    _aten.mul.Tensor: _broadcast,
    _aten._softmax_backward_data.default: _like,
    _aten.relu.default: _like,
    _aten.threshold_backward.default: _like,
    _aten.sigmoid_backward.default: _like,
    _aten.tanh_backward.default: _like,
}


def _count(run: Callable[[], Tensor]) -> Flops:
    forward, backward = _Products(), _Products()
    with forward:
        result = run()
    with backward:
        result.sum().backward()  # type: ignore[no-untyped-call]
    return Flops(forward.flops, backward.flops)
