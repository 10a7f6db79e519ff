"""Tasks on a Ray cluster, by workers that load once. Machines may come and go while it works.

A task is small, such as the name of a file, and a worker reads and writes what it says by itself: nothing large goes
through Ray, and the driver's memory does not grow with the work. So a pool of actors is all that is taken of Ray. Tasks
and results go between processes by Ray's own pickling: a cluster is as trusted as its machines.
"""

import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, Protocol, TypeVar, final

from transduce.config import BadInputError, TransduceError

Kind = Literal["cpu", "cuda"]
_MOST_LOSSES: Final = 3  # of workers, at one task or while they start: then it is not the machines'
_LOOK_SECONDS: Final = 2.0  # how often a machine that has joined is looked for
_IDLE_LOOKS: Final = 15
_STORE_BYTES: Final = 100_000_000  # of a cluster of this machine's own: next to nothing goes through it
_log = logging.getLogger(__name__)

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Startable(Protocol[T_contra, R_co]):
    """What workers do; it is sent to each of them."""

    def start(self, device: str | None) -> Callable[[T_contra], R_co]:
        """Load what is needed, once; then it does one task after another.

        Raises:
            TransduceError: It cannot be loaded, or a setting is wrong.
        """
        ...


@final
@dataclass(frozen=True)
class Cluster:
    """Where tasks are done, and by how many.

    Args:
        address: Of the cluster's head, such as ``10.0.0.1:6379``, or ``auto`` for the one of this machine. None is what
            the variable ``RAY_ADDRESS`` says, or else workers of this machine alone.
        workers: How many at most of each kind; None: as many as the cluster has room for, and more as machines join it.
        threads: Processor cores of each worker.
        devices: The kinds of workers; empty: GPUs where the cluster has any, cores otherwise.
    """

    address: str | None = None
    workers: int | None = None
    threads: int = 1
    devices: tuple[Kind, ...] = ()


def read_devices(device: str | None) -> tuple[Kind, ...]:
    """From ``cpu``, ``cuda`` or ``cuda,cpu``.

    Raises:
        BadInputError: It is another.
    """
    match device and device.split(","):
        case None | "":
            return ()
        case ["cpu"]:
            return ("cpu",)
        case ["cuda"]:
            return ("cuda",)
        case ["cuda", "cpu"] | ["cpu", "cuda"]:
            return ("cuda", "cpu")
        case _:
            raise BadInputError(f"--device {device}: workers of a cluster compute on cpu, cuda, or both: cuda,cpu")


def run_on_cluster(work: Startable[T, R], tasks: Sequence[T], lost: Callable[[T], R], cluster: Cluster) -> Iterator[R]:
    """The results of tasks in the order in which they are done.

    A task whose worker or machine is lost is given to another worker, so it must be such that it may be done twice.

    Args:
        work: What is done.
        tasks: All of them.
        lost: The result of a task at which worker after worker was lost.
        cluster: Where.

    Raises:
        BadInputError: The cluster has no such workers.
        TransduceError: It cannot be reached, or a worker cannot be started.
    """
    with _connected(cluster.address):
        pool = _Pool(work, tasks, lost, cluster)
        try:
            yield from pool.run()
        finally:
            pool.end()


