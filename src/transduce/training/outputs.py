"""Outputs that the model of a training writes by chance, and what each is worth beside the pair's reference."""

import copy
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from transduce.config import SpecialIds, TrainConfig, TransduceError
from transduce.data import Batch
from transduce.evaluation import Gleu
from transduce.kernels import derive
from transduce.models import SizedModel, TrainableModel, make_ready
from transduce.search import Failure, Request, Sampling, SearchSettings, Take, beam_search

Ids = tuple[int, ...]
Floats = NDArray[np.float64]


@final
@dataclass(frozen=True)
class Outputs:
    """What was drawn for one pair: each distinct output once; the reference is the first, drawn or not.

    ``pair`` is the pair's number in its batch, ``counts`` says how often each output was drawn, ``rewards`` are their
    sentence GLEU beside the reference, which compares tokens. The ids are without the end symbol.
    """

    pair: int
    ids: tuple[Ids, ...]
    counts: Floats
    rewards: Floats

    @classmethod
    def of(cls, pair: int, reference: Ids, drawn: Sequence[Ids]) -> "Outputs":
        """Count and judge what was drawn."""
        counts, gleu = Counter({reference: 0}), Gleu(reference)
        counts.update(drawn)
        return cls(pair, tuple(counts), np.array([*counts.values()], float), np.array([gleu(ids) for ids in counts]))

    def without_reference(self) -> "Outputs":
        """What was drawn alone; if that is the reference, it stays."""
        drawn = self.counts > 0
        ids = tuple(compress(self.ids, drawn))
        return replace(self, ids=ids, counts=self.counts[drawn], rewards=self.rewards[drawn])

    @property
    def mean_reward(self) -> float:
        """Of what was drawn."""
        return float(self.counts @ self.rewards / self.counts.sum())


def draw_outputs(
    model: TrainableModel,
    batches: Sequence[Batch],
    special: SpecialIds,
    config: TrainConfig,
    dtype: torch.dtype,
    seed: Int[Tensor, ""],
) -> list[list[Outputs]]:
    """``train.samples`` outputs of every pair of each batch; pairs of weight 0 have none.

    They are written as ``translate --sampling`` would write them with the model as it is now: without dropout, without
    the padding, begin and unknown symbols, ended at their longest. What is drawn for a pair follows from the step's
    ``seed``, the pair's row and the number of the sample, not from the batch.

    Raises:
        TransduceError: Memory is too small for the outputs of one pair.
    """
    settings = SearchSettings(
        special.begin,
        special.end,
        (special.pad, special.begin, special.unknown),
        beam_size=config.samples,
        n_best=config.samples,
        # The seeds of dropout are the draws from 0 on, one for each row.
        sampling=Sampling(config.sample_temperature, seed=int(derive(seed, -1))),
    )
    places = {
        _request(batch, pair, settings, config.sample_extra_length, model.config.longest): (number, pair)
        for number, batch in enumerate(batches)
        for pair in np.flatnonzero(batch.counted).tolist()
    }
    outputs: list[list[Outputs]] = [[] for _ in batches]
    device = next(model.parameters()).device
    for request, outcome in beam_search(_freeze(model, dtype), _by_turns([*places], config.batch_tokens), device):
        if isinstance(outcome, Failure):
            raise TransduceError(
                f"the {config.samples} outputs of one pair need more memory than there is: lower train.samples or "
                f"data.max_length"
            )
        number, pair = places[request]
        reference = _reference(batches[number], pair)
        outputs[number].append(Outputs.of(pair, reference, [hypothesis.ids for hypothesis in outcome]))
    for each in outputs:
        each.sort(key=lambda drawn: drawn.pair)  # they come in the order in which they end
    return outputs


def _freeze(model: TrainableModel, dtype: torch.dtype) -> SizedModel[Any, Any]:
    """A copy that only writes: in the C++ kernels where they can."""
    own = copy.deepcopy(model).eval().requires_grad_(False)
    return make_ready(own, "bfloat16" if dtype == torch.bfloat16 else "float32")


def _request(batch: Batch, pair: int, settings: SearchSettings, extra: int, longest: int | None) -> Request:
    assert batch.rows is not None
    source, target = int(batch.source_lengths[pair]), int(batch.target_lengths[pair])
    limit = max(source, target) + extra  # end symbol counted, as in the lengths
    limit = limit if longest is None else min(limit, longest)
    return Request(batch.source[pair, :source].tolist(), limit, settings, int(batch.rows[pair]))


def _reference(batch: Batch, pair: int) -> Ids:
    return tuple(batch.labels[pair, : batch.target_lengths[pair] - 1].tolist())


def _by_turns(requests: list[Request], room: int) -> Take:
    """The requests, those with long sources first: about so many source symbols at a time, one for each sample.

    Others come in when a quarter of the room is free: each time, their sources are read together.
    """
    waiting = deque(sorted(requests, key=lambda request: -len(request.source)))

    def take(active: Sequence[Request]) -> Sequence[Request]:
        if not waiting:
            return []
        longest = max(len(request.source) for request in (waiting[0], *active))
        most = max(1, room // (longest * waiting[0].settings.beam_size))
        free = most - len(active)
        if active and free < min(-(-most // 4), len(waiting)):
            return []
        return [waiting.popleft() for _ in range(min(free, len(waiting)))]

    return take
