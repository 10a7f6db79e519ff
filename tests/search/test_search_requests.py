"""Requests with settings of their own in one running search: each gets what it gets alone, bit for bit."""

from functools import lru_cache

import pytest
import torch

from tests.search.test_search_memory import STEPPING, Small
from tests.search.test_search_queue import CONSTRAINTS, NUMBERS, SOURCES, WAYS, Watched, ready
from tests.tiny_search import END, settings
from transduce.kernels import can_advance
from transduce.models import Shortlist
from transduce.search import (
    Cancelled,
    LengthPenalty,
    NoRepeat,
    NothingFound,
    Request,
    Sampling,
    TooLittleMemory,
    Without,
    beam_search,
)


def bans(first, behind):
    return {"constraints": (Without([(symbol,) for symbol in range(first, behind)]),)}


# Each symbol's list has itself and two others, and every list the first few.
SHORTLIST = Shortlist(torch.arange(37).unsqueeze(1) * torch.tensor([1, 3, 5]) % 37, torch.arange(4, 9), 37)
MIXED = {
    **WAYS,
    "diverse with phrases": {"diversity": 0.3, "constraints": CONSTRAINTS[3:], "n_best": 2},
    "other diversity": {"diversity": 0.7},
    "marian penalty": {"penalty": LengthPenalty("marian", 0.8), "n_best": 4},
    "other samples": {"sampling": Sampling(0.8, top_k=5, seed=11), "beam_size": 4, "n_best": 4},
    "few bans": bans(5, 15),
    "more bans than are left out one by one": bans(4, 36),
    "nothing twice": {"constraints": (NoRepeat(1),), "min_length": 3},
    "other coverage": {"coverage": 0.1},
    "shortlist": {"shortlist": SHORTLIST, "n_best": 2},
    "shortlist, diverse": {"shortlist": SHORTLIST, "diversity": 0.4},
    "shortlist, constraints": {"shortlist": SHORTLIST, "constraints": CONSTRAINTS},
    "coverage, diverse": {"coverage": 0.3, "diversity": 0.4},
    "impossible": {**bans(4, 37), "min_length": 1},
}
PAIRS = [((index + 5 * copy) % len(SOURCES), name) for copy in range(2) for index, name in enumerate(MIXED)]
# Every setting by one sentence, or by two.
NUMBER = [len(MIXED), pytest.param(len(PAIRS), marks=pytest.mark.slow)]
KINDS = ["plain", "float32", "int8"]


def make(row, name):
    return Request([*SOURCES[row], END], 9 + 5 * row % 13, settings(**MIXED[name]), NUMBERS[row])


def dripping(requests, room):
    """A ``take`` that hands over as many as there is room for."""
    waiting = list(requests)

    def take(active):
        taken = waiting[: room - len(active)]
        del waiting[: len(taken)]
        return taken

    return take


@lru_cache
def alone(kind, row, name):
    ((_, outcome),) = beam_search(ready(kind), dripping([make(row, name)], 1))
    return outcome


def agree(kind, outcome, row, name):
    """With the C++ kernels bit for bit; PyTorch's operations round a row by the others of its batch."""
    expected = alone(kind, row, name)
    if kind != "plain" or not isinstance(expected, list):
        assert outcome == expected
    else:
        assert [each.ids for each in outcome] == [each.ids for each in expected]
        assert [each.score for each in outcome] == pytest.approx([each.score for each in expected], abs=1e-4)


@pytest.mark.parametrize("number", NUMBER)
@pytest.mark.parametrize("room", [4, 100])
@pytest.mark.parametrize("kind", KINDS)
def test_requests_with_different_settings_share_a_search(kind, room, number):
    requests = {make(row, name): (row, name) for row, name in PAIRS[:number]}
    found = dict(beam_search(ready(kind), dripping(requests, room)))
    assert found.keys() == requests.keys()
    for request, pair in requests.items():
        agree(kind, found[request], *pair)
    assert any(isinstance(outcome, NothingFound) for outcome in found.values())


