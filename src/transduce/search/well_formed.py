"""Outputs that are trees over a sentence's words, each phrase closed and none empty: a pushdown automaton over ids."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, final

from transduce.search.constraint import Proposals, Restriction

# Phrases that may begin in a row, before a word: far more than treebanks have (8 in CRAFT, 6 in GUM).
DEEPEST: Final = 16


@final
@dataclass(frozen=True)
class TreeSymbols:
    """What ids mean in trees: each ``opening`` and ``closing`` by its label, or None where one id closes any phrase."""

    opening: Mapping[int, str]
    closing: Mapping[str | None, int]
    leaves: Collection[int]
    end: int

    def closes(self, label: str) -> int | None:
        """What closes a phrase with this label; None where it has not been learned."""
        return self.closing.get(None, self.closing.get(label))


@final
@dataclass(frozen=True)
class WellFormed:
    """Every output is one tree over as many words as its sentence has (``words``, by the sentence's number).

    No hypothesis goes on such that its tree could not end before the limit: begun phrases have to be closed, and every
    word that is missing needs a symbol.
    """

    trees: TreeSymbols
    words: Mapping[int, int]
    deepest: int = DEEPEST
    _known: dict[tuple[bool, bool, int | None], Restriction] = field(default_factory=dict, repr=False, compare=False)

    def symbols(self, number: int) -> Collection[int]:
        """Whatever a tree is made of."""
        return {*self._openings, *self.trees.closing.values(), *self.trees.leaves}

    def start(self, number: int) -> "_Phrases | None":
        """No phrase has begun."""
        return _Phrases(self, self.words[number])

    @property
    def _openings(self) -> list[int]:
        """Those of phrases that can be closed."""
        return [symbol for symbol, label in self.trees.opening.items() if self.trees.closes(label) is not None]

    def only(self, *, leaf: bool, opening: bool, closing: int | None) -> Restriction:
        """Nothing else may come; without any of them, the end."""
        key = leaf, opening, closing
        if (found := self._known.get(key)) is None:
            symbols = [*(self.trees.leaves if leaf else ()), *(self._openings if opening else ())]
            symbols += [] if closing is None else [closing]
            found = self._known[key] = Restriction(tuple(symbols) or (self.trees.end,), only=True)
        return found


@final
@dataclass(frozen=True)
class _Phrases:
    """The phrases that are open, each with its closing symbol and the state of what is around it.

    ``missing`` words are to come; ``begun`` phrases in a row have no word yet; ``done``: the tree has ended.
    """

    constraint: WellFormed
    missing: int
    open: "tuple[int, object] | None" = None
    depth: int = 0
    begun: int = 0
    done: bool = False

    def restrict(self, written: Sequence[int], room: int) -> Restriction | None:
        """What keeps a way to the end."""
        if self.done:
            return self.constraint.only(leaf=False, opening=False, closing=None)
        # What has to come yet at least, the end counted; a new phrase needs two symbols more.
        needed = self.missing + self.depth + 1
        return self.constraint.only(
            leaf=self.depth > 0 and self.missing > 0,
            opening=self.missing > 0 and self.begun < self.constraint.deepest and needed + 2 <= room,
            closing=None if self.open is None or self.begun or (self.depth == 1 and self.missing) else self.open[0],
        )

    def propose(self) -> Proposals | None:
        """Nothing."""
        return None

    def advance(self, symbol: int) -> "_Phrases":
        """A phrase begins or ends, or a word comes."""
        trees = self.constraint.trees
        if (label := trees.opening.get(symbol)) is not None:
            closing = trees.closes(label)
            assert closing is not None
            opened = closing, self.open
            return _Phrases(self.constraint, self.missing, opened, self.depth + 1, self.begun + 1)
        if self.open is not None and symbol == self.open[0]:
            around, depth = self.open[1], self.depth - 1
            return _Phrases(self.constraint, self.missing, around, depth, 0, done=depth == 0)  # type: ignore[arg-type]
        if symbol == trees.end:
            return self
        return _Phrases(self.constraint, self.missing - 1, self.open, self.depth, 0)
