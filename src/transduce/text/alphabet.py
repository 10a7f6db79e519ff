"""Which characters get symbols of their own."""

from collections import Counter
from collections.abc import Iterable


def count_characters(lines: Iterable[str]) -> Counter[str]:
    """How often each character stands in the text."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line)
    return counts


def most_frequent(counts: Counter[str], limit: int) -> list[str]:
    """At most so many characters, the most frequent first; of equally frequent ones those that Unicode has first.

    The trainers could choose too, but of equally frequent ones they keep others each time.
    """
    return sorted(+counts, key=lambda character: (-counts[character], character))[:limit]
