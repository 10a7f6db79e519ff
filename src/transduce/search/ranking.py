"""Which continuations of the sentences' hypotheses are the best, each as its settings and constraints ask."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Literal, NamedTuple, TypeVar, assert_never, final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from transduce.kernels import rank_continuations
from transduce.models import State, Step
from transduce.search.constraint import Proposals, Restriction
from transduce.search.hypotheses import Sentence
from transduce.search.orders import (
    Banks,
    Ranked,
    Scores,
    draw_samples,
    rank_by_probability,
    rank_diversely,
    rank_in_banks,
)
from transduce.search.recording import Candidate
from transduce.search.restricting import bans, bounds, choices, mask
from transduce.search.settings import Sampling, SearchSettings

S = TypeVar("S", bound=State)

_By = Literal["fast", "masked", "banks"] | float | Sampling


def to_tensor(values: Sequence[object], dtype: type, device: torch.device) -> Tensor:
    """Lists of numbers, by way of NumPy: it reads them in a quarter of the time that ``torch.tensor`` takes."""
    return torch.from_numpy(np.array(values, dtype)).to(device)


@final
class _Way(NamedTuple):  # one is made for every sentence in every round: a dataclass takes longer
    """How a sentence's continuations are ranked; sentences of one way are ranked together.

    ``by``: all at once in the order of probability (``fast``), the same after constraints have been applied to all
    log-probabilities (``masked``), in ``banks``, diversely by so much, or sampled.
    """

    by: _By
    forbidden: tuple[int, ...]
    end_id: int
    diversity: float  # in banks, too

    @classmethod
    def of(cls, settings: SearchSettings) -> "_Way":
        """That of sentences without constraints."""
        diversity = float(settings.diversity)
        return cls(settings.sampling or diversity or "fast", settings.forbidden, settings.end_id, diversity)


@final
class _Next(NamedTuple):
    """A sentence and what its constraints say of its next symbols, for each hypothesis; empty where they say nothing.

    ``banned`` is what they ban, where the ``fast`` way leaves it out; ``only`` is the one restriction that bounds a
    hypothesis, where each has one or none at all.
    """

    sentence: Sentence
    way: _Way
    restrictions: Sequence[Sequence[Restriction]] = ()
    proposals: Sequence[Sequence[Proposals]] = ()
    banned: Sequence[Collection[int]] = ()
    only: Sequence[Restriction | None] = ()

    @classmethod
    def of(cls, sentence: Sentence, way: _Way) -> "_Next":
        """What the sentence's constraints say now; ``way`` is its settings'."""
        if not sentence.constraints[0]:
            return cls(sentence, way)
        restrictions = sentence.restrictions()
        proposals = [] if isinstance(way.by, Sampling) else sentence.proposals()
        if proposals:
            return cls(sentence, way._replace(by="banks"), restrictions, proposals)
        if way.by != "fast" or not any(restrictions):
            return cls(sentence, way, restrictions)
        if (only := bounds(restrictions)) is not None:
            return cls(sentence, way, (), (), (), only)
        if (banned := bans(restrictions)) is not None:
            return cls(sentence, way, banned=banned)
        return cls(sentence, way._replace(by="masked"), restrictions)

    @property
    def left_out(self) -> int:
        """How many of the best continuations may be none that the sentence goes on with, beside those that end it."""
        early = 0 if self.sentence.may_end else len(self.sentence.log_probability)
        return early + sum(map(len, self.banned))

    def allowed(self, candidates: list[Candidate]) -> list[Candidate]:
        """Those that are not banned."""
        if not self.banned:
            return candidates
        return [each for each in candidates if each[2] not in self.banned[each[1]]]


def rank(step: Step[S], sentences: Sequence[Sentence]) -> Iterator[list[Candidate]]:
    """The best continuations of each sentence, as its own settings rank them. May use the step's logits up."""
    nexts = [*_look_ahead(sentences)]
    if all(each.way is nexts[0].way for each in nexts):  # much sooner known than by comparing them
        return _rank_group(step, nexts, nexts[0].way)
    groups: dict[_Way, list[int]] = {}
    for index, each in enumerate(nexts):
        groups.setdefault(each.way, []).append(index)
    if len(groups) == 1:
        return _rank_group(step, nexts, nexts[0].way)
    ranked = {
        way: _rank_group(_select(step, indices, len(nexts)), [nexts[index] for index in indices], way)
        for way, indices in groups.items()
    }
    return (next(ranked[each.way]) for each in nexts)


