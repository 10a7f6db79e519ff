"""A system's size is found by counting what it would have."""

from dataclasses import replace

import pytest

from transduce.config import REFERENCE_SIZE, SYSTEMS, TABLE2, BadInputError, System, preset
from transduce.lab.equal_size import TOLERANCE, choose_size, count_parameters

SHARED, APART = {"vocab_size": 4000, "source_vocab_size": None}, {"vocab_size": 4000, "source_vocab_size": 3000}


def one_layer(width):
    return {
        "encoder_layers": 1,
        "decoder_layers": 1,
        "heads": 1,
        "d_model": 2 * width,
        "d_ff": 8 * width,
        "norm": "pre",
    }


def test_parameters_by_hand():
    model = System("a", "", one_layer, 0.001).model(7)
    # Three attentions of 4 d^2, two networks of 8 d^2 + 5 d, and seven norms of 2 d (two behind the stacks).
    inside = 3 * 4 * 14**2 + 2 * (8 * 14**2 + 5 * 14) + 7 * 2 * 14
    assert count_parameters(model, SHARED) == inside + 4000 * 14
    assert count_parameters(model, APART) == inside + 7000 * 14


def test_the_nearest_size_is_chosen():
    system = System("a", "", one_layer, 0.001)
    counts = {size: count_parameters(system.model(size), APART) for size in range(1, 33)}
    for parameters in (counts[1], counts[23], counts[23] + 1000, counts[24] - 1000):
        nearest = min(counts, key=lambda size: abs(counts[size] - parameters))
        assert choose_size(system, parameters, APART) == system.model(nearest)


def test_a_system_that_cannot_be_as_large_is_named():
    system = System("coarse", "", lambda size: one_layer(100 * size), 0.001)
    with pytest.raises(BadInputError, match=r"coarse: [\d,]+ parameters are the nearest to 1,500,000 .*--rows"):
        choose_size(system, 1_500_000, SHARED)
    with pytest.raises(BadInputError, match="the nearest to 10,000 that it can have"):
        choose_size(replace(system, section=one_layer), 10_000, SHARED)


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_every_system_can_be_as_large_as_the_transformer(system):
    parameters = count_parameters(SYSTEMS[0].model(REFERENCE_SIZE), SHARED)
    found = count_parameters(choose_size(system, parameters, SHARED), SHARED)
    assert abs(found - parameters) <= TOLERANCE * parameters


def test_learned_positions_reach_for_what_is_translated():
    convs2s = next(system for system in SYSTEMS if system.name == "convs2s")
    parameters = count_parameters(SYSTEMS[0].model(REFERENCE_SIZE), SHARED)
    found = [choose_size(convs2s, parameters, SHARED, longest) for longest in (0, 256, 479)]
    assert [model.max_positions for model in found] == [256, 256, 479]
    assert abs(count_parameters(found[2], SHARED) - parameters) <= TOLERANCE * parameters


def test_the_transformer_is_tiny_with_the_norm_in_front():
    assert SYSTEMS[0].model(REFERENCE_SIZE) == preset("tiny", {"norm": "pre"})


def test_systems_stand_for_rows_of_the_table():
    assert len({system.name for system in SYSTEMS}) == len(SYSTEMS)
    assert {system.stands_for for system in SYSTEMS} - {None} <= {row.system for row in TABLE2}
