"""What training can learn from: pairs are checked one by one, and every decision is counted, with examples."""

import hashlib
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, final

from transduce.config import BadInputError, DataConfig
from transduce.data.lines import is_text

# Of a file, a byte that is no UTF-8 (see lines.py).
_BYTE: Final = re.compile(r"\\udc([89a-f][0-9a-f])")

Reason = Literal["no tree", "invalid UTF-8", "empty side", "duplicate", "in dev", "too long", "length ratio"]

_EXAMPLES: Final = 3
_SHOWN: Final = 60
_MANY: Final = 0.1  # share of the pairs that are hardly meant to be dropped
# How many of these there are says nothing of how well a corpus can be read.
_MEANT: Final[frozenset[Reason]] = frozenset({"duplicate", "in dev"})
# What is said of pairs with a flaw that is a reason to drop them only where a setting, named here, makes it one.
_NOTICED: Final[dict[Reason, tuple[str, str]]] = {
    "duplicate": ("occurred before", "data.duplicates"),
    "in dev": ("share a sentence with dev", "data.dev_overlap"),
}


@final
@dataclass
class Tally:
    """What became of the pairs of one corpus, and why."""

    name: str
    kept: int = 0
    tokens: tuple[int, int] = (0, 0)
    dropped: Counter[Reason] = field(default_factory=Counter)
    noticed: Counter[Reason] = field(default_factory=Counter)
    examples: defaultdict[Reason, list[str]] = field(default_factory=lambda: defaultdict(list))

    def keep(self, source: list[int], target: list[int]) -> None:
        """Count a pair that stays, and its tokens."""
        self.kept += 1
        self.tokens = self.tokens[0] + len(source), self.tokens[1] + len(target)

    def notice(self, reason: Reason, number: int, pair: tuple[str, str], *, dropped: bool) -> None:
        """Count a flaw of the pair in that line, and keep the first few as examples."""
        (self.dropped if dropped else self.noticed)[reason] += 1
        if len(self.examples[reason]) < _EXAMPLES:
            shown = "  |  ".join(_shorten(side) for side in pair)
            self.examples[reason].append(f"line {number:,}: {shown}")

    def leave_out_tree(self, message: str) -> None:
        """Count a tree that is none; the message names its place and what is wrong."""
        self.dropped["no tree"] += 1
        if len(self.examples["no tree"]) < _EXAMPLES:
            self.examples["no tree"].append(message)

    def complaint(self) -> str | None:
        """What to warn of, where many pairs were dropped for what is wrong with them."""
        total = self.kept + self.dropped.total()
        wrong = _most_first(Counter({reason: n for reason, n in self.dropped.items() if reason not in _MEANT}))
        count = sum(n for _, n in wrong)
        if count <= _MANY * total:
            return None
        why = ", ".join(f"{reason} {n:,}" for reason, n in wrong)
        return f"{self.name}: {count:,} of {total:,} pairs are left out ({why}): is that meant?"

    def lines(self) -> list[str]:
        """The report, for people: what occurs most first, whatever was met first."""
        total = self.kept + self.dropped.total()
        means = [f"{count / max(1, self.kept):.1f}" for count in self.tokens]
        lines = [
            f"{self.name}: {self.kept:,} of {total:,} pairs kept; {means[0]} source and {means[1]} target tokens each"
        ]
        for reason, count in _most_first(self.dropped):
            lines += [f"  {count:,} dropped: {reason}", *self._examples(reason)]
        for reason, count in _most_first(self.noticed):
            what, setting = _NOTICED[reason]
            lines += [
                f'  {count:,} {what}, which alone drops no pair ({setting} = "drop" leaves them out)',
                *self._examples(reason),
            ]
        return lines

    def _examples(self, reason: Reason) -> list[str]:
        return [f"    {example}" for example in self.examples[reason]]


def _most_first(counts: Counter[Reason]) -> list[tuple[Reason, int]]:
    return sorted(counts.items(), key=lambda each: (-each[1], each[0]))


