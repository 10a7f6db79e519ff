"""The memory that tensors take, counted to the byte."""

import weakref
from typing import Any

from torch import Tensor, UntypedStorage
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts, while it is entered, the bytes of what operations make, for as long as it exists.

    ``live`` is what exists now, ``peak`` the most at any time. What existed before is not in either, and what an
    operation makes and drops inside itself is not seen.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.peak = 0
        self._counted: set[int] = set()

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        result = operation(*args, **(kwargs or {}))
        given = {storage._cdata for storage in _storages((args, kwargs))}
        for storage in _storages(result):
            if storage._cdata not in given | self._counted:
                self._count(storage)
        return result

    def _count(self, storage: UntypedStorage) -> None:
        name, size = storage._cdata, storage.nbytes()
        self._counted.add(name)
        self.live += size
        self.peak = max(self.peak, self.live)
        # Torch keeps the object of a storage that its graph alone still holds: this fires no earlier than it frees.
        weakref.finalize(storage, self._forget, name, size)

    def _forget(self, name: int, size: int) -> None:
        self._counted.remove(name)
        self.live -= size


def _storages(tree: object) -> list[UntypedStorage]:
    return [leaf.untyped_storage() for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]
