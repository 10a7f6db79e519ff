"""Sampling: how often what is drawn, against the probabilities of all outputs; and that the batch has no say in it."""

import math
from collections import Counter

import numpy as np
import pytest
import torch

from tests.tiny_search import END, SOURCE, SYMBOLS, following, log_probability, one, outputs, search_all, settings, tiny
from transduce.models import Tokens
from transduce.search import Sampling
from transduce.search.sampling import draw, uniform

LIMIT, COPIES, SAMPLES = 4, 97, 31


def tempered(model, row, temperature):
    """The probability of every output where each symbol comes from the distribution at a temperature."""
    every = outputs(LIMIT)
    scores = {ids: following(model, row, ids) for ids in every if len(ids) + 1 < LIMIT}

    def share(ids, symbol):
        if ids not in scores:
            return 1.0  # at the limit there is only the end
        weights = {each: math.exp(scores[ids][each] / temperature) for each in (END, *SYMBOLS)}
        return weights[symbol] / sum(weights.values())

    return {ids: math.prod(share(ids[:n], symbol) for n, symbol in enumerate((*ids, END))) for ids in every}


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_outputs_are_drawn_as_often_as_they_are_probable(temperature):
    model = tiny(5)
    source = Tokens(one(0).ids.expand(COPIES, -1), one(0).lengths.expand(COPIES))
    sampling = Sampling(temperature, seed=3)
    found = search_all(
        model,
        source,
        torch.full((COPIES,), LIMIT),
        settings(beam_size=SAMPLES, n_best=SAMPLES, sampling=sampling),
    )
    drawn = Counter(hypothesis.ids for each in found for hypothesis in each)
    total = COPIES * SAMPLES
    assert drawn.total() == total
    for ids, expected in tempered(model, 0, temperature).items():
        assert drawn[ids] / total == pytest.approx(expected, abs=4 * math.sqrt(expected / total) + 1e-3)
    for hypothesis in found[0]:
        assert hypothesis.log_probability == pytest.approx(log_probability(model, 0, hypothesis.ids), abs=1e-4)


def test_a_sample_follows_from_seed_number_and_position_alone():
    model, limits = tiny(6), torch.tensor([9, 9])
    changes = settings(beam_size=3, n_best=3, sampling=Sampling(seed=7))
    together = search_all(model, SOURCE, limits, changes, [101, 103])
    backwards = Tokens(SOURCE.ids.flip(0), SOURCE.lengths.flip(0))
    swapped = search_all(model, backwards, limits, changes, [103, 101])
    for row, number in ((0, 101), (1, 103)):
        alone = search_all(model, one(row), limits[:1], changes, [number])[0]
        ids = [each.ids for each in together[row]]
        assert ids == [each.ids for each in alone] == [each.ids for each in swapped[1 - row]]
    assert search_all(model, SOURCE, limits, changes, [102, 104]) != together
    other = settings(beam_size=3, n_best=3, sampling=Sampling(seed=8))
    assert search_all(model, SOURCE, limits, other, [101, 103]) != together


def test_chances_are_uniform_and_differ():
    chances = np.concatenate([uniform(1, range(53), 7, [position] * 53) for position in range(47)])
    assert len(set(chances.tolist())) == 53 * 7 * 47
    counts = np.histogram(chances, bins=10, range=(0, 1))[0]
    assert np.abs(counts / len(chances) - 0.1).max() < 0.01
    assert uniform(1, [5, 6], 2, [3, 4]).tolist() == [*uniform(1, [5], 2, [3]), *uniform(1, [6], 2, [4])]
    assert uniform(1, [5], 3, [3])[:2].tolist() == uniform(1, [5], 2, [3]).tolist()


SCORES = torch.tensor([[0.5, 0.125, 0.25, 0.125]]).log()


def share(sampling, points=1000):
    """How often each symbol comes if the chance runs evenly from 0 to 1."""
    chances = (torch.arange(points, dtype=torch.float64) + 0.5) / points
    drawn = draw(SCORES.expand(points, -1), chances, sampling).tolist()
    return [drawn.count(symbol) / points for symbol in range(4)]


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(), [0.5, 0.125, 0.25, 0.125]),
        (Sampling(top_k=1), [1, 0, 0, 0]),
        (Sampling(top_k=2), [2 / 3, 0, 1 / 3, 0]),
        (Sampling(top_k=9), [0.5, 0.125, 0.25, 0.125]),
        (Sampling(top_p=0.5), [1, 0, 0, 0]),
        (Sampling(top_p=0.6), [2 / 3, 0, 1 / 3, 0]),
        (Sampling(top_p=1.0), [0.5, 0.125, 0.25, 0.125]),
        (Sampling(temperature=0.5), [16 / 22, 1 / 22, 4 / 22, 1 / 22]),  # squares
        (Sampling(temperature=0.5, top_k=2, top_p=0.9), [16 / 20, 0, 4 / 20, 0]),
        (Sampling(temperature=0.5, top_k=2, top_p=0.7), [1, 0, 0, 0]),
    ],
)
def test_what_may_be_drawn(sampling, expected):
    assert share(sampling) == pytest.approx(expected, abs=0.002)
