"""Streams of random numbers that can be entered anywhere."""

import math

import pytest
import torch

from transduce.kernels import derive, draw_normal, make_seed
from transduce.kernels.seeds import advance, draw

# The first outputs of splitmix64 from state 1234567, as published beside its reference code's translations.
PUBLISHED = [
    6457827717110365317,
    3203168211198807973,
    9817491932198370423,
    4593380528125082431,
    16408922859458223821,
]


def splitmix64(seed, number):
    """Steele, Lea and Flood 2014, in whole numbers."""
    z = (seed + number * 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def signed(word):
    return word - 2**64 if word >= 2**63 else word


def test_the_stream_is_the_published_one():
    assert [splitmix64(1234567, number) for number in range(1, 6)] == PUBLISHED
    found = derive(torch.tensor(1234567), torch.arange(1, 6))
    assert found.tolist() == [signed(word) for word in PUBLISHED]


def test_every_seed_and_every_number():
    seeds = torch.randint(-(2**63), 2**63 - 1, (7,), generator=torch.Generator().manual_seed(3))
    for seed in [*seeds.tolist(), 0, -1, -(2**63), 2**63 - 1]:
        for number in (0, 1, 2**20, 2**32 + 5, 2**62):
            assert derive(torch.tensor(seed), number).item() == signed(splitmix64(seed % 2**64, number))


def test_a_number_or_as_many_as_seeds():
    seeds = torch.tensor([11, 13, 17])
    numbers = torch.tensor([2, 3, 5])
    one_by_one = [derive(seed, number).item() for seed, number in zip(seeds, numbers.tolist(), strict=True)]
    assert derive(seeds, numbers).tolist() == one_by_one
    assert seeds.tolist() == [11, 13, 17]  # which is worked out in place, but not in theirs


def test_a_draw_serves_four_neighbours_its_lowest_bits_first():
    """Column c of a row is bits 16 (c mod 4) and on of draw c // 4."""
    seeds = torch.tensor([[23, -29], [31, 37]])
    found = draw(seeds, range(11))
    for row in (0, 1):
        for place in (0, 1):
            seed = seeds[row, place].item() % 2**64
            words = [splitmix64(seed, column // 4) >> 16 * (column % 4) & 0xFFFF for column in range(11)]
            assert [value % 2**16 for value in found[row, place].tolist()] == words


@pytest.mark.parametrize("columns", [range(0, 1), range(3, 17), range(4, 8), range(5, 6), range(17, 31), range(7, 7)])
def test_any_columns_are_a_part_of_all(columns):
    seeds = torch.tensor([23, -29, 31])
    assert draw(seeds, columns).equal(draw(seeds, range(31))[:, columns.start : columns.stop])


def test_a_stream_goes_on_behind_any_number_of_draws():
    seeds = torch.tensor([23, -29, 31])
    assert draw(advance(seeds, 5), range(13)).equal(draw(seeds, range(20, 33)))
    assert draw(advance(seeds, torch.tensor([0, 1, 2])), range(4))[2].equal(draw(seeds, range(8, 12))[2])


def test_numbers_of_any_size_make_seeds_that_do_not_look_alike():
    seeds = [make_seed(number).item() for number in (*range(100), 2**63, 2**63 + 1, 2**64 - 1)]
    assert len(set(seeds)) == len(seeds)
    ones = [bin((seeds[i] ^ seeds[i + 1]) % 2**64).count("1") for i in range(1, 100)]
    # Half of 64 bits change from one number to the next: five standard deviations of the mean of 99.
    assert sum(ones) / 99 == pytest.approx(32, abs=5 * 4 / 99**0.5)


def test_normal_numbers_are_box_and_mullers_of_a_draw_each():
    found = draw_normal(torch.tensor([[23, -29]]), 3)
    for place, seed in enumerate([23, -29]):
        for number in range(3):
            word = splitmix64(seed % 2**64, number)
            low, high = (half - 2**32 if half >= 2**31 else half for half in (word % 2**32, word >> 32))
            u, v = ((half + 2**31 + 0.5) / 2**32 for half in (low, high))
            expected = math.sqrt(-2 * math.log(u)) * math.cos(2 * math.pi * v)
            assert found[0, place, number].item() == pytest.approx(expected, rel=1e-12)


def test_normal_numbers_are_normal():
    """Five standard deviations of the mean, of the variance, and of the share beyond one, of 100,000 numbers."""
    numbers = draw_normal(torch.arange(1_000), 100).flatten()
    assert numbers.mean().item() == pytest.approx(0, abs=5 / math.sqrt(1e5))
    assert numbers.var().item() == pytest.approx(1, abs=5 * math.sqrt(2 / 1e5))
    assert (numbers.abs() > 1).double().mean().item() == pytest.approx(0.31731, abs=5 * 0.4654 / math.sqrt(1e5))
