"""Sentences that come in while others are under way are written as if each were alone."""

from functools import lru_cache
from itertools import islice

import pytest
import torch

from tests.sparing import one_each
from tests.tiny_search import END, settings
from transduce.config import preset
from transduce.models import NO_ATTENTION, Ensemble, build, can_run_natively, make_ready
from transduce.search import Containing, NoRepeat, Prefixes, Request, Sampling, Without, beam_search

SIZES = {"encoder_layers": 1, "decoder_layers": 2, "d_model": 28, "d_ff": 44, "heads": 4, "vocab_size": 37}
# Longest first, and then one that is longer than what it comes in beside.
LENGTHS = [23, 19, 17, 13, 11, 7, 5, 3, 2, 29, 1, 1]
SOURCES = [[4 + (7 * row + 3 * place) % 33 for place in range(length)] for row, length in enumerate(LENGTHS)]
NUMBERS = [101 + 2 * row for row in range(len(SOURCES))]
ROOM = 3
CONSTRAINTS = (
    Prefixes({101: (6, 7), 107: (5,), 111: (8, 8, 9, 4), 115: (4,)}),
    NoRepeat(2),
    Without([(10,), (5, 6), (7, 8, 9)]),
    Containing({103: [(11,)], 109: [(12, 13), (14,)], 119: [(15, 15)]}, END),
)
WAYS = {
    "greedy": {"beam_size": 1},
    "beam 4": {"n_best": 3},
    "full beam": {"stopping": "full_beam", "n_best": 2},
    "shortest": {"min_length": 4, "n_best": 4},
    "constraints": {"constraints": CONSTRAINTS, "n_best": 2},
    "constraints, greedy": {"constraints": CONSTRAINTS[:3], "beam_size": 1},
    "coverage": {"coverage": 0.4, "n_best": 2},
    "diverse": {"diversity": 0.3, "n_best": 2},
    "samples": {"sampling": Sampling(seed=5), "beam_size": 3, "n_best": 3, "min_length": 2},
}
MODELS = ["plain", "float32", "bfloat16", "int8", "average", "ensemble", "mixed ensemble"]


def transformer(seed, **changes):
    torch.manual_seed(seed)
    model = build(preset("base", SIZES | changes)).eval().requires_grad_(False)
    model.embedding.weight.data *= 1.5  # sharper distributions: outputs of different lengths
    return model


@lru_cache
def ready(name):
    """A model of that kind."""
    if not can_run_natively(transformer(3)) and name != "plain":
        pytest.skip("there is nothing but the plain model")
    match name:
        case "plain":
            return transformer(3)
        case "average":
            return make_ready(transformer(3, decoder_self_attention="average"), "int8")
        case "ensemble":
            return Ensemble([make_ready(transformer(seed), "float32") for seed in (3, 5)])
        case "mixed ensemble":
            return Ensemble([transformer(3), make_ready(transformer(5), "float32")])
    return make_ready(transformer(3), name)


def request(row, way, limit=None):
    """One of the sources, with a limit of its own."""
    return Request([*SOURCES[row], END], limit or 9 + 5 * row % 13, settings(**way), NUMBERS[row])


class Waiting:
    """Hands the sources over, as many as there is room for, and remembers beside whom they came in."""

    def __init__(self, room, rows=None):
        self.room, self.rows = room, list(range(len(SOURCES)) if rows is None else rows)
        self.beside, self.way = [], {}

    def __call__(self, active):
        some, self.rows = self.rows[: self.room - len(active)], self.rows[self.room - len(active) :]
        if some:
            self.beside.append(len(active))
        return [request(row, self.way) for row in some]


def search(model, way, waiting):
    """The outcomes by the sentences' numbers."""
    waiting.way = way
    return {each.number: outcome for each, outcome in beam_search(model, waiting)}


@pytest.mark.parametrize(("way", "name"), [*one_each(WAYS, MODELS)])
def test_each_is_what_it_is_alone(way, name):
    # Those with constraints, the longest late, and one that is short.
    rows = [*range(8), 9, 10]
    model, waiting, way = ready(name), Waiting(ROOM, rows), WAYS[way]
    together = search(model, way, waiting)
    assert sorted(together) == [NUMBERS[row] for row in rows]
    assert sum(map(bool, waiting.beside)) > len(rows) // 2  # most came in while others were under way
    for row in rows:
        number = NUMBERS[row]
        (alone,) = search(model, way, Waiting(1, [row])).values()
        assert [each.ids for each in together[number]] == [each.ids for each in alone]
        scores = [each.score for each in alone]
        assert [each.score for each in together[number]] == pytest.approx(scores, abs=1e-4)


def test_the_outputs_differ_in_length():
    found = search(ready("plain"), {}, Waiting(ROOM))
    assert len({len(several[0].ids) for several in found.values()}) > 4


class Watched:
    """A model that counts its steps and the rows of each, and looks at the state."""

    def __init__(self, model):
        self.model, self.rows, self.states = model, [], []
        for verb in ("encode", "decode", "project", "forward", "start"):
            setattr(self, verb, getattr(model, verb))

    def step(self, state, tokens, *, attention=NO_ATTENTION):
        self.rows.append(len(tokens))
        self.states.append(state)
        return self.model.step(state, tokens, attention=attention)


def test_a_place_that_is_free_is_taken_at_once():
    """There is room for two: as long as others wait, every step reads two rows."""
    sentences, limit = 10, 6
    model, waiting = Watched(ready("plain")), iter(range(sentences))
    way = {"beam_size": 1, "min_length": limit // 2 - 1, "forbidden": (0, 1, 3)}

    def take(active):
        # Limits of 6 and 3 by turns: two sentences of 3 are written while one of 6 is.
        return [request(0, way, limit if row % 3 == 0 else limit // 2) for row in islice(waiting, 2 - len(active))]

    found = dict(beam_search(model, take))
    assert len(found) == sentences
    written = sum(len(several[0].ids) + 1 for several in found.values())
    assert sum(model.rows) == written  # no row is read in vain
    assert model.rows[:-limit] == [2] * (len(model.rows) - limit)  # there is never only one while others wait


@pytest.mark.parametrize("name", ["float32", "int8", "average"])
def test_the_slots_of_those_that_have_left_are_taken_again(name):
    model = Watched(ready(name))
    rounds = 40

    def take(active):
        nonlocal rounds
        if len(active) == ROOM or not rounds:
            return []
        rounds -= 1
        return [request(row, {"beam_size": 2}, 4 + rounds % 3) for row in range(5, 5 + ROOM - len(active))]

    assert len(dict(beam_search(model, take))) >= 40
    kept = [(*state.past.parts, state.memory.keys, state.logits) for state in model.states]
    sizes = [sum(part.nbytes for part in parts) for parts in kept]
    assert sizes[-1] == max(sizes[: len(sizes) // 4])
    assert len({parts[0].data_ptr() for parts in kept[len(kept) // 2 :]}) == 1
    assert max(state.width for state in model.states) <= 6  # the longest output, end symbol counted
