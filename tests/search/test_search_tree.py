"""A search that is recorded finds what one finds that is not, and its tree says how."""

import math
from collections import Counter
from itertools import pairwise

import pytest
import torch

from tests.search.test_search_memory import STEPPING, Small
from tests.search.test_search_queue import CONSTRAINTS, NUMBERS, ROOM, SOURCES, Waiting, ready, search
from tests.search.test_search_queue import WAYS as MANY_WAYS
from tests.sparing import every, one_each
from tests.tiny_search import BEGIN, END, SOURCE, following, search_all, settings, tiny
from transduce.models import Shortlist
from transduce.search import LengthPenalty, NothingFound, Recorder, Sampling, build_tree

VOCABULARY = 37
SHORTLIST = Shortlist(
    torch.arange(VOCABULARY).unsqueeze(1) * torch.tensor([1, 3, 5]) % VOCABULARY, torch.arange(4, 9), 37
)
WAYS = {
    **MANY_WAYS,
    "beam 21": {"beam_size": 21, "n_best": 21},
    "phrases, beam 21": {"beam_size": 21, "constraints": CONSTRAINTS},
    "shortlist": {"shortlist": SHORTLIST, "n_best": 2},
}
MODELS = ["plain", "float32", "int8", "ensemble"]
ROWS = range(8)  # sentences with constraints of every kind among them


def trees(recorder):
    return {number: build_tree(rounds, BEGIN) for number, rounds in recorder.rounds.items()}


@pytest.mark.parametrize(("way", "name"), [*one_each(WAYS, MODELS)])
def test_a_recorded_search_finds_the_same_to_the_last_bit(way, name):
    model, recorder, way = ready(name), Recorder(top=3), WAYS[way]
    found = search(model, way, Waiting(ROOM, ROWS))
    assert search(model, {**way, "recorder": recorder}, Waiting(ROOM, ROWS)) == found
    recorded = trees(recorder)
    assert sorted(recorded) == [NUMBERS[row] for row in ROWS]
    for number, outcome in found.items():
        tree = recorded[number]
        finished = tree.finished()[: way.get("n_best", 1)]
        expected = [] if isinstance(outcome, NothingFound) else outcome
        assert [tree.path(index) for index in finished] == [(*each.ids, END) for each in expected]
        for index, hypothesis in zip(finished, expected, strict=True):
            assert tree.nodes[index].score == hypothesis.score
            assert tree.nodes[index].log_probability == hypothesis.log_probability
        best = [index for index, node in enumerate(tree.nodes) if node.best]
        assert [tree.nodes[index].symbol for index in best] == [BEGIN, *tree.path(finished[0])]


@pytest.mark.parametrize("way", [*every(2, WAYS)])
def test_what_follows_belongs_to_the_hypothesis_that_was_read(way):
    """A child's probability is what its parent's distribution says, and only what stayed open has one."""
    recorder = Recorder(top=VOCABULARY)
    search(ready("float32"), {**way, "recorder": recorder}, Waiting(ROOM, ROWS))
    for tree in trees(recorder).values():
        last = max(node.round for node in tree.nodes)
        for node in tree.nodes:
            assert bool(node.following) == (node.state == "open" and node.round < last)
            if node.following:
                shares = [each.probability for each in node.following]
                assert shares == sorted(shares, reverse=True)
                assert sum(shares) == pytest.approx(1, abs=1e-4)
            if node.parent is not None:
                parent = tree.nodes[node.parent]
                assert (parent.state, parent.round) == ("open", node.round - 1)
                share = next(each.probability for each in parent.following if each.symbol == node.symbol)
                assert math.exp(node.symbol_log_probability) == pytest.approx(share, rel=1e-4)
                assert node.log_probability == parent.log_probability + node.symbol_log_probability


def test_only_a_few_of_what_follows_are_kept():
    few, many = Recorder(top=3), Recorder(top=100)
    for recorder in (few, many):
        search(ready("float32"), {"recorder": recorder}, Waiting(ROOM))
    for one, other in zip(trees(few)[101].nodes, trees(many)[101].nodes, strict=True):
        assert one.following == other.following[:3]
        assert len(other.following) in (0, VOCABULARY)


