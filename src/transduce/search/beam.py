"""Beam search over the contract (section 6.1); with a beam of one it is greedy search.

A search is given requests while it runs (continuous batching). Each round reads one symbol in every open hypothesis and
ranks all continuations of a sentence together. A hypothesis that ends among the best ``beam`` continuations has ended;
the best ``beam`` that do not end stay open. A sentence is done when the stopping rule says so, or its request is
cancelled: it leaves, and others come in. So the sentences of one round may have written outputs of different
lengths. Sampling is the same loop, with hypotheses that do not compete: each has one continuation, which is drawn.

Every request has settings of its own. Requests that cannot share a model's state are searched in several batches, which
take turns: other beam sizes, other shortlists, and sentences with a coverage penalty, which need attention weights.
Where memory is too small for all sentences of a round, they begin anew in smaller groups.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, final, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from transduce.kernels import READS_NOTHING, can_advance, is_out_of_memory
from transduce.models import AttentionRequest, Model, SearchingModel, State, Step, Tokens
from transduce.search.native_beams import NativeBeams
from transduce.search.python_beams import PythonBeams
from transduce.search.ranking import to_tensor
from transduce.search.settings import Cancelled, Outcome, Request, SearchSettings, TooLittleMemory

M = TypeVar("M")
S = TypeVar("S", bound=State)

# Asked for more requests between rounds, with those that are active. Where none are, it may wait for more; none even
# then are the end of the search.
Take = Callable[[Sequence[Request]], Sequence[Request]]

# Seconds that a model makes rounds by itself: so long may outputs that are certain have to wait, and of each batch,
# requests that come in and those that are cancelled.
_MOMENT: Final = 0.005
# After memory was too small, twice as many sentences are tried again once so many times a group's size are done.
_GROUPS: Final = 16


# typing.Self would say the same, but the run-time checkers of the tests cannot read it.
Same = TypeVar("Same", bound="Beams")


@runtime_checkable
class Beams(Protocol):
    """The open hypotheses of some sentences and what has ended; its verbs use it up as those of a ``State`` do."""

    @property
    def requests(self) -> list[Request]:
        """What each sentence was asked for that has not gone, in the order of the state's sentences."""
        ...

    @property
    def newest(self) -> Int[Tensor, " rows"]:
        """The symbol that each row reads next."""
        ...

    @property
    def wanted(self) -> AttentionRequest:
        """The attention that a round needs to know."""
        ...

    def advance(self, step: Step[Any]) -> Int[Tensor, " rows"] | None:
        """Each sentence goes on with its best continuations; the rows that they continue, unless each its own."""
        ...

    def leave(self) -> tuple[Bool[Tensor, " sentences"] | None, list[tuple[Request, Outcome]]]:
        """Let the sentences go whose outcome is certain, and those that nobody waits for; whose rows leave, if any."""
        ...

    def settle(self) -> Bool[Tensor, " sentences"] | None:
        """The rows of all sentences that have gone leave; which those are, if any."""
        ...

    def admit(self: Same, other: Same) -> Same:
        """The other's sentences come in behind these."""
        ...


@final
class _Kind(NamedTuple):
    """What the requests of a batch have in common: all else may differ.

    ``native`` are the end symbol and the forbidden ones of those whose rounds C++ can make.
    """

    beam: int
    coverage: bool
    shortlist: int
    native: tuple[int, tuple[int, ...]] | None

    @classmethod
    def of(cls, settings: SearchSettings, device: torch.device) -> "_Kind":
        """The only place that decides which loop a request goes through."""
        native = (settings.end_id, settings.forbidden) if settings.is_plain and can_advance(device) else None
        return cls(settings.beam_size, settings.coverage > 0, id(settings.shortlist), native)


@final
@dataclass(frozen=True)
class _Batch(Generic[S]):
    """Active sentences that share a model's state."""

    state: S
    beams: Beams


@final
@dataclass
class _Requests:
    """What a search has taken and not yet finished, so that nothing is lost where memory is too small for all of it.

    ``active`` are being searched for, in the order in which they came; ``waiting`` begin anew. No more than ``room``
    are active at a time, where there is such a limit; ``done`` counts what was finished since it was set.
    """

    source: Take
    active: dict[Request, None] = field(default_factory=dict)
    waiting: list[Request] = field(default_factory=list)
    room: int | None = None
    done: int = 0

    def take(self, active: Sequence[Request]) -> Sequence[Request]:
        """The next requests beside the active ones: what has to begin anew comes first."""
        free = None if self.room is None else max(self.room - len(active), 0)
        if free == 0:
            return []
        if not self.waiting:
            self.waiting = list(self.source(active))
        taken = self.waiting[:free]
        del self.waiting[:free]
        self.active |= dict.fromkeys(taken)
        return taken

    def finish(self, request: Request) -> None:
        """The request has its outcome."""
        del self.active[request]
        self.done += 1
        if self.room is not None and self.done >= _GROUPS * self.room:
            self.room, self.done = 2 * self.room, 0

    def begin_anew(self) -> Request | None:
        """All that is active, in groups half as large; the request that was alone and cannot."""
        active, self.active, self.done = list(self.active), {}, 0
        if len(active) == 1:
            self.room = None  # it was this one's fault: the others need not suffer
            return active[0]
        self.waiting = active + self.waiting
        self.room = len(active) // 2
        return None


