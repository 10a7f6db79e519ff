"""Phrases that must stand in an output: an automaton (Aho and Corasick 1975) a sentence, a state for each row."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transduce.search.constraint import Proposals

# The node of the automaton, and the phrases met so far as the bits of a number.
Place = tuple[int, int]


@final
@dataclass(frozen=True)
class Containing:
    """Each output has all of its sentence's phrases, anywhere and in any order; a symbol may count for several.

    A hypothesis may only go on such that what it still lacks fits in, one phrase behind the other, before its limit.
    """

    phrases: Mapping[int, Sequence[Sequence[int]]]
    end_id: int

    def symbols(self, number: int) -> Collection[int]:
        """Those of the sentence's phrases."""
        return {symbol for phrase in self.phrases.get(number, ()) for symbol in phrase}

    def start(self, numbers: Sequence[int], beam: int, device: torch.device) -> "_Contained":
        """Nothing has been met."""
        automata = [Automaton(self.phrases.get(number, ())) for number in numbers]
        rows = tuple(automaton for automaton in automata for _ in range(beam))
        return _Contained(rows, tuple((0, 0) for _ in rows), self.end_id, device)


@final
@dataclass(frozen=True)
class View:
    """How many symbols a place lacks; how many after each symbol that leads somewhere, and after any other one."""

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
        rest = sum(len(phrase) for number, phrase in enumerate(self._phrases) if not met >> number & 1)
        return rest - max(self._depth[each] if self._begun[each] & ~met else 0 for each in self._suffixes(node))


@final
@dataclass(frozen=True)
class _Contained:
    automata: tuple[Automaton, ...]
    places: tuple[Place, ...]
    end_id: int
    device: torch.device
    views: tuple[View, ...] = field(init=False)

    def __post_init__(self) -> None:
        views = tuple(automaton.view(place) for automaton, place in zip(self.automata, self.places, strict=True))
        object.__setattr__(self, "views", views)

    def mask(
        self,
        scores: Float[Tensor, "rows vocabulary"],
        written: Int[Tensor, "rows time"],
        room: Int[Tensor, " rows"],
    ) -> None:
        lacking = torch.tensor([view.lacking > 0 for view in self.views], device=self.device)
        scores[lacking, self.end_id] = -torch.inf
        for row, (view, left) in enumerate(zip(self.views, room.tolist(), strict=True)):
            # Behind the next symbol, what lacks and the end symbol have to fit in.
            if view.lacking and view.otherwise > left - 2:
                allowed = [symbol for symbol, lacks in view.after.items() if lacks <= left - 2]
                kept = scores[row, allowed]
                scores[row] = -torch.inf
                scores[row, allowed] = kept

    def propose(self) -> Proposals | None:
        """What leads on in each row; a bank is the number of symbols that are there already."""
        width = max((len(view.after) for view in self.views), default=0)
        if not width:
            return None
        symbols, banks, otherwise = [], [], []
        for automaton, view in zip(self.automata, self.views, strict=True):
            after = list(view.after.items()) or [(self.end_id, 0)]
            after += after[:1] * (width - len(after))
            symbols.append([symbol for symbol, _ in after])
            banks.append([automaton.symbols - lacks for _, lacks in after])
            otherwise.append(automaton.symbols - view.otherwise)
        return Proposals(*(torch.tensor(each, device=self.device) for each in (symbols, banks, otherwise)))

    def advance(self, symbols: Int[Tensor, " rows"]) -> "_Contained":
        steps = zip(self.automata, self.places, symbols.tolist(), strict=True)
        return replace(self, places=tuple(automaton.read(place, symbol) for automaton, place, symbol in steps))

    def reorder(self, rows: Int[Tensor, " kept"]) -> "_Contained":
        kept = rows.tolist()
        return replace(
            self,
            automata=tuple(self.automata[row] for row in kept),
            places=tuple(self.places[row] for row in kept),
        )

    def admit(self, other: "_Contained") -> "_Contained":
        return replace(self, automata=self.automata + other.automata, places=self.places + other.places)
