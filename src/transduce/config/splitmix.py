"""SplitMix64 (Steele, Lea and Flood 2014): random words that follow from a seed, the same in NumPy, torch and C++."""

from typing import Any, Final


def signed(word: int) -> int:
    """The same 64 bits in the range of signed integers, whose sums and products wrap as unsigned ones do."""
    return (word + (1 << 63)) % (1 << 64) - (1 << 63)


# Between two words of a seed's stream: 2^64 divided by the golden ratio.
STEP: Final = signed(0x9E3779B97F4A7C15)
# (shift, factor) of each round of the output function; the last has no product.
_ROUNDS: Final = ((30, signed(0xBF58476D1CE4E5B9)), (27, signed(0x94D049BB133111EB)), (31, 1))


def mix(words: Any) -> None:  # noqa: ANN401 - this room does not know torch
    """The output function, in place: of a NumPy array or a tensor of 64-bit integers."""
    for shift, factor in _ROUNDS:
        # The shift copies the sign in, which has to be taken out again.
        shifted = words >> shift
        shifted &= 2 ** (64 - shift) - 1
        words ^= shifted
        if factor != 1:
            words *= factor