def _shorten(text: str) -> str:
    shown = _BYTE.sub(r"\\x\1", repr(text))
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."


@final
class DuplicateFinder:
    """Remembers which pairs occurred, on disk: memory does not grow with the corpus."""

    def __init__(self) -> None:
        # Without a name, SQLite keeps its table in a temporary file that goes with the connection.
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA temp_store = FILE; BEGIN;"
            "CREATE TABLE seen (pair INTEGER PRIMARY KEY);"
        )

    def close(self) -> None:
        """Give the disk's room back."""
        self._database.close()

    def is_new(self, pair: tuple[str, str]) -> bool:
        """Whether this is the pair's first time; two pairs in 2^64 are taken for one.

        Raises:
            BadInputError: There is no room left for what it has to remember.
        """
        # No text has this byte, so the sides stay apart.
        digest = hashlib.blake2b(b"\xff".join(side.encode() for side in pair), digest_size=8).digest()
        number = int.from_bytes(digest, signed=True)
        try:
            return self._database.execute("INSERT OR IGNORE INTO seen VALUES (?)", (number,)).rowcount == 1
        except sqlite3.OperationalError as error:
            raise BadInputError(
                f"which pairs occurred cannot be remembered: {error}: that takes some 20 bytes a pair in the system's "
                f"folder for temporary files: name another one in SQLITE_TMPDIR"
            ) from error


@final
class HeldOut:
    """The sentences of pairs that a model is judged by; case and white space make no other sentence."""

    def __init__(self, pairs: Iterable[tuple[str, str]], *, of_trees: bool) -> None:
        """Of trees the sources alone count: many sentences have trees of one shape."""
        self._sides: tuple[set[str], ...] = (set(),) if of_trees else (set(), set())
        for pair in pairs:
            for known, side in zip(self._sides, pair, strict=False):
                known.add(_fold(side))

    def overlaps(self, pair: tuple[str, str]) -> bool:
        """Whether the source is one of the sources, or the target one of the targets."""
        return any(_fold(side) in known for known, side in zip(self._sides, pair, strict=False))


@final
class PairFilter:
    """Finds what is wrong with a pair, before and after it is tokenized."""

    def __init__(self, config: DataConfig, dev: Iterable[tuple[str, str]], seen: DuplicateFinder | None) -> None:
        """Without ``seen``, no pair is taken for a duplicate."""
        self._config = config
        self._dev = HeldOut(dev, of_trees=config.dev.trees is not None)
        self._seen = seen

    def accepts_text(self, number: int, pair: tuple[str, str], tally: Tally) -> bool:
        """Whether the pair may be learned from; what speaks against it is counted."""
        if (flaw := text_flaw(pair)) is not None:
            tally.notice(flaw, number, pair, dropped=True)
            return False
        choices: list[tuple[Reason, bool, str]] = [
            ("in dev", self._dev.overlaps(pair), self._config.dev_overlap),
            ("duplicate", self._seen is not None and not self._seen.is_new(pair), self._config.duplicates),
        ]
        for reason, found, choice in choices:
            if found:
                tally.notice(reason, number, pair, dropped=choice == "drop")
                if choice == "drop":
                    return False
        return True

    def length_flaw(self, source: list[int], target: list[int]) -> Reason | None:
        """What speaks against a pair's lengths, the end symbol of each side counted."""
        shorter, longer = sorted((len(source) + 1, len(target) + 1))
        if longer > self._config.max_length:
            return "too long"
        if self._config.max_length_ratio is not None and longer > self._config.max_length_ratio * shorter:
            return "length ratio"
        return None


def text_flaw(pair: tuple[str, str]) -> Reason | None:
    """What keeps a pair from being one at all."""
    source, target = pair
    if not (is_text(source) and is_text(target)):
        return "invalid UTF-8"
    return None if source.strip() and target.strip() else "empty side"


def _fold(text: str) -> str:
    """Upper and lower case and white space make no other sentence."""
    return " ".join(text.casefold().split())