def plain_rounds(model, row, limit, beam):
    """What is open, ends and is dropped in each round, one hypothesis at a time and without a state."""
    open_, rounds = {(): 0.0}, []
    for length in range(1, limit + 1):
        candidates = {}
        for ids, total in open_.items():
            shares = following(model, row, ids)
            symbols = (END,) if length == limit else (END, 4, 5, 6)
            candidates |= {(*ids, symbol): total + shares[symbol] for symbol in symbols}
        order = sorted(candidates, key=lambda ids: -candidates[ids])
        ended = [ids for ids in order[:beam] if ids[-1] == END]
        kept = [ids for ids in order if ids[-1] != END][:beam]
        rounds.append({"ended": ended, "open": kept, "dropped": set(order[: 2 * beam]) - {*ended, *kept}})
        open_ = {ids: candidates[ids] for ids in kept}
    return rounds


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
@pytest.mark.parametrize("beam", [1, 3])
def test_every_round_is_as_a_plain_search_has_it(seed, beam):
    model, recorder, limit = tiny(seed), Recorder(top=7), 9
    penalty = LengthPenalty("gnmt", 0.6)
    way = settings(beam_size=beam, penalty=penalty, recorder=recorder)
    search_all(model, SOURCE, torch.tensor([limit, limit]), way)
    for row, tree in trees(recorder).items():
        rounds = plain_rounds(model, row, limit, beam)
        for number in range(1, max(node.round for node in tree.nodes) + 1):
            index = [index for index, node in enumerate(tree.nodes) if node.round == number]
            for state in ("open", "ended", "dropped"):
                seen = [tree.path(each) for each in index if tree.nodes[each].state == state]
                expected = rounds[number - 1][state]
                assert (set(seen) if state == "dropped" else seen) == expected
        for each, node in enumerate(tree.nodes):
            if node.state == "ended":
                assert node.score == node.log_probability / penalty(node.round)
            if node.following:
                shares = following(model, row, tree.path(each))
                for next_ in node.following:
                    assert next_.probability == pytest.approx(math.exp(shares[next_.symbol]), abs=1e-5)


def test_at_its_limit_everything_ends():
    recorder = Recorder()
    search_all(tiny(1), SOURCE, torch.tensor([2, 1]), settings(beam_size=3, min_length=1, recorder=recorder))
    two, one = trees(recorder)[0], trees(recorder)[1]
    assert {node.state for node in two.nodes if node.round == 2} == {"ended"}
    assert [node.symbol for node in two.nodes if node.round == 2] == [END] * 3
    # The shortest length forbids what the limit asks for: nothing is found, and what was dropped says why.
    assert [(node.symbol, node.state) for node in one.nodes[1:]] == [(END, "dropped")]
    assert one.finished() == []
    assert not any(node.best for node in one.nodes)


def test_samples_are_each_a_branch_of_their_own():
    recorder = Recorder()
    way = settings(beam_size=5, n_best=5, sampling=Sampling(seed=3), recorder=recorder)
    found = search_all(tiny(5), SOURCE, torch.tensor([9, 9]), way)
    for row, tree in trees(recorder).items():
        assert len([node for node in tree.nodes if node.parent == 0]) == 5
        children = Counter(node.parent for node in tree.nodes if node.parent not in (0, None))
        assert set(children.values()) == {1}
        assert [tree.nodes[index].rank for index in tree.finished()] == [1, 2, 3, 4, 5]
        assert [tree.path(index)[:-1] for index in tree.finished()] == [each.ids for each in found[row]]


def test_ranks_are_by_score():
    recorder = Recorder()
    search(ready("float32"), {"beam_size": 6, "stopping": "full_beam", "recorder": recorder}, Waiting(ROOM))
    for tree in trees(recorder).values():
        scores = [tree.nodes[index].score for index in tree.finished()]
        assert len(scores) >= 6
        assert all(one >= other for one, other in pairwise(scores))


def test_a_sentence_that_begins_anew_is_recorded_anew():
    whole, again = Recorder(), Recorder()
    search(ready("float32"), {"recorder": whole}, Waiting(len(SOURCES)))
    model = Small(ready("float32"), 61, STEPPING, MemoryError())
    search(model, {"recorder": again}, Waiting(len(SOURCES)))
    assert model.failed > 1
    assert again.rounds == whole.rounds


def test_a_tree_of_other_symbols_is_the_same_tree():
    recorder = Recorder()
    search(ready("float32"), {"recorder": recorder}, Waiting(ROOM))
    tree = trees(recorder)[103]
    named = tree.map(lambda symbol: f"<{symbol}>")
    assert named.map(lambda name: int(name[1:-1])) == tree
    assert named.path(tree.finished()[0])[-1] == f"<{END}>"
