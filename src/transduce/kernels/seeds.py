"""Random numbers that follow from what they are for, not from when or beside what they are drawn.

Whatever draws has a seed of its own, and its draws are splitmix64's stream from there on (Steele et al. 2014): draw k
of seed s is mix(s + k STEP). Seeds are such draws themselves. Any part of a
stream can be had without those before it, so that a backward pass draws again what the forward pass drew.
"""

import math

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from transduce.config.splitmix import STEP, mix, signed


def make_seed(number: int) -> Int[Tensor, ""]:
    """The seed of a number of any size."""
    return _mix(torch.tensor(signed(number)))


def advance(seeds: Int[Tensor, "*#shape"], draws: int | Int[Tensor, "*#shape"]) -> Int[Tensor, "*shape"]:
    """Where the streams of these seeds go on behind so many draws."""
    return seeds + (signed(draws * STEP) if isinstance(draws, int) else draws * STEP)


def derive(seeds: Int[Tensor, "*#shape"], number: int | Int[Tensor, "*#shape"]) -> Int[Tensor, "*shape"]:
    """The draws of that number: seeds that follow from a seed and a number, with nothing in common to be seen."""
    return _mix(advance(seeds, number))


def draw(seeds: Int[Tensor, "*rows"], columns: range) -> Int[Tensor, "*rows columns"]:
    """16 random bits for each of some columns of every row; a draw of 64 bits serves four adjacent columns."""
    first, last = columns.start // 4, -(-columns.stop // 4)
    words = _mix(advance(seeds.unsqueeze(-1), torch.arange(first, last, device=seeds.device)))
    return words.view(torch.int16)[..., columns.start - 4 * first : columns.stop - 4 * first]


def draw_normal(seeds: Int[Tensor, "*rows"], number: int) -> Float64[Tensor, "*rows number"]:
    """So many numbers of the standard normal distribution for every row, by Box and Muller's formula (1958).

    A draw of 64 bits gives two numbers u and v between 0 and 1, and sqrt(-2 log u) cos(2 pi v) one of ours.
    """
    words = _mix(advance(seeds.unsqueeze(-1), torch.arange(number, device=seeds.device)))
    halves = words.view(torch.int32).view(*words.shape, 2).double()
    u, v = ((halves + (2**31 + 0.5)) / 2**32).unbind(-1)
    return (-2 * u.log()).sqrt() * (2 * math.pi * v).cos()


def _mix(words: Tensor) -> Tensor:
    """What is mixed is new, so it can be changed in place."""
    mix(words)
    return words
