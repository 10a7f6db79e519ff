"""What tensors an operation makes, backward pass included; test modules ask for it by ``pytest_plugins``."""

from typing import Any

import pytest
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Allocations(TorchDispatchMode):
    """Counts, while it is entered, the elements of every storage that an operation makes; views make none."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = self.total = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operation(*args, **(kwargs or {}))
        known = {_storage(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and _storage(tensor) not in known:
                known.add(_storage(tensor))
                elements = tensor.untyped_storage().nbytes() // tensor.element_size()
                self.largest, self.total = max(self.largest, elements), self.total + elements
        return result


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


@pytest.fixture
def allocations() -> type[Allocations]:
    """A context to run operations in; afterwards it knows the ``largest`` tensor made and the ``total`` of all."""
    return Allocations
