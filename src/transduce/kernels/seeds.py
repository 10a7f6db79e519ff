"""Random numbers that follow from what they are for, not from when or beside what they are drawn.

Whatever draws has a seed of its own, and its draws are splitmix64's stream from there on (Steele et al. 2014): draw k
of seed s is mix(s + k G), G being 2^64 divided by the golden ratio. Seeds are such draws themselves. Any part of a
stream can be had without those before it, so that a backward pass draws again what the forward pass drew.
"""

from typing import Final

import torch
from jaxtyping import Int
from torch import Tensor


def _signed(word: int) -> int:
    """The same 64 bits in the range of torch's integers, whose sums and products wrap as unsigned ones do."""
    return (word + (1 << 63)) % (1 << 64) - (1 << 63)


_G: Final = _signed(0x9E3779B97F4A7C15)
# (shift, factor) of each round of splitmix64's output function; the last has no product.
_ROUNDS: Final = ((30, _signed(0xBF58476D1CE4E5B9)), (27, _signed(0x94D049BB133111EB)), (31, 1))


def make_seed(number: int) -> Int[Tensor, ""]:
    """The seed that a number of any size stands for."""
    return _mix(torch.tensor(_signed(number)))


def advance(seeds: Int[Tensor, "*#shape"], draws: int | Int[Tensor, "*#shape"]) -> Int[Tensor, "*shape"]:
    """Where the streams of these seeds go on behind so many draws."""
    return seeds + (_signed(draws * _G) if isinstance(draws, int) else draws * _G)


def derive(seeds: Int[Tensor, "*#shape"], number: int | Int[Tensor, "*#shape"]) -> Int[Tensor, "*shape"]:
    """The draws of that number: seeds that follow from a seed and a number, with nothing in common to be seen."""
    return _mix(advance(seeds, number))


def draw(seeds: Int[Tensor, "*rows"], columns: range) -> Int[Tensor, "*rows columns"]:
    """16 random bits for each of some columns of every row; a draw of 64 bits serves four neighbours."""
    first, last = columns.start // 4, -(-columns.stop // 4)
    words = _mix(advance(seeds.unsqueeze(-1), torch.arange(first, last, device=seeds.device)))
    return words.view(torch.int16)[..., columns.start - 4 * first : columns.stop - 4 * first]


def _mix(states: Tensor) -> Tensor:
    """splitmix64's output function, in place."""
    for shift, factor in _ROUNDS:
        # Torch shifts the sign in, which has to be taken out again.
        states ^= (states >> shift).bitwise_and_(2 ** (64 - shift) - 1)
        if factor != 1:
            states *= factor
    return states
