"""Outputs that are trees, against all outputs that there are, read as symbols of trees."""

import pytest
import torch

from tests.sparing import one_each
from tests.tiny_search import END, SOURCE, best, search_all, settings, shared
from transduce.search import Restriction, Sampling, TreeSymbols, WellFormed
from transduce.text import BadTreeError, Linearization

# Of the model's three symbols: a phrase begins, ends, and a word.
NAMES = {4: "(X", 5: ")X", 6: "XX"}
TREES = TreeSymbols({4: "X"}, {"X": 5}, (6,), END)
NUMBERS = [11, 13]
LIMIT, WIDE = 8, 300


def is_tree(ids, words, deepest=16):
    """By another definition of what a tree is."""
    try:
        Linearization().read([NAMES[each] for each in ids], ["w"] * words)
    except BadTreeError:
        return False
    return (4,) * (deepest + 1) != tuple(ids)[: deepest + 1] and str((4,) * (deepest + 1))[1:-1] not in str(ids)


def unspelled(numbers, words):
    """So many words of each sentence, which stand for nothing behind their leaf."""
    return {number: [()] * count for number, count in zip(numbers, words, strict=True)}


def search(model, words, limit=LIMIT, numbers=NUMBERS, deepest=16, **changes):
    constraint = WellFormed(TREES, unspelled(numbers, words), deepest)
    limits = torch.tensor([limit] * 2)
    return search_all(model, SOURCE, limits, settings(constraints=(constraint,), **changes), numbers)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
@pytest.mark.parametrize(("words", "deepest"), [((1, 2), 16), ((3, 1), 16), ((2, 2), 1), ((1, 3), 2)])
def test_the_best_trees_are_found_and_nothing_else(seed, words, deepest):
    model = shared(seed)
    found = search(model, words, deepest=deepest, beam_size=WIDE, n_best=300)
    for row, count in enumerate(words):
        expected = best(model, row, LIMIT, lambda ids, n=count: is_tree(ids, n, deepest))
        assert {each.ids for each in found[row]} == {ids for ids, _ in expected}
        assert [each.score for each in found[row]] == pytest.approx([score for _, score in expected])


@pytest.mark.parametrize(("room", "beam"), [*one_each("0127", [1, 2, 4, 21])])
def test_what_fits_in_ends_in_a_tree(room, beam):
    """The least that a tree of n words needs is n symbols, a phrase around them, and the end."""
    for seed in range(5):
        model = shared(seed)
        for words in ((1, 1), (4, 2), (2, 5)):
            for count, several in zip(
                words, search(model, words, limit=max(words) + 3 + int(room), beam_size=beam), strict=True
            ):
                assert several, (seed, words)
                assert all(is_tree(each.ids, count) for each in several)


def test_samples_are_trees_too():
    sampling = Sampling(temperature=1.5, top_k=None, top_p=None, seed=5)
    found = search(shared(0), (3, 2), limit=40, beam_size=50, n_best=50, sampling=sampling)
    for count, several in zip((3, 2), found, strict=True):
        assert len({each.ids for each in several}) > 5
        assert all(is_tree(each.ids, count) for each in several)


@pytest.mark.parametrize("beam", [1, 3])
def test_company_changes_nothing(beam):
    model = shared(4)
    together = search(model, (5, 2), limit=20, beam_size=beam)
    other = search(model, (5, 9), limit=20, beam_size=beam)
    assert [each.ids for each in together[0]] == [each.ids for each in other[0]]


def test_one_symbol_may_close_any_phrase():
    """As in actions of a shift-reduce parser: the same outputs, as there is one label."""
    anything = TreeSymbols({4: "X"}, {None: 5}, (6,), END)
    model, limits = shared(1), torch.tensor([LIMIT] * 2)
    words = unspelled(NUMBERS, (2, 1))
    one, other = (
        search_all(model, SOURCE, limits, settings(constraints=(WellFormed(trees, words),), beam_size=4), NUMBERS)
        for trees in (TREES, anything)
    )
    assert one == other


def test_a_phrase_that_cannot_be_closed_does_not_begin():
    trees = TreeSymbols({4: "X", 6: "Y"}, {"X": 5}, (6,), END)
    state = WellFormed(trees, {1: [(), ()]}).start(1)
    assert set(state.restrict((), 10).symbols) == {4}


def test_a_shortlist_has_to_have_all_symbols_of_trees():
    assert set(WellFormed(TREES, {1: [(), ()]}).symbols(1)) == {4, 5, 6}


@pytest.mark.parametrize("beam", [1, 4])
def test_words_of_several_ids_stand_whole_behind_their_leaves(beam):
    """Even where an id of theirs means something else in trees: 4, 5 and 6 are all there is."""
    spelled = {11: [(4, 5), (6,)], 13: [(5, 5, 4), ()]}
    constraint = WellFormed(TREES, spelled)
    assert set(constraint.symbols(13)) == {4, 5, 6}
    for limit in (9, 10, 20):
        limits = torch.tensor([limit] * 2)
        found = search_all(shared(3), SOURCE, limits, settings(constraints=(constraint,), beam_size=beam), NUMBERS)
        for number, several in zip(NUMBERS, found, strict=True):
            assert several
            for each in several:
                ids, rest = [], list(each.ids)
                words = iter(spelled[number])
                while rest:
                    ids.append(rest.pop(0))
                    if ids[-1] == 6:
                        word = next(words)
                        assert tuple(rest[: len(word)]) == word
                        del rest[: len(word)]
                assert is_tree(ids, 2)


class Idle:
    """Bans the begin symbol, which no tree has: beside it, all log-probabilities are masked."""

    def symbols(self, number):
        return ()

    def start(self, number):
        return self

    def restrict(self, written, room):
        return Restriction((1,))

    def propose(self):
        return None

    def advance(self, symbol):
        return self


@pytest.mark.parametrize("beam", [1, 4, 21])
def test_choosing_among_few_symbols_is_masking_all_others(beam):
    constraint = WellFormed(TREES, unspelled(NUMBERS, (4, 2)))
    limits = torch.tensor([30] * 2)
    few, masked = (
        search_all(shared(2), SOURCE, limits, settings(constraints=constraints, beam_size=beam), NUMBERS)
        for constraints in ((constraint,), (constraint, Idle()))
    )
    for one, other in zip(few, masked, strict=True):
        assert [each.ids for each in one] == [each.ids for each in other]
        assert [each.score for each in one] == pytest.approx([each.score for each in other], abs=1e-5)