def _look_ahead(sentences: Sequence[Sentence]) -> Iterator[_Next]:
    """What each sentence's settings and constraints say now; settings that several share are looked at once."""
    ways: dict[int, _Way] = {}
    known: dict[_Way, _Way] = {}
    for sentence in sentences:
        settings = sentence.request.settings
        if (way := ways.get(id(settings))) is None:
            way = _Way.of(settings)
            way = ways[id(settings)] = known.setdefault(way, way)
        yield _Next.of(sentence, way)


def _select(step: Step[S], indices: Sequence[int], sentences: int) -> Step[S]:
    """The scores of some of the sentences; ranking needs no attention."""
    kept = torch.tensor(indices, device=step.logits.device)
    columns = None if step.columns is None else replace(step.columns, allowed=step.columns.allowed.keep(kept))
    logits = step.logits.view(sentences, -1, step.logits.shape[1])[kept].flatten(0, 1)
    return replace(step, logits=logits, attention={}, columns=columns)


def _rank_group(step: Step[S], group: Sequence[_Next], way: _Way) -> Iterator[list[Candidate]]:
    """The candidates of sentences that are ranked in the same way."""
    sentences = [each.sentence for each in group]
    so_far = to_tensor([sentence.log_probability for sentence in sentences], np.float32, step.logits.device)
    if way.by == "fast":
        candidates = _rank_fast(step, so_far, group, way).candidates()
        if not any(each.banned for each in group):
            return candidates
        return (each.allowed(several) for each, several in zip(group, candidates, strict=True))
    scores = _scores(step.over_vocabulary(), group, way)
    if isinstance(way.by, Sampling):
        numbers, lengths = [each.request.number for each in sentences], [each.length for each in sentences]
        return draw_samples(scores, so_far, way.by, numbers, lengths).candidates()
    total = scores + so_far.unsqueeze(-1)
    match way.by:
        case "masked":
            return rank_by_probability(total).candidates()
        case "banks":
            proposals = [row for each in group for row in each.proposals or [[]] * total.shape[1]]
            return rank_in_banks(total, Banks.of(proposals, way.end_id, total.device), way.diversity).candidates()
        case float(gamma):
            return rank_diversely(total, gamma).candidates()
        case _:
            assert_never(way.by)


def _rank_fast(step: Step[S], so_far: Float[Tensor, "sentences beam"], group: Sequence[_Next], way: _Way) -> Ranked:
    """The most probable continuations, and as many more as any sentence has to leave out."""
    beam, vocabulary = so_far.shape[1], step.vocabulary
    must_end = to_tensor([each.sentence.must_end for each in group], np.bool_, step.logits.device)
    left_out = max((each.left_out for each in group if each.banned or not each.sentence.may_end), default=0)
    count = min(2 * beam + left_out, beam * vocabulary)
    limits = way.forbidden, must_end, way.end_id, count
    few = None
    if any(each.only for each in group):
        few = choices([*chain.from_iterable(each.only or [None] * beam for each in group)], vocabulary)
    values, index = rank_continuations(step.logits, so_far, *limits, step.columns, few)
    return Ranked(values, index // vocabulary, index % vocabulary)


def _scores(logits: Float[Tensor, "rows vocabulary"], group: Sequence[_Next], way: _Way) -> Scores:
    """The log-probability of every symbol as the next one, minus infinity where it may not come."""
    scores = torch.log_softmax(logits.float(), dim=-1)
    scores[:, list(way.forbidden)] = -torch.inf
    by_sentence = scores.view(len(group), -1, scores.shape[1])
    for index, each in enumerate(group):
        if not each.sentence.may_end:
            by_sentence[index, :, way.end_id] = -torch.inf
        if each.sentence.must_end:
            end = by_sentence[index, :, way.end_id].clone()
            by_sentence[index] = -torch.inf
            by_sentence[index, :, way.end_id] = end
    beam = by_sentence.shape[1]
    mask(scores, list(chain.from_iterable(each.restrictions or [[]] * beam for each in group)))
    return by_sentence
