"""The processes of one training: who this one is, what they tell each other, and how none outlives the others.

A launcher (torchrun) starts them alike and says in the environment which is which. Beside the gradients they exchange
little: a few counts at every step, and what the first of them decided. Nothing that goes between them is pickled.
"""

import logging
import os
import secrets
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from transduce.config import BadInputError, TransduceError

_log = logging.getLogger(__name__)

_HOW: Final = "start with torchrun --nproc-per-node N -m transduce train RUN.toml, which sets it"
_FAILED: Final = -1  # in place of an answer's length: the first process has none
_AT_WORK: Final = -2  # it is still at it
_SIGNS: Final = 8  # of life, in the time after which one that is silent is given up


@final
@dataclass(frozen=True)
class Processes:
    """This process among all of them; without any arguments, it is alone."""

    rank: int = 0
    number: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    messages: "dist.ProcessGroup | None" = None  # on the CPU, from the first process to all others
    limit: timedelta = timedelta(minutes=20)  # that a message may take

    @classmethod
    def single(cls) -> "Processes":
        """One process, on the first GPU where there is any."""
        return cls(device=torch.device("cuda" if torch.cuda.is_available() else "cpu"))

    @property
    def first(self) -> bool:
        """Whether this is the one that prepares, measures dev and writes."""
        return self.rank == 0

    @property
    def alone(self) -> bool:
        """Whether there is no other."""
        return self.number == 1

    def sum(self, values: Sequence[float]) -> list[float]:
        """The sums of all processes' values, in float64: exact for whole numbers below 2^53."""
        if self.alone:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(total)
        return [float(value) for value in total]

    def agree(self, value: float) -> float:
        """The first process's value, where each has its own: of clocks, one must count."""
        return self.sum([value if self.first else 0.0])[0]

    def lead(self, what: str, work: Callable[[], str]) -> str:
        """What ``work`` returns on the first process; the others wait for it, however long it takes.

        Meanwhile they hear that it is still there. Where its machine is switched off or cut off, nothing ends the
        connection to it: only its silence tells.

        Raises:
            TransduceError: On the others, where the first one failed (it raises its own error), or fell silent.
        """
        if self.alone:
            return work()
        if not self.first:
            with self.lost(f"waiting for the first to finish {what}"):
                answer = self._hear()
            if answer is None:
                raise TransduceError(f"{self} ends, as {what} failed on the first one: its own message says why")
            return answer
        try:
            with self._signs_of_life():
                answer = work()
        except BaseException:
            self._tell(None)
            raise
        self._tell(answer)
        return answer

    @contextmanager
    def lost(self, what: str) -> Iterator[None]:
        """Say what it means that the others cannot be reached, and show where this process stood.

        Raises:
            TransduceError: In place of torch's error.
        """
        try:
            yield
        except RuntimeError as error:
            if self.alone or not _is_of_connection(error):
                raise
            traceback.print_exc()
            raise TransduceError(
                f"{self} has lost the others while {what}: one of them ended, or hangs; its own message says why, and "
                f"above is where this one stood. --resume goes on from the last checkpoint"
            ) from error

    @contextmanager
    def _signs_of_life(self) -> Iterator[None]:
        """Tell the others, again and again, that this process is at work."""
        over, sign = threading.Event(), torch.tensor([_AT_WORK])

        def speak() -> None:
            with suppress(RuntimeError):  # whoever cannot be reached any more: the answer will show it
                while not over.wait(self.limit.total_seconds() / _SIGNS):
                    self._send(sign)

        speaker = threading.Thread(target=speak, daemon=True)
        speaker.start()
        try:
            yield
        finally:
            over.set()
            speaker.join()

    def _tell(self, answer: str | None) -> None:
        text = b"" if answer is None else answer.encode()
        self._send(torch.tensor([_FAILED if answer is None else len(text)]))
        if text:
            self._send(torch.frombuffer(bytearray(text), dtype=torch.uint8))

    def _hear(self) -> str | None:
        length = torch.tensor([_AT_WORK])
        while int(length) == _AT_WORK:
            self._send(length)
        if int(length) == _FAILED:
            return None
        text = torch.zeros(int(length), dtype=torch.uint8)
        if len(text):
            self._send(text)
        return bytes(text.tolist()).decode()

    def _send(self, message: Tensor) -> None:
        """From the first process to the others, whose tensor takes it."""
        dist.broadcast(message, 0, group=self.messages)

    def __str__(self) -> str:
        return f"process {self.rank} of {self.number}"


ALONE: Final = Processes()


