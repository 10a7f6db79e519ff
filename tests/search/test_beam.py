"""Beam search against an exhaustive search, and against a plain one that shares no code with it."""

import itertools
import math

import pytest
import torch

from tests.tiny_search import (
    BEGIN,
    END,
    PAD,
    SIZES,
    SOURCE,
    UNKNOWN,
    following,
    log_probability,
    one,
    search_all,
    settings,
    shared,
    tiny,
    totals,
)
from transduce.config import TransduceError, preset
from transduce.models import NO_ATTENTION, Tokens, build
from transduce.search import Hypothesis, LengthPenalty

VOCABULARY = 7  # the four special symbols and three others


def exhaustive(model, row, limit, penalty):
    """Every output of at most ``limit`` symbols, end symbol counted, best first."""
    outputs = [ids for length in range(limit) for ids in itertools.product((4, 5, 6), repeat=length)]
    scored = zip(outputs, totals(model, row, outputs), strict=True)
    found = [Hypothesis(ids, total, total / penalty(len(ids) + 1)) for ids, total in scored]
    return sorted(found, key=lambda hypothesis: -hypothesis.score)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0, -0.5])
def test_a_wide_beam_finds_what_an_exhaustive_search_finds(seed, alpha):
    model, limit, penalty = shared(seed), 4, LengthPenalty("gnmt", alpha)
    limits = torch.tensor([limit, limit])
    found = search_all(model, SOURCE, limits, settings(beam_size=30, n_best=3, penalty=penalty))
    for row in range(2):
        expected = exhaustive(model, row, limit, penalty)[:3]
        assert [hypothesis.ids for hypothesis in found[row]] == [hypothesis.ids for hypothesis in expected]
        for mine, other in zip(found[row], expected, strict=True):
            assert mine.score == pytest.approx(other.score, abs=1e-5)
            assert mine.log_probability == pytest.approx(other.log_probability, abs=1e-5)


def plain_beam(model, row, limit, beam, penalty):
    """One sentence, one hypothesis at a time, no state, and no early end."""
    open_, finished = [((), 0.0)], []
    for length in range(1, limit + 1):
        candidates = []
        for ids, total in open_:
            scores = following(model, row, ids)
            symbols = (END,) if length == limit else (END, 4, 5, 6)
            candidates += [(ids, symbol, total + scores[symbol]) for symbol in symbols]
        candidates.sort(key=lambda candidate: -candidate[2])
        finished += [(ids, total / penalty(length)) for ids, symbol, total in candidates[:beam] if symbol == END]
        open_ = [((*ids, symbol), total) for ids, symbol, total in candidates if symbol != END][:beam]
    return max(finished, key=lambda hypothesis: hypothesis[1])


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 8))])
@pytest.mark.parametrize("beam", [2, 3])
def test_a_narrow_beam_prunes_as_a_plain_one_does(seed, beam):
    model, penalty = shared(seed), LengthPenalty("gnmt", 0.6)
    found = search_all(model, SOURCE, torch.tensor([9, 9]), settings(beam_size=beam, penalty=penalty))
    for row in range(2):
        ids, score = plain_beam(model, row, 9, beam, penalty)
        assert found[row][0].ids == ids
        assert found[row][0].score == pytest.approx(score, abs=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_a_beam_of_one_is_greedy(seed):
    model = shared(seed)
    found = search_all(model, SOURCE, torch.tensor([11, 11]), settings(beam_size=1))
    for row in range(2):
        ids = []
        while len(ids) < 10:
            target = Tokens(torch.tensor([[BEGIN, *ids]]), torch.tensor([len(ids) + 1]))
            logits = model.project(model.decode(model.encode(one(row)), target).hidden)[-1]
            logits[[PAD, BEGIN, UNKNOWN]] = -math.inf
            if (symbol := int(logits.argmax())) == END:
                break
            ids.append(symbol)
        assert found[row][0].ids == tuple(ids)
        assert found[row][0].log_probability == pytest.approx(log_probability(model, row, ids), abs=1e-4)


def test_limits_hold_for_each_sentence_and_the_end_symbol_counts():
    model = build(preset("base", {**SIZES, "output_bias": True})).eval()
    model.output_bias.data[END] = -1e3  # only a limit ends an output
    for beam in (1, 3):
        found = search_all(model, SOURCE, torch.tensor([5, 2]), settings(beam_size=beam))
        assert len(found[0][0].ids) == 4  # of five, the last is the end symbol
        assert len(found[1][0].ids) == 1


def test_sentences_do_not_disturb_each_other():
    model = shared(3)
    together = search_all(model, SOURCE, torch.tensor([9, 3]), settings(beam_size=3))
    for row, limit in ((0, 9), (1, 3)):
        alone = search_all(model, one(row), torch.tensor([limit]), settings(beam_size=3))[0]
        assert together[row][0].ids == alone[0].ids
        assert together[row][0].score == pytest.approx(alone[0].score, abs=1e-5)


def test_special_symbols_are_never_written():
    model = tiny(2)
    model.embedding.weight.data[[PAD, BEGIN, UNKNOWN]] *= 50
    for beam in (1, 4):
        for hypotheses in search_all(model, SOURCE, torch.tensor([9, 9]), settings(beam_size=beam, n_best=beam)):
            for hypothesis in hypotheses:
                assert set(hypothesis.ids) <= {4, 5, 6}


def test_length_penalty_by_hand():
    assert LengthPenalty("gnmt", 0.6)(7) == pytest.approx(2**0.6)
    assert LengthPenalty("gnmt", 0.6)(1) == 1
    assert LengthPenalty("none", 0.6)(7) == 1


class Counting:
    """A model that counts its steps."""

    def __init__(self, model):
        self.model, self.steps = model, 0
        for verb in ("encode", "decode", "project", "forward", "start"):
            setattr(self, verb, getattr(model, verb))

    def step(self, state, tokens, *, attention=NO_ATTENTION):
        self.steps += 1
        return self.model.step(state, tokens, attention=attention)


@pytest.mark.parametrize(("kind", "early"), [("none", 3), ("gnmt", 2)])  # a reward for length keeps hope alive
def test_it_stops_when_no_open_hypothesis_can_still_win(kind, early):
    stopped = 0
    for seed in range(6):
        model, limit = Counting(shared(seed)), 60
        penalty = LengthPenalty(kind, 0.6)
        found = search_all(model, one(0), torch.tensor([limit]), settings(beam_size=3, penalty=penalty))
        assert found[0][0].ids == plain_beam(model.model, 0, limit, 3, penalty)[0]
        stopped += model.steps < limit
    assert stopped >= early


def test_weights_that_are_no_numbers_are_named():
    model = tiny(0)
    model.embedding.weight.data.fill_(math.nan)
    with pytest.raises(TransduceError, match="no finite scores"):
        search_all(model, SOURCE, torch.tensor([9, 9]), settings())
