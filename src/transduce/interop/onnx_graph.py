"""An ONNX graph as it is written: operations in their order, each named value from the ones before it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, final

import numpy as np
from jaxtyping import Float
from torch import Tensor

from transduce.config import TransduceError

# LayerNormalization came with it; the runtimes in browsers know it.
OPSET: Final = 17
Value = str  # the name of a tensor in the graph
Shape = Sequence[int | str]  # a name is a size that may be any


def library() -> Any:  # noqa: ANN401 - an extra
    """The package ``onnx``.

    Raises:
        TransduceError: It is not installed.
    """
    try:
        import onnx  # noqa: PLC0415
    except ImportError as error:
        raise TransduceError("export to ONNX needs its library: pip install 'transduce[interop]'") from error
    return onnx


@final
class Weights:
    """The constants of a file, which its graphs share: a tensor that is used twice is stored once."""

    def __init__(self) -> None:
        self.stored: dict[Value, Any] = {}
        self._names: dict[tuple[object, ...], Value] = {}
        self.numbers = count()

    def add(self, array: np.ndarray[Any, Any], key: tuple[object, ...]) -> Value:
        """The name of a constant that ``key`` tells from all others. Tensors and modules are themselves alone."""
        if key not in self._names:
            self._names[key] = name = f"constant {len(self._names)}"
            self.stored[name] = library().numpy_helper.from_array(array, name)
        return self._names[key]


@final
@dataclass(frozen=True)
class Graph:
    """Operations so far, with what goes in and comes out. A graph inside another one shares its ``weights``."""

    weights: Weights = field(default_factory=Weights)
    nodes: list[Any] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)

    def input(self, name: Value, shape: Shape, type_: str = "FLOAT") -> Value:
        """A tensor that whoever runs the graph gives."""
        self.inputs.append(_described(name, shape, type_))
        return name

    def output(self, value: Value, name: Value, shape: Shape) -> None:
        """A tensor that whoever runs the graph gets."""
        self.apply("Identity", value, name=name)
        self.outputs.append(_described(name, shape, "FLOAT"))

    def apply(self, operation: str, *inputs: Value, name: Value | None = None, **attributes: object) -> Value:
        """The one result of an operation; a name of one's own is for people and tests to find it by."""
        value = name or f"{operation} {next(self.weights.numbers)}"
        self.nodes.append(library().helper.make_node(operation, [*inputs], [value], **attributes))
        return value

    def weight(self, tensor: Float[Tensor, "*any"]) -> Value:
        """A tensor of the model: the same each time."""
        return self.constant(tensor, tensor)

    def constant(self, tensor: Float[Tensor, "*any"], *key: object) -> Value:
        """A tensor that ``key`` tells from all others: what it is made of, and what of that it is."""
        return self.weights.add(np.ascontiguousarray(tensor.detach().float().cpu().numpy()), key)

    def number(self, value: float) -> Value:
        """A number of the same type as weights."""
        return self.weights.add(np.array(value, np.float32), ("number", value))

    def integers(self, *values: int) -> Value:
        """A list of integers: sizes or axes."""
        return self.weights.add(np.array(values, np.int64), ("integers", values))

    def integer(self, value: int) -> Value:
        """One integer."""
        return self.weights.add(np.array(value, np.int64), ("integer", value))

    def choose(self, condition: Value, then: "Graph", otherwise: "Graph") -> None:
        """All outputs of one of two graphs that see this one's values: theirs have the same names and shapes."""
        helper = library().helper
        branches = {}
        for name, graph in (("then_branch", then), ("else_branch", otherwise)):
            branches[name] = helper.make_graph(graph.nodes, name, [], graph.outputs)
        self.outputs.extend(then.outputs)
        self.nodes.append(helper.make_node("If", [condition], [each.name for each in then.outputs], **branches))

    def model(self, name: str) -> Any:  # noqa: ANN401
        """The whole file."""
        helper = library().helper
        graph = helper.make_graph(self.nodes, name, self.inputs, self.outputs, [*self.weights.stored.values()])
        return helper.make_model(
            graph, producer_name="transduce", ir_version=8, opset_imports=[helper.make_opsetid("", OPSET)]
        )


def _described(name: Value, shape: Shape, type_: str) -> Any:  # noqa: ANN401
    onnx = library()
    return onnx.helper.make_tensor_value_info(name, getattr(onnx.TensorProto, type_), [*shape])