@contextmanager
def join_processes(hang_minutes: float, environment: Mapping[str, str] = os.environ) -> Iterator[Processes]:
    """Meet the processes that a launcher started beside this one; alone where none did.

    Raises:
        BadInputError: The environment names processes that cannot be.
        TransduceError: This machine has no device or no way to exchange gradients for one of them.
    """
    rank, number = _place(environment)
    if number == 1:
        yield Processes.single()
        return
    device = _device(int(environment.get("LOCAL_RANK", "0")))
    # Processes watch their own steps; that a message takes longer still is the last resort.
    limit = timedelta(minutes=2 * hang_minutes)
    with Processes(rank, number).lost("meeting them"):
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        store = open_store(rank, number, limit)
        dist.init_process_group(backend, store=store, rank=rank, world_size=number, timeout=limit)
        messages = dist.new_group(backend="gloo", timeout=limit)
    yield Processes(rank, number, device, messages, limit)
    # Where an error leads out of here, the connections are left to the end of the process: closing them could wait for
    # processes that are gone.
    dist.destroy_process_group()


def _place(environment: Mapping[str, str]) -> tuple[int, int]:
    """Rank and number of processes."""
    if "WORLD_SIZE" not in environment:
        return 0, 1
    number = _whole("WORLD_SIZE", environment, lowest=1)
    rank = _whole("RANK", environment, lowest=0) if number > 1 or "RANK" in environment else 0
    if rank >= number:
        raise BadInputError(f"RANK = {rank} in the environment is beyond WORLD_SIZE = {number}: {_HOW}")
    if number > 1:
        for name in ("MASTER_ADDR", "MASTER_PORT"):
            if not environment.get(name):
                raise BadInputError(f"{name} is missing in the environment, where WORLD_SIZE = {number}: {_HOW}")
        _whole("LOCAL_RANK", {"LOCAL_RANK": "0", **environment}, lowest=0)
    return rank, number


def _whole(name: str, environment: Mapping[str, str], *, lowest: int) -> int:
    value = environment.get(name, "")
    if not value.isdecimal() or int(value) < lowest:
        raise BadInputError(f"{name} = {value!r} in the environment is no whole number from {lowest} on: {_HOW}")
    return int(value)


def _device(local_rank: int) -> torch.device:
    """This process's own device: a GPU for each where there are any, otherwise they share the CPU's cores."""
    if not dist.is_gloo_available():
        raise TransduceError(
            "this torch was built without gloo, by which processes talk: install torch from pytorch.org or PyPI, or "
            "train in one process"
        )
    if not torch.cuda.is_available():
        return torch.device("cpu")
    if not dist.is_nccl_available():
        raise TransduceError(
            "this torch knows CUDA but not nccl, which exchanges gradients between GPUs: install torch for Linux from "
            'PyPI, or set CUDA_VISIBLE_DEVICES="" to train on the CPU'
        )
    if local_rank >= torch.cuda.device_count():
        raise BadInputError(
            f"LOCAL_RANK = {local_rank}, but this machine has {torch.cuda.device_count()} GPUs, one for each process: "
            f"--nproc-per-node {torch.cuda.device_count()}"
        )
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device


def _is_of_connection(error: RuntimeError) -> bool:
    """Whether the error is of the exchange between processes; gloo's have no type of their own."""
    return isinstance(error, dist.DistError) or any(name in str(error) for name in ("gloo", "NCCL", "Gloo"))


_PAUSE: Final = 0.01  # seconds


def open_store(rank: int, number: int, limit: timedelta) -> Store:
    """What all processes of this start, and no others, read and write.

    A launcher that starts them again may keep the store in which they look each other up: torchrun does (torch 2.13),
    with addresses in it at which nobody is any more. So each meeting has a name of its own.

    Raises:
        TransduceError: Some of them do not come within the limit.
    """
    store: Store = next(rendezvous("env://", rank, number, timeout=limit))[0]
    return PrefixStore(name_meeting(store, rank, number, limit), store)


def name_meeting(store: Store, rank: int, number: int, limit: timedelta) -> str:
    """A name that the first process chooses and all others of this start hear, whatever stands in the store.

    Each says hello with a word that it has just made up, and waits for an answer to this very word. The first answers
    whatever word it finds, an old one too, until it is thanked in its own name.
    """
    own = secrets.token_hex(8)
    store.set(f"hello/{rank}", own)
    if rank > 0:
        name = str(store.get(f"welcome/{own}").decode())
        store.set(f"thanks/{name}/{rank}", "")
        return name
    missing, deadline = set(range(1, number)), time.monotonic() + limit.total_seconds()
    while missing:
        for other in sorted(missing):
            if store.check([f"hello/{other}"]):
                store.set(f"welcome/{store.get(f'hello/{other}').decode()}", own)
            if store.check([f"thanks/{own}/{other}"]):
                missing.remove(other)
        if missing and time.monotonic() > deadline:
            raise TransduceError(f"of {number} processes, these did not come: {', '.join(map(str, sorted(missing)))}")
        time.sleep(_PAUSE)
    return own
