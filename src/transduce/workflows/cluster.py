"""Tasks on a Ray cluster, by workers that load once. Machines may come and go while it works.

Tasks are names of files, which workers read and write by themselves, or blocks of text, of which a few for each worker
are on their way: the driver's memory does not grow with the work, and a pool of actors is all that is taken of Ray.
Tasks and results go between processes by Ray's own pickling: a cluster is as trusted as its machines.
"""

import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, Final, Generic, Literal, Protocol, TypeVar, final

from transduce.config import BadInputError, TransduceError

Kind = Literal["cpu", "cuda"]
_MOST_LOSSES: Final = 3  # of workers, at one task or while they start: then it is not the machines'
_LOOK_SECONDS: Final = 2.0  # how often a machine that has joined is looked for
_IDLE_LOOKS: Final = 15
_TASKS_AHEAD: Final = 4  # for each worker: at work, and done before their turn
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


def run_on_cluster(
    work: Startable[T, R], tasks: Iterable[T], lost: Callable[[T], R], cluster: Cluster, *, in_order: bool = False
) -> Iterator[R]:
    """The results of tasks as they are done, or in the tasks' order; tasks are read as they are needed.

    A task whose worker or machine is lost is given to another worker, so it must be such that it may be done twice.

    Args:
        work: What is done.
        tasks: All of them.
        lost: The result of a task at which worker after worker was lost.
        cluster: Where.
        in_order: Whether results wait for those of the tasks before theirs.

    Raises:
        BadInputError: The cluster has no such workers.
        TransduceError: It cannot be reached, or a worker cannot be started.
    """
    with _connected(cluster.address):
        pool = _Pool(work, tasks, lost, cluster, in_order=in_order)
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
        os.environ["RAYON_NUM_THREADS"] = str(self._threads)  # of the tokenizers
        try:
            self._do = self._work.start(self._kind)
        except TransduceError as error:
            return error
        return None

    def do(self, task: Any) -> Any:  # noqa: ANN401 - what the work is about
        """Do a task."""
        return self._do(task)


@final
@dataclass
class _Task(Generic[T]):
    """A task, its number, and how many workers were lost at it."""

    number: int
    task: T
    losses: int = 0


@final
@dataclass(frozen=True)
class _Call(Generic[T]):
    """What a worker is at: a task; or it starts."""

    actor: Any
    kind: Kind
    task: _Task[T] | None


@final
class _Pool(Generic[T, R]):
    """As many workers as there is room for, and one more that waits for a machine to join."""

    def __init__(
        self, work: Startable[T, R], tasks: Iterable[T], lost: Callable[[T], R], cluster: Cluster, *, in_order: bool
    ) -> None:
        import ray  # noqa: PLC0415 - an extra

        self._ray, self._cluster, self._lost, self._in_order = ray, cluster, lost, in_order
        self._kinds = _choose_kinds(cluster, ray.nodes())
        self._actors, self._work = ray.remote(_Worker), ray.put(work)
        self._unread = map(_Task, count(), tasks)
        self._waiting: deque[_Task[T]] = deque()
        self._calls: dict[Any, _Call[T]] = {}
        self._done: dict[int, R] = {}  # by the tasks' numbers, what has not been given yet
        self._given = 0
        self._lost_starting = 0

    def run(self) -> Iterator[R]:
        """The results."""
        idle = 0
        while self._read_tasks() or self._working():
            for kind in self._kinds:
                self._start_workers(kind)
            ready, _ = self._ray.wait(list(self._calls), timeout=_LOOK_SECONDS)
            for reference in ready:
                self._settle(self._calls.pop(reference), reference)
            idle = 0 if ready or self._working() else idle + 1
            if idle == _IDLE_LOOKS:
                _log.warning("no worker has started for a while: the cluster has no room now, and is waited for")
            while self._done and (not self._in_order or self._given in self._done):
                yield self._done.pop(self._given if self._in_order else next(iter(self._done)))
                self._given += 1

    def end(self) -> None:
        """Let all workers go."""
        for call in self._calls.values():
            self._ray.kill(call.actor)

    def _working(self) -> bool:
        return any(call.task is not None for call in self._calls.values())

    def _most(self, kind: Kind) -> int:
        """Of a kind, as many workers as may be or wait to be."""
        cores, gpus = (self._ray.cluster_resources().get(name, 0) for name in ("CPU", "GPU"))
        room = int(gpus if kind == "cuda" else cores // self._cluster.threads)
        return self._cluster.workers or room + 1

    def _read_tasks(self) -> bool:
        """Have a task ready for each worker, and no more on their way than a few times that; false at the end."""
        workers = sum(map(self._most, self._kinds))
        at_work = sum(call.task is not None for call in self._calls.values())
        room = _TASKS_AHEAD * workers - at_work - len(self._done)
        self._waiting.extend(islice(self._unread, max(0, min(workers, room) - len(self._waiting))))
        return bool(self._waiting)

    def _start_workers(self, kind: Kind) -> None:
        there = sum(call.kind == kind for call in self._calls.values())
        starting = sum(call.task is None for call in self._calls.values())
        for _ in range(min(self._most(kind) - there, len(self._waiting) - starting)):
            options = {"num_cpus": self._cluster.threads, "num_gpus": int(kind == "cuda")}
            actor = self._actors.options(**options).remote(self._work, kind, self._cluster.threads)
            self._calls[actor.start.remote()] = _Call(actor, kind, None)

    def _settle(self, call: _Call[T], reference: object) -> None:
        """Take what a worker has to tell, and give it its next task."""
        try:
            result = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError:  # not foreseen, on any machine
            raise
        except self._ray.exceptions.RayError as error:
            self._lose(call, " ".join(str(error).split())[:300])
            return
        if call.task is not None:
            self._done[call.task.number] = result
        elif result is not None:
            raise result
        self._lost_starting = 0
        if self._waiting:
            task = self._waiting.popleft()
            self._calls[call.actor.do.remote(task.task)] = _Call(call.actor, call.kind, task)

    def _lose(self, call: _Call[T], reason: str) -> None:
        _log.info(f"a worker was lost: {reason}")
        if call.task is None:
            self._lost_starting += 1
            if self._lost_starting == _MOST_LOSSES:
                raise TransduceError(f"workers are lost while they start: {reason}")
            return
        call.task.losses += 1
        if call.task.losses == _MOST_LOSSES:
            self._done[call.task.number] = self._lost(call.task.task)
        else:
            self._waiting.appendleft(call.task)


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
