"""Constraints against all outputs that there are, filtered."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import settings as times
from hypothesis import strategies as st

from tests.tiny_search import END, SOURCE, best, contains, outputs, search_all, settings, shared
from transduce.search import Containing, NoRepeat, NothingFound, Prefixes, Without
from transduce.search.phrases import Automaton

WIDE, LIMIT = 130, 5
NUMBERS = [11, 13]


def search(model, *constraints, limit=LIMIT, **changes):
    changes = {"beam_size": WIDE, "n_best": 3, **changes}
    limits = torch.tensor([limit, limit])
    return search_all(model, SOURCE, limits, settings(**changes, constraints=constraints), NUMBERS)


def agree(found, expected):
    assert [hypothesis.ids for hypothesis in found] == [ids for ids, _ in expected[:3]]
    assert [hypothesis.score for hypothesis in found] == pytest.approx([score for _, score in expected[:3]])


@pytest.mark.parametrize("seed", range(2))
def test_outputs_begin_with_their_own_prefix(seed):
    model, prefixes = shared(seed), {11: (6, 6), 13: (5,)}
    found = search(model, Prefixes(prefixes))
    for row, number in enumerate(NUMBERS):
        prefix = prefixes[number]
        agree(found[row], best(model, row, LIMIT, lambda ids, prefix=prefix: ids[: len(prefix)] == prefix))


def test_a_prefix_is_one_sentences_only_and_leaves_the_other_alone():
    model = shared(1)
    found, free = search(model, Prefixes({13: (5, 4, 4)})), search(model)
    assert found[1][0].ids[:3] == (5, 4, 4)
    assert [each.ids for each in found[0]] == [each.ids for each in free[0]]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_n_symbols_stand_there_twice(seed, n):
    model = shared(seed)
    found = search(model, NoRepeat(n))

    def allowed(ids):
        grams = [ids[start : start + n] for start in range(len(ids) - n + 1)]
        return len(set(grams)) == len(grams)

    for row in range(2):
        agree(found[row], best(model, row, LIMIT, allowed))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("phrases", [[(5,)], [(4, 4), (6, 5)], [(4,), (5, 6), (6, 6, 6)]])
def test_banned_phrases_stand_nowhere(seed, phrases):
    model = shared(seed)
    found = search(model, Without(phrases))
    for row in range(2):
        agree(found[row], best(model, row, LIMIT, lambda ids: not any(contains(ids, phrase) for phrase in phrases)))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("phrases", [[(5,)], [(4, 4), (6,)], [(4, 5, 6)], [(4,), (5,), (6,)], [(5, 5), (5, 5)]])
def test_wanted_phrases_stand_somewhere(seed, phrases):
    model = shared(seed)
    found = search(model, Containing({11: phrases}, END))
    agree(found[0], best(model, 0, LIMIT, lambda ids: all(contains(ids, phrase) for phrase in phrases)))
    agree(found[1], best(model, 1, LIMIT, lambda ids: True))


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 4))])
@pytest.mark.parametrize("beam", [1, 2, 4])
@pytest.mark.parametrize("limit", [6, 9])  # five symbols are just enough
def test_wanted_phrases_stand_there_whatever_the_beam(seed, beam, limit):
    phrases = [(4, 6), (5, 5), (6,)]
    found = search(
        shared(seed), Containing(dict.fromkeys(NUMBERS, phrases), END), limit=limit, beam_size=beam, n_best=1
    )
    for hypotheses in found:
        assert all(contains(hypotheses[0].ids, phrase) for phrase in phrases)


@pytest.mark.parametrize("phrases", [[(4,), (5, 4, 6)], [(5, 4), (4, 6), (5, 4, 6)], [(5, 4, 6), (6,), (6,), (4, 6)]])
def test_phrases_in_another_take_no_room_of_their_own(phrases):
    found = search(shared(0), Containing(dict.fromkeys(NUMBERS, phrases), END), limit=4, beam_size=2, n_best=1)
    assert [hypotheses[0].ids for hypotheses in found] == [(5, 4, 6)] * len(found)


def test_all_at_once():
    model = shared(2)
    constraints = Prefixes({11: (6,)}), NoRepeat(2), Without([(4, 5)]), Containing({11: [(5, 4)]}, END)

    def allowed(ids):
        pairs = list(itertools.pairwise(ids))
        return ids[:1] == (6,) and len(set(pairs)) == len(pairs) and (4, 5) not in pairs and (5, 4) in pairs

    agree(search(model, *constraints)[0], best(model, 0, LIMIT, allowed))


@pytest.mark.parametrize(
    "constraint",
    [Prefixes({13: (4, 5, 6, 4, 5)}), Containing({13: [(4, 4, 4), (5, 5)]}, END), Without([(4,), (5,), (6,)])],
)
@pytest.mark.parametrize("beam", [1, 3])
def test_what_does_not_fit_in_fails_alone(constraint, beam):
    shortest = {"min_length": 1} if isinstance(constraint, Without) else {}
    found = search(shared(0), constraint, beam_size=beam, n_best=1, **shortest)
    assert found[1] == NothingFound(LIMIT)
    # The other sentence goes on, but for a ban that is for both.
    assert isinstance(found[0], NothingFound if isinstance(constraint, Without) else list)


@times(max_examples=60)
@given(
    st.lists(st.lists(st.sampled_from((4, 5, 6)), min_size=1, max_size=3), max_size=3),
    st.lists(st.sampled_from((4, 5, 6, 7)), max_size=9),
)
def test_the_automaton_knows_what_it_has_read(phrases, ids):
    automaton = Automaton(phrases)
    place = (0, 0)
    for index, symbol in enumerate(ids):
        view = automaton.view(place)
        place = automaton.read(place, symbol)
        lacking = automaton.view(place).lacking
        assert lacking == view.after.get(symbol, view.otherwise)
        read = tuple(ids[: index + 1])
        assert (lacking == 0) == all(contains(read, phrase) for phrase in phrases)
        # As many symbols are enough, whatever has been read.
        assert lacking == 0 or any(lacks < lacking for lacks in automaton.view(place).after.values())


def test_outputs_are_counted_right():
    assert len(outputs(LIMIT)) == 1 + 3 + 9 + 27 + 81
