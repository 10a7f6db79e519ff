"""What a search can be asked for, against all outputs that there are, or against a plain loop without a state."""

import math

import pytest
import torch

from tests.tiny_search import (
    SOURCE,
    SYMBOLS,
    best,
    following,
    log_probability,
    one,
    outputs,
    search_all,
    settings,
    shared,
    shortfall,
    tiny,
)
from transduce.config import TransduceError
from transduce.search import Constraint, LengthPenalty, NothingFound, Restriction
from transduce.search.orders import Banks, rank_diversely, rank_in_banks

WIDE, LIMIT = 41, 5  # as many rows as outputs of four symbols and less, one more for luck


def search(model, limit=LIMIT, **changes):
    changes = {"beam_size": WIDE, "n_best": 3, **changes}
    return search_all(model, SOURCE, torch.tensor([limit, limit]), settings(**changes))


def agree(found, expected):
    assert [hypothesis.ids for hypothesis in found] == [ids for ids, _ in expected[: len(found)]]
    assert [hypothesis.score for hypothesis in found] == pytest.approx([score for _, score in expected[: len(found)]])


def test_marian_penalty_by_hand():
    assert LengthPenalty("marian", 0.5)(9) == 3
    assert LengthPenalty("marian", 1.0)(7) == 7


@pytest.mark.parametrize("seed", range(2))
def test_the_marian_penalty_ranks_as_its_formula_does(seed):
    model = shared(seed)
    found = search(model, penalty=LengthPenalty("marian", 1.0))
    for row in range(2):
        agree(found[row], best(model, row, LIMIT, bool_true, lambda ids, total: total / (len(ids) + 1)))


def bool_true(ids):
    return True


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("shortest", [2, 4])
def test_no_output_is_shorter_than_asked_for(seed, shortest):
    model = shared(seed)
    found = search(model, min_length=shortest)
    for row in range(2):
        agree(found[row], best(model, row, LIMIT, lambda ids: len(ids) >= shortest))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("beta", [0.4, 3.0])
def test_coverage_is_added_to_the_scores_of_what_has_ended(seed, beta):
    model = shared(seed)
    found = search(model, coverage=beta)
    changed = 0
    for row in range(2):

        def score(ids, total, row=row):
            return total / ((6 + len(ids)) / 6) ** 0.6 + beta * shortfall(model, row, ids)

        agree(found[row], best(model, row, LIMIT, bool_true, score))
        changed += found[row][0].ids != best(model, row, LIMIT, bool_true)[0][0]
        assert found[row][0].log_probability == pytest.approx(log_probability(model, row, found[row][0].ids))
    assert changed or beta < 1 or seed


def plain_loop(model, row, limit, beam, *, gamma=0.0, stop_when_full=False):
    """Beam search one hypothesis at a time; diverse as in Li, Monroe and Jurafsky (2016), or stopping early."""
    open_, finished = [((), 0.0)], []
    for length in range(1, limit + 1):
        candidates = []
        for ids, total in open_:
            scores = following(model, row, ids)
            symbols = (2,) if length == limit else (2, *SYMBOLS)
            siblings = sorted(symbols, key=lambda symbol, scores=scores: -scores[symbol])
            candidates += [
                (ids, symbol, total + scores[symbol], total + scores[symbol] - gamma * k)
                for k, symbol in enumerate(siblings)
            ]
        candidates.sort(key=lambda candidate: -candidate[3])
        ended = [(ids, total / ((5 + length) / 6) ** 0.6) for ids, symbol, total, _ in candidates[:beam] if symbol == 2]
        finished += ended
        if stop_when_full and len(finished) >= beam:
            break
        open_ = [((*ids, symbol), total) for ids, symbol, total, _ in candidates if symbol != 2][:beam]
    return sorted(finished, key=lambda hypothesis: -hypothesis[1])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("gamma", [0.3, 2.0])
def test_diverse_search_ranks_siblings_as_a_plain_loop_does(seed, gamma):
    model = shared(seed)
    found = search(model, limit=7, beam_size=3, n_best=1, diversity=gamma)
    for row in range(2):
        agree(found[row], plain_loop(model, row, 7, 3, gamma=gamma))


def test_diverse_outputs_begin_differently():
    first = [
        [{hypothesis.ids[:1] for hypothesis in each} for each in search(shared(seed), 7, beam_size=3, diversity=gamma)]
        for seed in range(6)
        for gamma in (0.0, 5.0)
    ]
    plain, diverse = (sum(len(each) for rows in first[start::2] for each in rows) for start in (0, 1))
    assert diverse > plain


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("beam", [2, 3])
def test_a_full_beam_of_ended_hypotheses_is_the_end(seed, beam):
    model = shared(seed)
    found = search(model, limit=9, beam_size=beam, n_best=beam, stopping="full_beam")
    for row in range(2):
        expected = plain_loop(model, row, 9, beam, stop_when_full=True)[:beam]
        agree(found[row], expected)
        assert len(found[row]) == len(expected)


class Never:
    """A constraint that nothing can meet from the second symbol on."""

    def symbols(self, number):
        return ()

    def start(self, number):
        return self

    def restrict(self, written, room):
        return Restriction((), only=True) if written else Restriction((2,))

    def propose(self):
        return None

    def advance(self, symbol):
        return self


@pytest.mark.parametrize("beam", [1, 3])
def test_what_cannot_be_met_is_that_sentences_failure(beam):
    assert isinstance(Never(), Constraint)
    never = settings(beam_size=beam, constraints=(Never(),))
    assert search_all(shared(0), SOURCE, torch.tensor([5, 3]), never, [17, 23]) == [NothingFound(5), NothingFound(3)]
    shortest = settings(beam_size=beam, min_length=4)
    good, failed = search_all(shared(0), SOURCE, torch.tensor([5, 4]), shortest, [17, 23])
    assert failed == NothingFound(4)
    assert len(good[0].ids) == 4


@pytest.mark.parametrize("changes", [{}, {"beam_size": 1}, {"diversity": 0.5}, {"coverage": 0.3}])
@pytest.mark.parametrize("damage", [math.nan, math.inf])
def test_scores_that_are_no_numbers_are_named(changes, damage):
    model = tiny(0)
    model.embedding.weight.data[5, 3] = damage
    with pytest.raises(TransduceError, match="no finite scores"):
        search_all(model, SOURCE, torch.tensor([9, 9]), settings(**changes))


def test_a_beam_wider_than_the_vocabulary_finds_all_there_is():
    model = shared(4)
    found = search_all(model, one(1), torch.tensor([4]), settings(beam_size=59, n_best=59))[0]
    assert sorted(hypothesis.ids for hypothesis in found) == sorted(outputs(4))  # 1 + 3 + 9 + 27


@pytest.mark.parametrize("gamma", [0.0, 0.4, 3.0])
def test_within_a_bank_hypotheses_are_ranked_diversely(gamma):
    """Where nothing is proposed, all are of one bank."""
    torch.manual_seed(7)
    total = torch.log_softmax(torch.randn(2, 3, 11), dim=2) - torch.rand(2, 3, 1)
    banks = Banks.of([[]] * 6, 2, total.device)
    found, expected = rank_in_banks(total, banks, gamma), rank_diversely(total, gamma)
    for name in ("log_probability", "beam", "symbol"):
        assert torch.equal(getattr(found, name), getattr(expected, name))
