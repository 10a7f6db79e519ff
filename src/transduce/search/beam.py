"""Beam search over the contract (section 6.1); with a beam of one it is greedy search.

A search is given requests while it runs (continuous batching). Each round reads one symbol in every open hypothesis and
ranks all continuations of a sentence together. A hypothesis that ends among the best ``beam`` continuations has ended;
the best ``beam`` that do not end stay open. A sentence is done when the stopping rule says so, or its request is
cancelled: it leaves at once, and others come in. So the sentences of one round may have written outputs of different
lengths. Sampling is the same loop, with hypotheses that do not compete: each has one continuation, which is drawn.

Every request has settings of its own. Requests that cannot share a model's state are searched in several batches, which
take turns: other beam sizes, other shortlists, and sentences with a coverage penalty, which need attention weights.
Where memory is too small for all sentences of a round, they begin anew in smaller groups.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar, final

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from transduce.config import BadInputError
from transduce.kernels import is_out_of_memory
from transduce.models import LAST_CROSS, NO_ATTENTION, Model, State, Step, Tokens
from transduce.search.coverage import Coverage
from transduce.search.hypotheses import Sentence
from transduce.search.ranking import rank, to_tensor
from transduce.search.recording import Following, most_probable
from transduce.search.settings import Cancelled, NothingFound, Outcome, Request, TooLittleMemory

M = TypeVar("M")
S = TypeVar("S", bound=State)

# Asked for more requests in every round, with those that are active. Where none are, it may wait for more; none even
# then are the end of the search.
Take = Callable[[Sequence[Request]], Sequence[Request]]

# After memory was too small, twice as many sentences are tried again once so many times a group's size are done.
_GROUPS: Final = 16


@final
@dataclass(frozen=True)
class _Batch(Generic[S]):
    """Active sentences that share a model's state, and the symbol that each of its rows reads next."""

    state: S
    sentences: list[Sentence]
    newest: Int[Tensor, " rows"]
    coverage: Coverage | None

    @property
    def beam(self) -> int:
        """Rows for each sentence."""
        return self.state.beam


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
            for request, outcome in _search(model, requests.take, device):
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


def _search(model: Model[M, S], take: Take, device: torch.device | None) -> Iterator[tuple[Request, Outcome]]:
    """``beam_search`` where memory is enough."""
    batches: dict[tuple[int, bool, int], _Batch[S]] = {}
    while True:
        active = [sentence.request for batch in batches.values() for sentence in batch.sentences]
        requests = take(active)
        if not (requests or active):
            return
        groups: dict[tuple[int, bool, int], list[Request]] = {}
        for request in requests:
            if request.cancelled:
                yield request, Cancelled()
            else:
                settings = request.settings
                kind = settings.beam_size, settings.coverage > 0, id(settings.shortlist)
                groups.setdefault(kind, []).append(request)
        for kind, some in groups.items():
            # A state without a name of its own is gone from memory as soon as it is used up.
            if kind in batches:
                batches[kind] = _admit(batches.pop(kind), _begin(model, some, device))
            else:
                batches[kind] = _begin(model, some, device)
        # What all have left lives until here, so that others can come into its buffers.
        for kind in [kind for kind, batch in batches.items() if not batch.sentences]:
            del batches[kind]
        for kind in list(batches):
            batches[kind], done = _leave(_advance(model, batches.pop(kind)))
            for sentence in done:
                cancelled = sentence.request.cancelled
                yield sentence.request, Cancelled() if cancelled else sentence.outputs or NothingFound(sentence.limit)


def _begin(model: Model[M, S], requests: Sequence[Request], device: torch.device | None) -> _Batch[S]:
    device = device or torch.device("cpu")
    lengths, settings = [len(each.source) for each in requests], requests[0].settings
    longest = max(lengths)
    ids = [[*each.source, *[0] * (longest - len(each.source))] for each in requests]
    source = Tokens(to_tensor(ids, np.int64, device), to_tensor(lengths, np.int64, device))
    beam, allowed = settings.beam_size, None
    if settings.shortlist is not None:
        allowed = settings.shortlist.allowed(source, [_needed(each) for each in requests])
    return _Batch(
        model.start(model.encode(source), beam, allowed=allowed),
        [Sentence.begin(each) for each in requests],
        to_tensor([each.settings.begin_id for each in requests for _ in range(beam)], np.int64, device),
        Coverage.empty(source.lengths, beam, device) if settings.coverage else None,
    )


