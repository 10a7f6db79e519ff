"""Outputs that are trees over a sentence's words, each phrase closed and none empty: a pushdown automaton over ids."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Final, Literal, NamedTuple, final

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
    # What they restrict to is the same in all sentences, and made once.
    _known: dict[tuple[bool, bool, int | None], Restriction] = field(default_factory=dict, repr=False, compare=False)
    _alone: dict[int, Restriction] = field(default_factory=dict, repr=False, compare=False)

    def closes(self, label: str) -> int | None:
        """What closes a phrase with this label; None where it has not been learned."""
        return self.closing.get(None, self.closing.get(label))

    @cached_property
    def closings(self) -> Mapping[int, int]:
        """What closes the phrase that a symbol opens, by that symbol, where it can be closed."""
        found = {symbol: self.closes(label) for symbol, label in self.opening.items()}
        return {symbol: closing for symbol, closing in found.items() if closing is not None}

    def only(self, *, leaf: bool, opening: bool, closing: int | None) -> Restriction:
        """Nothing else may come (``closing`` is any one symbol); without any of them, the end."""
        key = leaf, opening, closing
        if (found := self._known.get(key)) is None:
            symbols = [*(self.leaves if leaf else ()), *(self.closings if opening else ())]
            symbols += [] if closing is None else [closing]
            found = self._known[key] = Restriction(tuple(symbols) or (self.end,), only=True)
        return found

    def alone(self, symbol: int) -> Restriction:
        """Nothing but this symbol may come."""
        if (found := self._alone.get(symbol)) is None:
            found = self._alone[symbol] = Restriction((symbol,), only=True)
        return found


@final
@dataclass(frozen=True)
class WellFormed:
    """Every output is one tree over the words of its sentence (``words``, by the sentence's number).

    A word is the ids that stand for it behind its leaf: none where outputs have no words.

    No hypothesis goes on such that its tree could not end before the limit: begun phrases have to be closed, and every
    word that is missing needs a symbol.
    """

    bounds: ClassVar[Literal[True]] = True

    trees: TreeSymbols
    words: Mapping[int, Sequence[Sequence[int]]]
    deepest: int = DEEPEST

    def symbols(self, number: int) -> Collection[int]:
        """Whatever a tree is made of."""
        spelled = (each for word in self.words[number] for each in word)
        return {*self.trees.closings, *self.trees.closing.values(), *self.trees.leaves, *spelled}

    def start(self, number: int) -> "_Phrases | None":
        """No phrase has begun."""
        words = self.words[number]
        # What is needed from each word on: its leaf, and the ids behind it.
        needed = [0]
        for word in reversed(words):
            needed.append(needed[-1] + 1 + len(word))
        return _Phrases(self, words, tuple(reversed(needed)))


@final
class _Phrases(NamedTuple):  # one is made for every symbol of every hypothesis: a dataclass takes longer
    """The phrases that are open, each by its closing symbol, the last one last.

    ``needed`` are the symbols that the words take from each of them on; ``first`` is the next word; ``due`` are the ids
    of the last one that are to come; ``begun`` phrases in a row have no word yet.
    """

    constraint: WellFormed
    words: Sequence[Sequence[int]]
    needed: tuple[int, ...]
    first: int = 0
    due: Sequence[int] = ()
    open: tuple[int, ...] = ()
    begun: int = 0

    def restrict(self, written: Sequence[int], room: int) -> Restriction | None:
        """What keeps a way to the end; where there is nothing left to open or close, that is the end itself."""
        constraint, words, needed, first, due, open_, begun = self
        if due:
            return constraint.trees.alone(due[0])
        depth, missing = len(open_), first < len(words)
        # What has to come yet at least, the end counted; a new phrase needs two symbols more.
        least = needed[first] + depth + 1
        return constraint.trees.only(
            leaf=depth > 0 and missing,
            opening=missing and begun < constraint.deepest and least + 2 <= room,
            closing=None if depth == 0 or begun or (depth == 1 and missing) else open_[-1],
        )

    def propose(self) -> Proposals | None:
        """Nothing."""
        return None

    def advance(self, symbol: int) -> "_Phrases":
        """A phrase begins or ends, or a word comes, or what stands for it."""
        constraint, words, needed, first, due, open_, begun = self
        if due:
            return _Phrases(constraint, words, needed, first, due[1:], open_, begun)
        if (closing := constraint.trees.closings.get(symbol)) is not None:
            return _Phrases(constraint, words, needed, first, due, (*open_, closing), begun + 1)
        if open_ and symbol == open_[-1]:
            return _Phrases(constraint, words, needed, first, due, open_[:-1], 0)
        if symbol == constraint.trees.end:
            return self
        return _Phrases(constraint, words, needed, first + 1, words[first], open_, 0)
