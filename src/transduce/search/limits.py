"""Constraints that follow from what is written alone: prefixes, n-grams only once, phrases that must not occur."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, final

from transduce.search.constraint import Proposals, Restriction


@final
@dataclass(frozen=True)
class Prefixes:
    """Outputs begin with these ids; sentences without an entry are free."""

    bounds: ClassVar[Literal[True]] = True

    ids: Mapping[int, Sequence[int]]

    def symbols(self, number: int) -> Collection[int]:
        """The prefix's."""
        return self.ids.get(number, ())

    def start(self, number: int) -> "_Prefix | None":
        """The sentence's prefix."""
        prefix = self.ids.get(number, ())
        return _Prefix(tuple(Restriction((symbol,), only=True) for symbol in prefix)) if prefix else None


@final
@dataclass(frozen=True)
class Offered:
    """Asks for nothing: where there is a shortlist, outputs may be written with these ids besides."""

    ids: tuple[int, ...]

    def symbols(self, number: int) -> Collection[int]:
        """All of them."""
        return self.ids

    def start(self, number: int) -> None:
        """Every sentence is free."""
        return


@final
class _Prefix(NamedTuple):  # one is made for every symbol
    restrictions: tuple[Restriction, ...]
    written: int = 0

    def restrict(self, written: Sequence[int], room: int) -> Restriction | None:
        return self.restrictions[self.written] if self.written < len(self.restrictions) else None

    def propose(self) -> Proposals | None:
        return None

    def advance(self, symbol: int) -> "_Prefix":
        return self if self.written == len(self.restrictions) else _Prefix(self.restrictions, self.written + 1)


@final
@dataclass(frozen=True)
class NoRepeat:
    """No n symbols occur twice in the same order in an output."""

    n: int

    def symbols(self, number: int) -> Collection[int]:
        """None: it only forbids."""
        return ()

    def start(self, number: int) -> "NoRepeat":
        """It is its own state."""
        return self

    def restrict(self, written: Sequence[int], room: int) -> Restriction | None:
        """The last n - 1 symbols must not be continued as they were before."""
        context = self.n - 1
        if not context:
            return Restriction(frozenset(written)) if written else None
        if len(written) <= context:
            return None
        newest, last = written[-context:], written[-1]
        banned: list[int] = []
        end = context - 1  # where an earlier occurrence of the newest symbols may end
        while True:
            try:
                end = written.index(last, end, len(written) - 1)
            except ValueError:
                return Restriction(tuple(banned)) if banned else None
            if written[end - context + 1 : end + 1] == newest:
                banned.append(written[end + 1])
            end += 1

    def propose(self) -> Proposals | None:
        """Nothing."""
        return None

    def advance(self, symbol: int) -> "NoRepeat":
        """It follows from what is written."""
        return self


@final
class Without:
    """None of these phrases occurs in any output."""

    def __init__(self, phrases: Iterable[Sequence[int]]) -> None:
        last: dict[tuple[int, ...], set[int]] = {}
        for phrase in phrases:
            if phrase:
                last.setdefault(tuple(phrase[:-1]), set()).add(phrase[-1])
        # What must not follow which symbols, by how many these are.
        self._banned: dict[int, dict[tuple[int, ...], set[int]]] = {}
        for context, symbols in last.items():
            self._banned.setdefault(len(context), {})[context] = symbols
        # What must not come at all.
        self._never = frozenset(last.get((), ()))
        self._always = Restriction(self._never) if self._never else None

    def symbols(self, number: int) -> Collection[int]:
        """None: it only forbids."""
        return ()

    def start(self, number: int) -> "Without":
        """It is its own state."""
        return self

    def restrict(self, written: Sequence[int], room: int) -> Restriction | None:
        """The last symbols of the phrases that are written but for these."""
        banned = [
            symbols
            for length, contexts in self._banned.items()
            if 0 < length <= len(written) and (symbols := contexts.get(tuple(written[-length:])))
        ]
        return Restriction(self._never.union(*banned)) if banned else self._always

    def propose(self) -> Proposals | None:
        """Nothing."""
        return None

    def advance(self, symbol: int) -> "Without":
        """It follows from what is written."""
        return self