def test_only_what_cannot_share_a_state_takes_a_step_of_its_own():
    """Two beam sizes, coverage beside one of them, and what a round of C++ is for beside what it is not."""
    model, ways = Watched(ready("plain")), ["beam 4", "other diversity", "marian penalty", "few bans", "other samples"]
    requests = [make(3, name) for name in (*ways, "greedy", "coverage", "other coverage")]
    dict(beam_search(model, dripping(requests, 100)))
    together = [2 * 4, 3 * 4] if can_advance(torch.device("cpu")) else [5 * 4]
    assert model.rows[: len(together) + 2] == [*together, 1, 2 * 4]


@pytest.mark.parametrize("number", NUMBER)
@pytest.mark.parametrize("kind", KINDS)
def test_a_cancelled_request_leaves_after_its_round_and_changes_no_other(kind, number):
    model = Watched(ready(kind))
    pairs = [(row, name) for row, name in PAIRS[:number] if MIXED[name].get("beam_size", 4) == 4]
    requests = {make(row, name): (row, name) for row, name in pairs}
    victims = [request for request, (row, _) in requests.items() if row in (2, 5)]
    waiting, rounds, seen = dripping(requests, 9), 0, []

    def take(active):
        nonlocal rounds
        rounds += 1
        if rounds == 3:
            for request in victims:
                request.cancelled = True
        seen.append(set(active))
        return waiting(active)

    found = dict(beam_search(model, take))
    assert found.keys() == requests.keys()
    assert seen[2] & set(victims)  # some were being searched for
    assert not any(active & set(victims) for active in seen[3:])
    for request, (row, name) in requests.items():
        if isinstance(found[request], Cancelled):
            assert request in victims
        else:
            agree(kind, found[request], row, name)
    assert sum(isinstance(outcome, Cancelled) for outcome in found.values()) > 1


def test_what_was_cancelled_before_it_began_is_never_read():
    model, request = Watched(ready("plain")), make(3, "beam 4")
    request.cancelled = True
    assert dict(beam_search(model, dripping([request], 1))) == {request: Cancelled()}
    assert model.rows == []


def test_outcomes_come_as_they_are_certain_and_more_is_asked_for_in_every_round():
    """The search is asked for more while nothing has left, and a short output is there before a long one ends."""
    long, short = (Request([*SOURCES[0], END], limit, settings(beam_size=1, min_length=limit - 1)) for limit in (30, 3))
    asked = []

    def take(active):
        asked.append(list(active))
        return [long] if len(asked) == 1 else [short] if len(asked) == 5 else []

    search = beam_search(ready("plain"), take)
    assert next(search)[0] is short
    assert asked == [[], *[[long]] * 4, [long, short], [long, short]]
    assert [request for request, _ in search] == [long]
    assert len(asked) == 31  # thirty rounds, and the end


def test_an_idle_search_goes_on_with_what_it_is_given_later():
    """Its caller may wait in ``take``: all outcomes are out by then."""
    first, second = make(1, "beam 4"), make(2, "greedy")
    found, waiting = [], [[second], [first]]

    def take(active):
        if active:
            return []
        assert len(found) == 2 - len(waiting)
        return waiting.pop() if waiting else []

    for request, outcome in beam_search(ready("plain"), take):
        found.append((request, outcome))
    assert [request for request, _ in found] == [first, second]


def test_requests_may_have_the_same_number():
    """Two users' first texts: what is drawn is the same, and each is answered."""
    requests = [make(3, "samples") for _ in range(2)]
    found = dict(beam_search(ready("plain"), dripping(requests, 2)))
    ids = [[each.ids for each in found[request]] for request in requests]
    assert ids[0] == ids[1] == [each.ids for each in alone("plain", 3, "samples")]


def test_after_too_little_memory_larger_groups_are_tried_again():
    """A search that runs for long would else be slow ever after. Twenty-four sources of three symbols are too many."""
    model = Small(ready("plain"), 40, STEPPING, MemoryError())
    rows = Watched(model)
    requests = [Request([4, 5, END], 3, settings(beam_size=1)) for _ in range(500)]
    search = beam_search(rows, dripping(requests, 24))
    found = dict(next(search) for _ in range(250))
    assert model.failed == 2  # at once, and after 192 sentences
    model.symbols = 24 * 3
    found |= dict(search)
    assert len(found) == 500
    assert not any(isinstance(outcome, TooLittleMemory) for outcome in found.values())
    assert (model.failed, max(rows.rows[-10:])) == (2, 24)
