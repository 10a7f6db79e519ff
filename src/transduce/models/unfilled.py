"""Models whose weights come from a file, or from nowhere: none is drawn."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from torch import Tensor
from torch.overrides import TorchFunctionMode


@final
class Unfilled(TorchFunctionMode):
    """Where weights are made and not drawn: that takes longer than to read them.

    Where they have no storage, torch would load its compiler to draw them, which takes a second.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever any of torch's functions gives
        """Call the function, unless it fills a tensor: one of ``torch.nn.init``'s, or what those call."""
        named = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return named["tensor"]
        return args[0] if func in {Tensor.normal_, Tensor.uniform_} else func(*args, **named)
