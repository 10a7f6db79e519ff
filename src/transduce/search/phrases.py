"""Phrases that must occur in an output: an automaton (Aho and Corasick 1975) for each sentence."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

from transduce.search.constraint import Proposals, Restriction

# The node of the automaton, and the phrases met so far as the bits of a number.
Place = tuple[int, int]


@final
@dataclass(frozen=True)
class Containing:
    """Each output has all of its sentence's phrases, anywhere and in any order; a symbol may count for several.

    A hypothesis may only go on such that what is still missing fits in before its limit: one phrase after the other,
    without those that stand in others.
    """

    phrases: Mapping[int, Sequence[Sequence[int]]]
    end_id: int

    def symbols(self, number: int) -> Collection[int]:
        """Those of the sentence's phrases."""
        return {symbol for phrase in self.phrases.get(number, ()) for symbol in phrase}

    def start(self, number: int) -> "_Contained | None":
        """Nothing has been met."""
        automaton = Automaton(self.phrases.get(number, ()))
        return _Contained(automaton, self.end_id) if automaton.symbols else None


@final
@dataclass(frozen=True)
class View:
    """How many symbols are missing at a place; how many after each symbol that leads on, and after any other one."""

    lacking: int
    after: dict[int, int]
    otherwise: int


@final
class Automaton:
    """Reads symbols and knows which of some phrases have stood among them."""

    def __init__(self, phrases: Sequence[Sequence[int]]) -> None:
        self._phrases = [tuple(phrase) for phrase in dict.fromkeys(map(tuple, phrases)) if phrase]
        self._following: list[dict[int, int]] = [{}]
        self._depth, self._begun, self._met = [0], [0], [0]
        for number, phrase in enumerate(self._phrases):
            self._plant(phrase, 1 << number)
        self._shorter = [0] * len(self._following)
        self._connect()
        self._within = [self._find_within(phrase) & ~(1 << number) for number, phrase in enumerate(self._phrases)]
        self._views: dict[Place, View] = {}

    @property
    def symbols(self) -> int:
        """How many symbols all phrases have together."""
        return sum(map(len, self._phrases))

    def read(self, place: Place, symbol: int) -> Place:
        """Where a symbol leads."""
        node, met = place
        while node and symbol not in self._following[node]:
            node = self._shorter[node]
        node = self._following[node].get(symbol, 0)
        return node, met | self._met[node]

    def view(self, place: Place) -> View:
        """What can be said of a place."""
        if place not in self._views:
            leading = {symbol for node in self._suffixes(place[0]) for symbol in self._following[node]}
            after = {symbol: self._lacking(self.read(place, symbol)) for symbol in leading}
            self._views[place] = View(self._lacking(place), after, self._lacking((0, place[1])))
        return self._views[place]

    def _plant(self, phrase: Sequence[int], bit: int) -> None:
        node = 0
        for depth, symbol in enumerate(phrase, start=1):
            if symbol not in self._following[node]:
                self._following[node][symbol] = len(self._following)
                self._following.append({})
                self._depth.append(depth)
                self._begun.append(0)
                self._met.append(0)
            node = self._following[node][symbol]
            self._begun[node] |= bit
        self._met[node] |= bit

    def _connect(self) -> None:
        """Each node's longest proper suffix that is a node, whose phrases have been met too."""
        waiting = list(self._following[0].values())
        for node in waiting:
            for symbol, child in self._following[node].items():
                self._shorter[child] = self.read((self._shorter[node], 0), symbol)[0]
                waiting.append(child)
            self._met[node] |= self._met[self._shorter[node]]

    def _suffixes(self, node: int) -> list[int]:
        nodes = [node]
        while nodes[-1]:
            nodes.append(self._shorter[nodes[-1]])
        return nodes

    def _lacking(self, place: Place) -> int:
        """How many symbols are enough to meet the rest: all of it, less what of one of them is there already."""
        node, met = place
        missing = [number for number in range(len(self._phrases)) if not met >> number & 1]
        wanted = sum(1 << number for number in missing)
        for number in missing:  # those that stand in others come with them
            wanted &= ~self._within[number]
        rest = sum(len(self._phrases[number]) for number in missing if wanted >> number & 1)
        return rest - max(self._depth[each] if self._begun[each] & wanted else 0 for each in self._suffixes(node))

    def _find_within(self, phrase: Sequence[int]) -> int:
        """The phrases that stand in one, itself among them."""
        place: Place = 0, 0
        for symbol in phrase:
            place = self.read(place, symbol)
        return place[1]


@final
@dataclass(frozen=True)
class _Contained:
    """Where a hypothesis's symbols have led its sentence's automaton."""

    automaton: Automaton
    end_id: int
    place: Place = (0, 0)

    def restrict(self, written: Sequence[int], room: int) -> Restriction | None:
        view, left = self.automaton.view(self.place), room - 2
        # What is missing behind the next symbol has to fit in, and the end symbol with it.
        if view.lacking and view.otherwise > left:
            return Restriction([symbol for symbol, lacks in view.after.items() if lacks <= left], only=True)
        return Restriction((self.end_id,)) if view.lacking else None

    def propose(self) -> Proposals | None:
        """What leads on; a bank is the number of symbols of phrases that are there already."""
        view, symbols = self.automaton.view(self.place), self.automaton.symbols
        banks = {symbol: symbols - lacks for symbol, lacks in view.after.items()}
        return Proposals(banks, symbols - view.otherwise)

    def advance(self, symbol: int) -> "_Contained":
        return replace(self, place=self.automaton.read(self.place, symbol))