@torch.inference_mode()
def beam_search(
    model: Model[M, S], take: Take, device: torch.device | None = None
) -> Iterator[tuple[Request, Outcome]]:
    """Each request and its ``n_best`` best outputs, best first, as soon as they are certain.

    There are fewer outputs where the constraints leave no more. Where they leave none, memory is too small for the
    sentence even alone, or the request was cancelled, that comes in their place, and the others go on. What else is
    searched for at the same time has no influence on an output. ``device`` is the model's.

    Raises:
        TransduceError: The model's scores are NaN.
    """
    requests = _Requests(take)
    while True:
        try:
            for request, outcome in _search(model, requests.take, device or torch.device("cpu")):
                requests.finish(request)
                yield request, outcome
            break
        except (RuntimeError, MemoryError) as error:
            if not (is_out_of_memory(error) and requests.active):
                raise
            reason = str(error) or type(error).__name__
        # Only here have the failed search's tensors gone with its error.
        if (failed := requests.begin_anew()) is not None:
            yield failed, TooLittleMemory(reason)


def _search(model: Model[M, S], take: Take, device: torch.device) -> Iterator[tuple[Request, Outcome]]:
    """``beam_search`` where memory is enough."""
    batches: dict[_Kind, _Batch[S]] = {}
    searching = model if isinstance(model, SearchingModel) else None
    while True:
        active = [*chain.from_iterable(batch.beams.requests for batch in batches.values())]
        requests = take(active)
        if not (requests or active):
            return
        groups: dict[_Kind, list[Request]] = {}
        for request in requests:
            if request.cancelled:
                yield request, Cancelled()
            else:
                groups.setdefault(_Kind.of(request.settings, device), []).append(request)
        for kind, some in groups.items():
            # A state without a name of its own is gone from memory as soon as it is used up.
            if kind in batches:
                batches[kind] = _admit(batches.pop(kind), _begin(model, some, kind, device))
            else:
                batches[kind] = _begin(model, some, kind, device)
        # What all have left lives until here, so that others can come into its buffers.
        for kind in [kind for kind, batch in batches.items() if not batch.beams.requests]:
            del batches[kind]
        for kind in list(batches):
            batch = batches.pop(kind)
            if searching is not None and isinstance(batch.beams, NativeBeams):
                batch = _Batch(batch.beams.go_on(searching, batch.state, _MOMENT), batch.beams)
            else:
                batch = _advance(model, batch)
            batches[kind], outcomes = _leave(batch)
            del batch  # what it has of memory may be needed
            yield from outcomes


def _begin(model: Model[M, S], requests: Sequence[Request], kind: _Kind, device: torch.device) -> _Batch[S]:
    lengths, settings = [len(each.source) for each in requests], requests[0].settings
    longest = max(lengths)
    ids = [[*each.source, *[0] * (longest - len(each.source))] for each in requests]
    source = Tokens(to_tensor(ids, np.int64, device), to_tensor(lengths, np.int64, device))
    allowed = None
    if settings.shortlist is not None:
        allowed = settings.shortlist.allowed(source, [_needed(each) for each in requests])
    begins = to_tensor([*chain.from_iterable(map(_first_symbols, requests))], np.int64, device)
    beams = NativeBeams if kind.native else PythonBeams
    return _Batch(model.start(model.encode(source), kind.beam, allowed=allowed), beams.begin(requests, begins))


def _first_symbols(request: Request) -> list[int]:
    """What the rows of a sentence read first: all would read the same, and only samples go on from each."""
    settings = request.settings
    others = READS_NOTHING if settings.sampling is None else settings.begin_id
    return [settings.begin_id, *[others] * (settings.beam_size - 1)]


def _needed(request: Request) -> set[int]:
    """What has to be in a request's list where there is a shortlist."""
    settings = request.settings
    return {settings.end_id}.union(*(each.symbols(request.number) for each in settings.constraints))


def _admit(batch: _Batch[S], other: _Batch[S]) -> _Batch[S]:
    """The other's sentences come in behind these, and into the places of those that have gone."""
    if (done := batch.beams.settle()) is not None:
        batch = _Batch(batch.state.release(done), batch.beams)
    return _Batch(batch.state.admit(other.state), batch.beams.admit(other.beams))


def _advance(model: Model[M, S], batch: _Batch[S]) -> _Batch[S]:
    """Every hypothesis reads its newest symbol, and each sentence goes on with its best continuations."""
    step = model.step(batch.state, batch.beams.newest, attention=batch.beams.wanted)
    rows = batch.beams.advance(step)
    return _Batch(step.state if rows is None else step.state.reorder(rows), batch.beams)


def _leave(batch: _Batch[S]) -> tuple[_Batch[S], list[tuple[Request, Outcome]]]:
    """Let the sentences go that are done."""
    done, outcomes = batch.beams.leave()
    return batch if done is None else _Batch(batch.state.release(done), batch.beams), outcomes
