"""CUDA tensors on a machine without a CUDA device, so that a tensor that was left on the CPU is found here.

A ``CudaTensor`` says that it is on ``cuda:0`` and has its values in an ordinary tensor behind it. Within
``pretended_cuda`` every operation on such tensors is checked for mixed devices by the rule of PyTorch's own CUDA
operations, computed on the CPU, and wrapped again. What needs the device itself (its kernels, streams and speed) is
tested by ``pytest -m cuda``.

Why not torch's FakeTensorMode alone, whose rule this is: its tensors have no values, and a search decides by values in
every round (``item``, ``tolist``, ``nonzero``); and in a torch that was built without CUDA it takes no gradient of CUDA
tensors (autograd asks for a device guard, and the process is aborted). Here both run, as C++ sees a tensor on "meta".
"""

from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
aten = torch.ops.aten
# These take a tensor from one device to another.
_TRANSFERS = {aten._to_copy.default, aten.copy_.default}
# Indices may be on the CPU, wherever what is indexed is.
_INDEXING = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}


class MixedDevicesError(RuntimeError):
    """An operation was given tensors of several devices."""


class CudaTensor(Tensor):
    """Says that it is on CUDA; ``values`` has what is in it."""

    @staticmethod
    def __new__(cls, values):
        with torch.inference_mode(values.is_inference()):  # a view of what is none would be none
            return Tensor._make_wrapper_subclass(
                cls,
                values.shape,
                strides=values.stride(),
                storage_offset=values.storage_offset(),
                dtype=values.dtype,
                device="meta",
            )

    def __init__(self, values):
        self.values = values

    device = property(lambda self: CUDA)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)
    is_meta = property(lambda self: False)

    def __repr__(self):
        return f"CudaTensor({self.values})"

    def numpy(self, *, force=False):
        """As on CUDA: only by ``cpu()``."""
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def tolist(self):
        """As on CUDA, whose values may be read so."""
        return self.values.tolist()

    def data_ptr(self):
        """An address that no kernel for the CPU may be given."""
        raise MixedDevicesError("the address of a CUDA tensor was asked for")

    def __getitem__(self, index):
        return super().__getitem__(_without_lists(index))

    def __setitem__(self, index, value):
        super().__setitem__(_without_lists(index), value)

    def __deepcopy__(self, memo):
        copied = CudaTensor(self.values.clone())
        return nn.Parameter(copied, self.requires_grad) if isinstance(self, nn.Parameter) else copied

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return _compute(function, args, kwargs or {})


class _Mode(TorchDispatchMode):
    """Sees what makes new tensors, too: only its ``device`` says that they are CUDA's."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return _compute(function, args, kwargs or {})


def _without_lists(index):
    """An index whose lists are tensors: C++ would make them on "meta", without values."""
    if isinstance(index, tuple):
        return tuple(map(_without_lists, index))
    return torch.tensor(index, dtype=torch.long, device=CUDA) if isinstance(index, list) else index


def _compute(function, args, kwargs):
    given = []
    plain_args = [_plain(each, given) for each in args]
    plain_kwargs = {name: _plain(each, given) for name, each in kwargs.items() if name != "pin_memory"}
    on_cuda = _is_on_cuda(function, args, kwargs, given)
    if kwargs.get("device") is not None:
        plain_kwargs["device"] = CPU
    result = function(*plain_args, **plain_kwargs)
    if not on_cuda:
        return result
    # What an operation writes to comes back as itself: autograd and whoever else holds it must see the change.
    return _wrap(result, {id(tensor.values): tensor for tensor in given if isinstance(tensor, CudaTensor)})


def _plain(value, given):
    """A value without wrappers; its tensors are added to those given."""
    if isinstance(value, Tensor):
        given.append(value)
        if isinstance(value, CudaTensor):
            return value.values
        assert not value.is_meta, "a tensor lost its values"
    elif isinstance(value, (list, tuple)):
        return [_plain(each, given) for each in value]
    return value


def _wrap(value, written):
    if isinstance(value, Tensor):
        return written[id(value)] if id(value) in written else CudaTensor(value)
    return type(value)(_wrap(each, written) for each in value) if isinstance(value, (list, tuple)) else value


def _is_on_cuda(function, args, kwargs, given):
    """Where the result is.

    Raises:
        MixedDevicesError: The tensors are of several devices. One of the CPU without dimensions counts as a number.
    """
    if kwargs.get("device") is not None:
        if given and function not in _TRANSFERS:
            _check(function, given)
        # Autograd's formulas in C++ ask for a tensor on the device of a gradient, which for them is on "meta".
        return torch.device(kwargs["device"]).type in {"cuda", "meta"}
    if function in _TRANSFERS:
        return isinstance(args[0], CudaTensor)
    if function in _INDEXING and isinstance(args[0], CudaTensor):
        return _check(function, [tensor for tensor in (args[0], *args[2:]) if isinstance(tensor, Tensor)])
    return _check(function, given)


def _check(function, given):
    """Whether all tensors are on CUDA."""
    counted = [tensor for tensor in given if isinstance(tensor, CudaTensor) or tensor.dim()]
    if given and function._schema.is_mutable and not any(given[0] is tensor for tensor in counted):
        counted.append(given[0])  # what is written to is no number
    on_cuda = {isinstance(tensor, CudaTensor) for tensor in counted}
    if len(on_cuda) > 1:
        sizes = ", ".join(f"{tensor.device!s} {[*tensor.shape]}" for tensor in given)
        raise MixedDevicesError(f"{function} was given tensors of several devices: {sizes}")
    return True in on_cuda


@contextmanager
def pretended_cuda():
    """Within it, ``cuda:0`` is a device. It has no kernels of its own, and pinned memory is any memory."""
    made, only_lift = torch.empty, torch._C._only_lift_cpu_tensors()

    def empty(*sizes, pin_memory=False, **how):
        return made(*sizes, **how)

    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor makes its tensor on the CPU, and moves it where we see it
    with (
        patch.object(torch.cuda, "_lazy_init", lambda: None),
        patch.object(torch.cuda, "get_device_capability", lambda device=None: (9, 0)),
        patch.object(torch.cuda, "get_device_name", lambda device=None: "pretended"),
        patch.object(torch.cuda, "synchronize", lambda device=None: None),
        patch.object(Tensor, "pin_memory", lambda self: self),
        patch.object(torch, "empty", empty),
        _Mode(),
    ):
        try:
            yield
        finally:
            torch._C._set_only_lift_cpu_tensors(only_lift)
