"""Beam search over the contract (section 6.1); with a beam of one it is greedy search.

Each round reads one symbol in every open hypothesis and ranks all continuations of a sentence together. A hypothesis
that ends among the best ``beam`` continuations is finished; the best ``beam`` that do not end stay open. A sentence is
done when no open hypothesis can still beat its finished ones, and then leaves the batch.
"""

import math
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transduce.config import TransduceError
from transduce.models import Model, State, Tokens
from transduce.search.settings import Hypothesis, SearchSettings

M = TypeVar("M")
S = TypeVar("S", bound=State)


@dataclass(frozen=True)
class _Open(Generic[S]):
    """The open hypotheses of the sentences still in the batch."""

    state: S
    written: Int[Tensor, "sentences beam time"]
    log_probability: Float[Tensor, "sentences beam"]
    sentence: Int[Tensor, " sentences"]
    limit: Int[Tensor, " sentences"]


@dataclass(frozen=True)
class _Ranked:
    """The best continuations of each sentence, best first."""

    log_probability: Float[Tensor, "sentences candidates"]
    beam: Int[Tensor, "sentences candidates"]
    symbol: Int[Tensor, "sentences candidates"]


@torch.inference_mode()
def beam_search(
    model: Model[M, S], source: Tokens, limits: Int[Tensor, " batch"], settings: SearchSettings
) -> list[list[Hypothesis]]:
    """The ``n_best`` best outputs of each source, best first.

    ``limits`` are the longest outputs allowed, end symbol included: at its limit a hypothesis must end.
    """
    finished: list[list[Hypothesis]] = [[] for _ in range(len(limits))]
    open_ = _begin(model, source, limits, settings)
    while len(open_.sentence):
        step = model.step(open_.state, _last_symbols(open_, settings))
        ranked = _rank(step.logits, open_, settings)
        _collect(ranked, open_, finished, settings)
        open_ = _leave(_continue(replace(open_, state=step.state), ranked, settings), finished, settings)
    if not all(finished):
        raise TransduceError("the model gives no finite scores: its weights are damaged or its training diverged")
    return [best[: settings.n_best] for best in finished]


def _begin(model: Model[M, S], source: Tokens, limits: Int[Tensor, " batch"], settings: SearchSettings) -> _Open[S]:
    sentences, device = len(limits), source.ids.device
    log_probability = torch.full((sentences, settings.beam_size), -math.inf, device=device)
    log_probability[:, 0] = 0  # at first all rows of a sentence are alike: only one of them counts
    return _Open(
        state=model.start(model.encode(source), settings.beam_size),
        written=torch.empty(sentences, settings.beam_size, 0, dtype=torch.long, device=device),
        log_probability=log_probability,
        sentence=torch.arange(sentences, device=device),
        limit=limits.clamp(min=1),
    )


def _last_symbols(open_: _Open[S], settings: SearchSettings) -> Int[Tensor, " rows"]:
    sentences, beam, time = open_.written.shape
    if time == 0:
        return torch.full((sentences * beam,), settings.begin_id, device=open_.written.device)
    return open_.written[:, :, -1].flatten()


def _rank(logits: Float[Tensor, "rows vocabulary"], open_: _Open[S], settings: SearchSettings) -> _Ranked:
    sentences, beam, time = open_.written.shape
    log_probability = torch.log_softmax(logits.float(), dim=-1).view(sentences, beam, -1)
    vocabulary = log_probability.shape[-1]
    log_probability[:, :, list(settings.forbidden)] = -math.inf
    must_end = open_.limit <= time + 1
    if must_end.any():
        others = torch.arange(vocabulary, device=logits.device) != settings.end_id
        log_probability.masked_fill_(must_end[:, None, None] & others, -math.inf)
    total = (log_probability + open_.log_probability.unsqueeze(-1)).flatten(1)
    # Twice the beam: even if every open hypothesis ends at its best, a full beam of others is left.
    best, index = total.topk(min(2 * beam, total.shape[1]), dim=1)
    return _Ranked(best, index // vocabulary, index % vocabulary)


def _collect(ranked: _Ranked, open_: _Open[S], finished: list[list[Hypothesis]], settings: SearchSettings) -> None:
    """Move what ends among the best ``beam`` continuations to the finished hypotheses of its sentence."""
    beam, length = open_.written.shape[1], open_.written.shape[2] + 1
    ends = (ranked.symbol[:, :beam] == settings.end_id) & ranked.log_probability[:, :beam].isfinite()
    for row, rank in ends.nonzero().tolist():
        log_probability = float(ranked.log_probability[row, rank])
        ids = tuple(open_.written[row, ranked.beam[row, rank]].tolist())
        hypotheses = finished[int(open_.sentence[row])]
        hypotheses.append(Hypothesis(ids, log_probability, log_probability / settings.penalty(length)))
        hypotheses.sort(key=lambda hypothesis: -hypothesis.score)
        del hypotheses[max(settings.n_best, settings.beam_size) :]


def _continue(open_: _Open[S], ranked: _Ranked, settings: SearchSettings) -> _Open[S]:
    """Keep the best ``beam`` continuations that do not end."""
    sentences, beam, _ = open_.written.shape
    going_on = ranked.log_probability.masked_fill(ranked.symbol == settings.end_id, -math.inf)
    log_probability, chosen = going_on.topk(beam, dim=1)
    parent, symbol = ranked.beam.gather(1, chosen), ranked.symbol.gather(1, chosen)
    rows = (torch.arange(sentences, device=parent.device).unsqueeze(1) * beam + parent).flatten()
    written = open_.written.flatten(0, 1)[rows].view(sentences, beam, -1)
    return replace(
        open_,
        state=open_.state.reorder(rows),
        written=torch.cat([written, symbol.unsqueeze(-1)], dim=-1),
        log_probability=log_probability,
    )


def _leave(open_: _Open[S], finished: list[list[Hypothesis]], settings: SearchSettings) -> _Open[S]:
    """Let the sentences go whose outcome is certain."""
    done = torch.tensor(
        [
            _is_certain(finished[sentence], best, open_.written.shape[2], limit, settings)
            for sentence, best, limit in zip(
                open_.sentence.tolist(), open_.log_probability[:, 0].tolist(), open_.limit.tolist(), strict=True
            )
        ],
        dtype=torch.bool,
        device=open_.sentence.device,
    )
    if not done.any():
        return open_
    return _Open(
        state=open_.state.release(done),
        written=open_.written[~done],
        log_probability=open_.log_probability[~done],
        sentence=open_.sentence[~done],
        limit=open_.limit[~done],
    )


def _is_certain(
    finished: list[Hypothesis], best_open: float, written: int, limit: int, settings: SearchSettings
) -> bool:
    """Whether the ``n_best`` finished hypotheses are final.

    A longer output never gains probability, so the best that an open hypothesis can still reach is its log-probability
    divided by the largest penalty ahead of it: the nearest end's or the limit's, as the penalty is monotonic in length.
    """
    if best_open == -math.inf or written >= limit:
        return True
    if settings.beam_size == 1:
        return bool(finished)  # greedy search takes the first end it meets
    if len(finished) < settings.n_best:
        return False
    reachable = best_open / max(settings.penalty(written + 1), settings.penalty(limit))
    return finished[settings.n_best - 1].score >= reachable
