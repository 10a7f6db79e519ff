"""One model over several processes: which wrapper sums its gradients, and whole tensors of what is spread out.

Models know nothing of it: what is wrapped is ``forward(source, target, labels, weights) -> LossSums`` alone. Gradients
are summed, never averaged, since every process divides its sums by the target tokens of all of them.
"""

import re
import sys
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, TypeGuard, assert_never

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from transduce.config import Parallel, TransduceError
from transduce.models import LossSums, Tokens, TrainableModel, build
from transduce.training.processes import Processes

if TYPE_CHECKING:
    # As a training runs, these are loaded where a model is spread: they take a second, a quarter of a start.
    from torch.distributed.tensor import DTensor


def place_model(model: TrainableModel, processes: Processes, parallel: Parallel) -> None:
    """Move a model to this process's device: all of it, or its part of every matrix.

    An optimizer is made after this.

    Raises:
        TransduceError: This version of torch cannot spread a model.
    """
    if processes.alone or parallel == "data":
        model.to(processes.device)
        return
    _require_sharding()
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415

    for weight in model.parameters():
        dist.broadcast(weight.data, 0)  # while they are still on the CPU and whole
    mesh = init_device_mesh(processes.device.type, (processes.number,))
    # A layer is gathered when it is used, forwards and backwards, and freed after it; the rest stays gathered.
    for layer in (*model.layers(), model):
        part = fully_shard(layer, mesh=mesh)
        part.set_gradient_divide_factor(1.0)
        part.set_force_sum_reduction_for_comms(True)  # gloo knows no other way to a factor of 1


def connect(model: TrainableModel, processes: Processes, parallel: Parallel) -> nn.Module:
    """What a step calls in the model's place, so that its gradients are everybody's sum."""
    if processes.alone:
        return model
    match parallel:
        case "sharded":
            return model  # it was prepared for that as it was spread
        case "data":
            return _sum_gradients(model, processes)
        case _:
            assert_never(parallel)


def postpone(network: nn.Module, *, last: bool) -> AbstractContextManager[None]:
    """Keep the gradients of a batch to oneself unless it is the last of its step.

    A spread model's are given away at once: there is no room for all of them.
    """
    return network.no_sync() if isinstance(network, DistributedDataParallel) and not last else nullcontext()


def gather(tensors: Mapping[str, Tensor], processes: Processes) -> dict[str, Tensor]:
    """Whole tensors, those that were spread on the CPU; on other processes than the first, without these.

    All processes must call it.
    """
    gathered = {}
    for name, tensor in tensors.items():
        if not is_spread(tensor):
            gathered[name] = tensor
            continue
        full = whole(tensor)
        if processes.first:
            gathered[name] = full.cpu()
    return gathered


def whole(tensor: Tensor) -> Tensor:
    """A tensor that may be spread over processes, whole on each of them; then all must call it."""
    return tensor.full_tensor() if is_spread(tensor) else tensor


def is_spread(tensor: Tensor) -> "TypeGuard[DTensor]":
    """Whether this process has a part of it only; there are no such tensors before their module was loaded."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def gather_model(model: TrainableModel, processes: Processes) -> TrainableModel:
    """The model itself, or a whole copy where it is spread: on the first process, to measure and to save.

    All processes must call it. The copy takes 4 bytes a parameter on the device.
    """
    if not any(map(is_spread, model.parameters())):
        return model
    weights = gather(model.state_dict(), processes)
    if not processes.first:
        return model
    copy = build(model.config)
    copy.load_state_dict(weights)
    return copy.to(processes.device)


def part_like(tensor: Tensor, like: Tensor) -> Tensor:
    """A whole tensor as another one lies: on its device, and spread where it is."""
    if not is_spread(like):
        return tensor.to(like.device)
    from torch.distributed.tensor import distribute_tensor  # noqa: PLC0415

    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def _sum_gradients(model: TrainableModel, processes: Processes) -> DistributedDataParallel:
    ids = [processes.device.index] if processes.device.type == "cuda" else None
    with warnings.catch_warnings():
        # Tables of positions grow by the longest sentence, on each process by its own. Newer versions of torch have
        # another name for this argument, older ones have not.
        warnings.filterwarnings("ignore", message="`broadcast_buffers` is deprecated", category=FutureWarning)
        wrapped = DistributedDataParallel(model, device_ids=ids, broadcast_buffers=False, gradient_as_bucket_view=True)
    wrapped.register_comm_hook(None, _sum_bucket)
    model.train()  # the buckets are those of a step, whatever was measured before the first
    _choose_buckets(wrapped, processes.device)
    return wrapped


def _choose_buckets(network: DistributedDataParallel, device: torch.device) -> None:
    """Learn from nothing once, before the first step.

    The buckets in which gradients are summed follow from the order of the first backward pass, after which they are
    made anew. Of three processes and more, the place in a bucket decides in which order a gradient's parts are
    summed: a training that goes on would have other buckets in its first step than one that is not interrupted.
    """
    symbol = torch.zeros(1, 1, dtype=torch.int64, device=device)
    tokens = Tokens(symbol, torch.ones(1, dtype=torch.int64))
    sums: LossSums = network(tokens, tokens, symbol)
    (0 * sums.objective).backward()  # type: ignore[no-untyped-call]
    network.zero_grad(set_to_none=True)


def _sum_bucket(
    _: object,
    bucket: dist.GradBucket,  # type: ignore[name-defined]  # torch has it, but does not say so
) -> torch.futures.Future[Tensor]:
    """The sum of a bucket of gradients over all processes, begun while the backward pass goes on."""
    reduced = dist.all_reduce(bucket.buffer(), async_op=True)
    assert reduced is not None
    done: torch.futures.Future[Tensor] = reduced.get_future().then(lambda future: future.value()[0])
    return done


def _require_sharding() -> None:
    major, minor = map(int, re.findall(r"\d+", torch.__version__)[:2])
    if (major, minor) < (2, 13):
        raise TransduceError(
            f'train.parallel = "sharded" needs torch 2.13 or newer, and this is {torch.__version__}: update it, or set '
            f'"data"'
        )
    # The loss and its unsmoothed sum are two views of one tensor; nothing is ever written into them.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