@contextmanager
def _connected(given: str | None) -> Iterator[None]:
    """Ray, for as long as the block runs; where the program has it running already, that one, which stays.

    Raises:
        TransduceError: Ray is not installed, or nobody answers at the address.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would tell its makers
    try:
        import ray  # noqa: PLC0415 - an extra, and it takes a second
    except ImportError as error:
        raise TransduceError(
            "--engine ray: Ray is not installed: pip install 'transduce[distributed]' (--engine process needs nothing)"
        ) from error
    if ray.is_initialized():
        yield
        return
    address = given or os.environ.get("RAY_ADDRESS") or "local"
    own = {"include_dashboard": False, "object_store_memory": _STORE_BYTES} if address == "local" else {}
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **own)
    except (OSError, RuntimeError, ValueError) as error:  # nobody there, another version of Ray or Python, no address
        raise TransduceError(
            f"--address {address}: no Ray cluster can be reached ({' '.join(str(error).split())[:300]}): "
            f"ray start --head prints the address, host and port"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


@final
class _Worker:
    """An actor: it starts once, and does tasks."""

    def __init__(self, work: Startable[Any, Any], kind: Kind, threads: int) -> None:
        self._work, self._kind, self._threads = work, kind, threads

    def start(self) -> TransduceError | None:
        """Load what is needed; or say why that cannot be."""
        import torch  # noqa: PLC0415 - the driver needs none

        torch.set_num_threads(self._threads)
        try:
            self._do = self._work.start(self._kind)
        except TransduceError as error:
            return error
        return None

    def do(self, task: Any) -> Any:  # noqa: ANN401 - what the work is about
        """Do a task."""
        return self._do(task)


@final
@dataclass(frozen=True)
class _Call(Generic[T]):
    """What a worker is at: a task, and how many workers were lost at it before; or it starts."""

    actor: Any
    kind: Kind
    task: tuple[T, int] | None


@final
class _Pool(Generic[T, R]):
    """As many workers as there is room for, and one more that waits for a machine to join."""

    def __init__(self, work: Startable[T, R], tasks: Sequence[T], lost: Callable[[T], R], cluster: Cluster) -> None:
        import ray  # noqa: PLC0415 - an extra

        self._ray, self._cluster, self._lost = ray, cluster, lost
        self._kinds = _choose_kinds(cluster, ray.nodes())
        self._actors, self._work = ray.remote(_Worker), ray.put(work)
        self._waiting = deque((task, 0) for task in tasks)
        self._calls: dict[Any, _Call[T]] = {}
        self._lost_starting = 0

    def run(self) -> Iterator[R]:
        """The results, as they come."""
        idle = 0
        while self._waiting or self._working():
            for kind in self._kinds:
                self._start_workers(kind)
            ready, _ = self._ray.wait(list(self._calls), timeout=_LOOK_SECONDS)
            for reference in ready:
                yield from self._settle(self._calls.pop(reference), reference)
            idle = 0 if ready or self._working() else idle + 1
            if idle == _IDLE_LOOKS:
                _log.warning("no worker has started for a while: the cluster has no room now, and is waited for")

    def end(self) -> None:
        """Let all workers go."""
        for call in self._calls.values():
            self._ray.kill(call.actor)

    def _working(self) -> bool:
        return any(call.task is not None for call in self._calls.values())

    def _start_workers(self, kind: Kind) -> None:
        cores, gpus = (self._ray.cluster_resources().get(name, 0) for name in ("CPU", "GPU"))
        room = int(gpus if kind == "cuda" else cores // self._cluster.threads)
        most = self._cluster.workers or room + 1
        there = sum(call.kind == kind for call in self._calls.values())
        starting = sum(call.task is None for call in self._calls.values())
        for _ in range(min(most - there, len(self._waiting) - starting)):
            options = {"num_cpus": self._cluster.threads, "num_gpus": int(kind == "cuda")}
            actor = self._actors.options(**options).remote(self._work, kind, self._cluster.threads)
            self._calls[actor.start.remote()] = _Call(actor, kind, None)

    def _settle(self, call: _Call[T], reference: object) -> Iterator[R]:
        """Take what a worker has to tell, and give it its next task."""
        try:
            result = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError:  # not foreseen, on any machine
            raise
        except self._ray.exceptions.RayError as error:
            yield from self._lose(call, error)
            return
        if call.task is not None:
            yield result
        elif result is not None:
            raise result
        self._lost_starting = 0
        if self._waiting:
            task = self._waiting.popleft()
            self._calls[call.actor.do.remote(task[0])] = _Call(call.actor, call.kind, task)

    def _lose(self, call: _Call[T], error: Exception) -> Iterator[R]:
        reason = " ".join(str(error).split())[:300]
        _log.info(f"a worker was lost: {reason}")
        if call.task is None:
            self._lost_starting += 1
            if self._lost_starting == _MOST_LOSSES:
                raise TransduceError(f"workers are lost while they start: {reason}")
            return
        task, losses = call.task
        if losses + 1 == _MOST_LOSSES:
            yield self._lost(task)
        else:
            self._waiting.appendleft((task, losses + 1))


def _choose_kinds(cluster: Cluster, machines: Sequence[dict[str, Any]]) -> tuple[Kind, ...]:
    """What workers compute on.

    Raises:
        BadInputError: GPUs are asked for, and no machine has one; or more threads than any machine has cores.
    """
    there = [machine["Resources"] for machine in machines if machine["Alive"]]
    most_cores = max((each.get("CPU", 0) for each in there), default=0)
    if cluster.threads > most_cores:
        raise BadInputError(
            f"--threads {cluster.threads}: is for each worker, and no machine of the cluster has more than "
            f"{most_cores:g} cores"
        )
    gpus = any(each.get("GPU", 0) >= 1 for each in there)
    if "cuda" in cluster.devices and not gpus:
        raise BadInputError("--device cuda: the cluster has no GPU: leave it out, or add a machine that has one")
    return cluster.devices or (("cuda",) if gpus else ("cpu",))
