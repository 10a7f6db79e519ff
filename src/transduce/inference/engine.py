"""The engine: a model made ready to run, over batches of ids."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, final

import torch
from jaxtyping import Float
from torch import Tensor

from transduce.config import BadInputError, Precision, SpecialIds, TransformerConfig
from transduce.data import pad
from transduce.inference.batches import each_within_memory, in_batches
from transduce.inference.queue import RequestQueue
from transduce.inference.running import Cancellation, RunningSearch
from transduce.inference.workers import CoreShare, Workers
from transduce.kernels import Format, resolve_format, run_safely, trim
from transduce.models import (
    AttentionRequest,
    AttentionWeights,
    Ensemble,
    Model,
    NativeTransformer,
    SizedModel,
    Tokens,
    TrainableModel,
    can_run_natively,
    make_ready,
)
from transduce.search import Outcome, Request, SearchSettings, TooLittleMemory, beam_search, score_targets

Ids = list[int]
_LAST_TWO: Final = AttentionRequest(cross=(-2, -1))  # or the only one
_ALL: Final = AttentionRequest(encoder="all", decoder="all", cross="all")
# Source symbols of a batch. A step reads the decoder's weights once for all rows: the more rows, the less for each. But
# where the weights stay in the processor's caches, keys and values of fewer rows do so beside them.
_BATCH: Final = 4096
_CACHED_BATCH: Final = 1024
_CACHED_BYTES: Final = 16 * 2**20
_ATTENDED: Final = 2**17  # weights of a head that a batch gives at most, padding included


def choose_device(device: torch.device | None) -> torch.device:
    """A device, or where none was named the GPU if there is one."""
    return device or torch.device("cuda" if torch.cuda.is_available() else "cpu")


def has_cross_attention(model: Model[Any, Any], special: SpecialIds, device: torch.device) -> bool:
    """Whether a model looks at the symbols of its source, so that it can be said what comes from where."""

    @torch.inference_mode()
    def look() -> bool:
        one = torch.ones(1, dtype=torch.long)
        end, begin = (Tokens(torch.full((1, 1), symbol, device=device), one) for symbol in (special.end, special.begin))
        return bool(model.decode(model.encode(end), begin, attention=_LAST_TWO).attention.cross)

    return run_safely(look)


@final
@dataclass(frozen=True)
class Attention:
    """How each target symbol weighs the source's, the end symbol last on both sides: the encoder-decoder attention.

    ``last`` is the last decoder layer's. ``aligned`` is the mean over the heads of the layer before it, which tells
    best what comes from where (Garg et al. 2019), or of the only layer.
    """

    last: Float[Tensor, "heads target source"]
    aligned: Float[Tensor, "target source"]


def _make_ready(
    models: Sequence[TrainableModel] | Sequence[NativeTransformer],
    precision: Precision,
    device: torch.device,
    *,
    consume: bool,
) -> tuple[Format, Sequence[SizedModel[Any, Any]]]:
    """The models in one number format, and which one that is."""
    native = [each for each in models if isinstance(each, NativeTransformer)]
    if native:
        return native[0].format, native
    plain = [each for each in models if isinstance(each, TrainableModel)]
    own = plain if consume else [copy.deepcopy(each) for each in plain]
    own = [each.to(device).eval().requires_grad_(False) for each in own]
    format_ = resolve_format(precision, native=all(map(can_run_natively, own)), device=device)
    return format_, [make_ready(each, format_) for each in own]


def _choose_search_tokens(models: Sequence[SizedModel[Any, Any]]) -> int:
    """How many source symbols a search has in its batch."""
    read = sum(each.bytes_of_a_step for each in models if isinstance(each, NativeTransformer))
    return _CACHED_BATCH if 0 < read <= _CACHED_BYTES else _BATCH


@final
class Engine:
    """A private copy of a model, or of several that act as one, in one precision on one device.

    Sequences are batched by length; a batch holds at most ``batch_tokens`` source symbols, padding and the rows of
    the beam included, or one sequence; left out, as many as are fast for a model of its size. In a search, requests
    that wait take the place of those that are done. A native model searches with ``workers`` threads, each with
    batches of its own; left out, as many as torch would use for one operation. With ``consume`` it takes the models
    themselves, which are of no use to anybody else then. Models that are native already are all of one format, and are
    taken as they are: they never change.
    """

    def __init__(
        self,
        model: TrainableModel | Sequence[TrainableModel] | Sequence[NativeTransformer],
        special: SpecialIds,
        precision: Precision = "auto",
        device: torch.device | None = None,
        batch_tokens: int | None = None,
        workers: int | None = None,
        *,
        consume: bool = False,
    ) -> None:
        self.device = choose_device(device)
        models = [model] if isinstance(model, TrainableModel) else model
        self.format, parts = run_safely(lambda: _make_ready(models, precision, self.device, consume=consume))
        trim()  # what the models' weights were laid out from
        self._model: Model[Any, Any] = parts[0] if len(parts) == 1 else Ensemble(parts)
        native = all(isinstance(each, NativeTransformer) for each in parts)
        self._workers = Workers(workers if native else 1)
        limits = [each.config.longest for each in models if each.config.longest is not None]
        self._longest = min(limits, default=None)
        ends = [not isinstance(each.config, TransformerConfig) or each.config.source_end for each in models]
        self._unread = 0 if any(ends) else 1  # the end symbol
        self._special = special
        self._batch_tokens = _BATCH if batch_tokens is None else batch_tokens
        self._search_tokens = _choose_search_tokens(parts) if batch_tokens is None else batch_tokens
        self._running: RunningSearch | None = None

    @property
    def longest(self) -> int | None:
        """The most symbols, end symbol counted, that the model reads or writes, where there is such a limit."""
        return self._longest

    @cached_property
    def has_cross_attention(self) -> bool:
        """As the function of that name says."""
        return has_cross_attention(self._model, self._special, self.device)

    def limit(self, source: Ids, max_extra_length: int, max_length: int | None = None) -> int:
        """The most symbols of a source's output, end symbol counted; ``max_length`` does not count it."""
        limit = len(source) + 1 + max_extra_length if max_length is None else max_length + 1
        return limit if self.longest is None else min(limit, self.longest)

    def search(
        self,
        sources: Sequence[Ids],
        settings: SearchSettings,
        max_extra_length: int,
        max_length: int | None = None,
        numbers: Sequence[int] | None = None,
        cancellation: Cancellation | None = None,
    ) -> list[Outcome]:
        """The best outputs of each source (ids without end symbol), in the order of the sources, or why it has none.

        ``numbers`` are what constraints and samples know the sources by; left out, they count from 0. A
        ``cancellation`` may withdraw the sources from another thread.
        """
        known = range(len(sources)) if numbers is None else numbers
        requests = [
            self.request(source, settings, max_extra_length, max_length, number)
            for source, number in zip(sources, known, strict=True)
        ]
        if cancellation is not None:
            cancellation.watch(requests)
        found: dict[Request, Outcome] = {}
        try:
            running = self._running
            if running is not None and running.is_here and (shared := running.search(requests)) is not None:
                return shared
            queue = self.queue(self._workers.share(len(sources)))
            queue.put(requests)
            queue.close()
            self._serve(queue, found.__setitem__, self._workers)
        except BaseException:
            for request in requests:  # whoever interrupts this thread does not want the others to work on
                request.cancelled = True
            raise
        return [found[request] for request in requests]

    @contextmanager
    def keep_searching(self) -> Iterator[RunningSearch]:
        """While it is open, ``search`` puts what it is asked for into one running search, whichever thread calls it.

        So callers fill each other's batches; an outcome is the same, bit for bit, as without.
        """
        self._running = running = RunningSearch(self.queue(), self.serve)
        try:
            yield running
        finally:
            self._running = None
            running.close()

    def request(
        self,
        source: Ids,
        settings: SearchSettings,
        max_extra_length: int,
        max_length: int | None = None,
        number: int = 0,
    ) -> Request:
        """A source (ids without end symbol) as ``serve`` wants it; constraints and samples know it by the number."""
        limit = self.limit(source, max_extra_length, max_length)
        return Request([*source, self._special.end], limit, settings, number, unread=self._unread)

    def queue(self, searches: int | None = None) -> RequestQueue:
        """An empty queue for ``serve``, for so many searches at a time; left out, for as many as there are workers."""
        return RequestQueue(self._search_tokens, self._workers.number if searches is None else searches)

    def serve(self, queue: RequestQueue, finish: Callable[[Request, Outcome], object]) -> None:
        """Search for what is put into a queue, by any thread and at any time, until it is closed and all is done.

        ``finish`` is told each request's outcome as soon as that is certain, in a thread of the searches. An outcome is
        the same, bit for bit where kernels run the model, whatever else is searched for, in any order and with any
        settings. Where the queue has several searches, they have threads of their own, so that other calls of this
        engine go on beside.

        Raises:
            TransduceError: The model's scores are NaN.
        """
        self._serve(queue, finish, Workers(queue.searches))

    def _serve(self, queue: RequestQueue, finish: Callable[[Request, Outcome], object], workers: Workers) -> None:
        cores = workers.number

        def search(number: int) -> None:
            with queue, CoreShare() as share:

                def take(active: Sequence[Request]) -> list[Request]:
                    requests = queue.take(number, active)
                    share.set(max(1, cores // max(1, queue.at_work)))  # those of searches without work are free
                    return requests

                for request, outcome in beam_search(self._model, take, self.device):
                    finish(request, outcome)

        for _ in workers.map(search, range(queue.searches)):
            pass

    def score(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[float | TooLittleMemory]:
        """The natural log-probability of each target given its source, end symbol counted."""

        def score(rows: list[int]) -> list[float]:
            source = self._source([sources[row] for row in rows])
            target = self._tokens([[self._special.begin, *targets[row]] for row in rows])
            labels = self._tokens([[*targets[row], self._special.end] for row in rows])
            scores: list[float] = score_targets(self._model, source, target, labels.ids).tolist()
            return scores

        each = each_within_memory(score, in_batches(_lengths(sources, targets), self._batch_tokens))
        found = dict(each)
        return [found[row] for row in range(len(sources))]

    def attention(
        self, sources: Sequence[Ids], targets: Sequence[Ids]
    ) -> Iterator[tuple[int, Attention | TooLittleMemory]]:
        """What each target has looked at in its source, from one forced pass over it, with the pair's index.

        No more than a batch's are kept at a time.
        """

        @torch.inference_mode()
        def look(rows: list[int]) -> list[Attention]:
            memory = self._model.encode(self._source([sources[row] for row in rows]))
            target = self._tokens([[self._special.begin, *targets[row]] for row in rows])
            layers = [*self._model.decode(memory, target, attention=_LAST_TWO).attention.cross.values()]
            if not layers:
                raise BadInputError("the model has no encoder-decoder attention to show or to align by")
            last, aligned = layers[-1].float(), layers[0].float().mean(dim=1)
            spans = [(slice(len(targets[row]) + 1), slice(len(sources[row]) + 1)) for row in rows]
            return [
                Attention(last[(index, slice(None), *span)].cpu(), aligned[(index, *span)].cpu())
                for index, span in enumerate(spans)
            ]

        return each_within_memory(look, in_batches(_lengths(sources, targets), self._batch_tokens))

    def attend(
        self, sources: Sequence[Ids], targets: Sequence[Ids]
    ) -> Iterator[tuple[int, AttentionWeights | TooLittleMemory]]:
        """All attention weights of a forced pass over each pair, of every kind that the model has.

        They come with the pair's index, as a batch of one without padding; no more than a batch's are kept at a time.
        """

        @torch.inference_mode()
        def look(rows: list[int]) -> list[AttentionWeights]:
            memory = self._model.encode(self._source([sources[row] for row in rows]), attention=_ALL)
            read = self._tokens([[self._special.begin, *targets[row]] for row in rows])
            weights = self._model.decode(memory, read, attention=_ALL).attention
            return [
                _of_pair(weights, index, len(sources[row]) + 1, len(targets[row]) + 1) for index, row in enumerate(rows)
            ]

        # Weights grow with the square of the length.
        batches = in_batches([length * length for length in _lengths(sources, targets)], _ATTENDED)
        return each_within_memory(look, batches)

    def _source(self, sources: Sequence[Ids]) -> Tokens:
        return self._tokens([[*source, self._special.end] for source in sources])

    def _tokens(self, sequences: Sequence[Ids]) -> Tokens:
        ids, lengths = pad(sequences, self._special.pad)
        return Tokens(torch.from_numpy(ids).to(self.device), torch.from_numpy(lengths).to(self.device))


def _lengths(sources: Sequence[Ids], targets: Sequence[Ids]) -> list[int]:
    return [max(len(source), len(target)) + 1 for source, target in zip(sources, targets, strict=True)]


def _of_pair(weights: AttentionWeights, index: int, source: int, target: int) -> AttentionWeights:
    """One pair's part of a batch, without padding, as a batch of its own."""

    def cut(layers: dict[int, Tensor], queries: int, keys: int) -> dict[int, Tensor]:
        return {number: each[index : index + 1, :, :queries, :keys] for number, each in layers.items()}

    return AttentionWeights(
        cut(weights.encoder, source, source), cut(weights.decoder, target, target), cut(weights.cross, target, source)
    )