def _needed(request: Request) -> set[int]:
    """What has to be in a request's list where there is a shortlist."""
    settings = request.settings
    return {settings.end_id}.union(*(each.symbols(request.number) for each in settings.constraints))


def _admit(batch: _Batch[S], other: _Batch[S]) -> _Batch[S]:
    """The other's sentences come in behind these."""
    both = batch.coverage, other.coverage
    return _Batch(
        batch.state.admit(other.state),
        batch.sentences + other.sentences,
        torch.cat([batch.newest, other.newest]),
        None if both[0] is None or both[1] is None else both[0].admit(both[1]),
    )


def _advance(model: Model[M, S], batch: _Batch[S]) -> _Batch[S]:
    """Every hypothesis reads its newest symbol, and each sentence goes on with its best continuations."""
    wanted = NO_ATTENTION if batch.coverage is None else LAST_CROSS
    step = model.step(batch.state, batch.newest, attention=wanted)
    coverage, beam, device = batch.coverage, batch.beam, batch.newest.device
    if coverage is not None:
        if not step.attention:
            raise BadInputError("coverage_penalty: the model has no encoder-decoder attention: leave it at 0")
        (weights,) = step.attention.values()
        coverage = coverage.add(weights)
    shortfalls = None if coverage is None else coverage.shortfall().view(-1, beam).tolist()
    following = _look_further(step, batch.sentences)
    parents, symbols = [], []
    for index, (sentence, candidates) in enumerate(zip(batch.sentences, rank(step, batch.sentences), strict=True)):
        chosen = sentence.write(candidates, None if shortfalls is None else shortfalls[index], following.get(index))
        parents += [index * beam + parent for _, parent, _ in chosen]
        symbols += [symbol for _, _, symbol in chosen]
    state = step.state
    if beam > 1 and any(sentence.request.settings.sampling is None for sentence in batch.sentences):
        rows = to_tensor(parents, np.int64, device)
        state, coverage = state.reorder(rows), None if coverage is None else coverage.reorder(rows)
    return _Batch(state, batch.sentences, to_tensor(symbols, np.int64, device), coverage)


def _look_further(step: Step[S], sentences: Sequence[Sentence]) -> dict[int, Following]:
    """What may follow the hypotheses of sentences that are recorded, by their indices; ranking uses the logits up."""
    recorders = {
        index: recorder
        for index, sentence in enumerate(sentences)
        if (recorder := sentence.request.settings.recorder) is not None
    }
    if not recorders:
        return {}
    logits = step.over_vocabulary().reshape(len(sentences), -1, step.vocabulary)
    return {
        index: most_probable(logits[index], sentences[index].log_probability, recorder.top)
        for index, recorder in recorders.items()
    }


def _leave(batch: _Batch[S]) -> tuple[_Batch[S], list[Sentence]]:
    """Let the sentences go whose outcome is certain, and those that nobody waits for any longer."""
    leaving = [sentence.is_certain() or sentence.request.cancelled for sentence in batch.sentences]
    if not any(leaving):
        return batch, []
    done = to_tensor(leaving, np.bool_, batch.newest.device)
    rows = (~done).repeat_interleave(batch.beam).nonzero().squeeze(1)
    staying = _Batch(
        state=batch.state.release(done),
        sentences=[sentence for sentence, gone in zip(batch.sentences, leaving, strict=True) if not gone],
        newest=batch.newest[rows],
        coverage=None if batch.coverage is None else batch.coverage.reorder(rows),
    )
    return staying, [sentence for sentence, gone in zip(batch.sentences, leaving, strict=True) if gone]
