"""Damage as disks, transfers and strangers do it to a file; every case is a pure function of its random numbers."""

import random
import re
from collections.abc import Callable, Sequence

# Numbers that readers trip over.
_NUMBERS = (
    *(b"0", b"-1", b"1e999", b"-0.0", b"null", b"true", b'"7"', b"[]", b"{}"),
    *(str(number).encode() for number in (10**9, 2**31, 2**32 - 1, 2**53 + 1, 2**63, 2**64, 10**30)),
)
_INSERTS = (b"\x00", b"\xff", b"\n", b"\t", b"[" * 3000, b'{"a":' * 3000, b"9" * 5000, b"\xed\xa0\x80", b"\\ud800")


def _flip(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 1, 3, 17])):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _flip_early(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """Headers stand first."""
    return _flip(data[:256], others, chance) + data[256:]


def _cut(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    return data[: chance.choice([0, 1, 7, chance.randrange(len(data)), len(data) - 1])]


def _fill(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    start, length = chance.randrange(len(data)), chance.choice([1, 4, 8, 512])
    return data[:start] + chance.choice([b"\x00", b"\xff", b"\x7f"]) * length + data[start + length :]


def _repeat(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    start, stop = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    return data[:stop] + data[start:]


def _insert(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice(_INSERTS) + data[at:]


def _swap(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    return chance.choice(others)


def _renumber(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """Another number, or another type, where the text has a number."""
    found = list(re.finditer(rb"\d+(\.\d+)?", data))
    if not found:
        return _flip(data, others, chance)
    match = chance.choice(found)
    return data[: match.start()] + chance.choice(_NUMBERS) + data[match.end() :]


def _retype(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """Another value, or another text's, where the text has a quoted string."""
    found = list(re.finditer(rb'"[^"\n]{0,40}"', data))
    if not found:
        return _flip(data, others, chance)
    one, other = chance.choice(found), chance.choice(found)
    return data[: one.start()] + chance.choice([other[0], *_NUMBERS, b'""']) + data[one.end() :]


KINDS: tuple[Callable[[bytes, Sequence[bytes], random.Random], bytes], ...] = (
    *(_flip, _flip_early, _cut, _fill, _repeat, _insert, _swap, _renumber, _retype),
)


def damage(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """The data with something done to it; ``others`` are whole files that may stand in its place."""
    return chance.choice(KINDS)(data or b" ", others, chance)
