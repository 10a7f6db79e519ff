"""Constraints that follow from what is written alone: prefixes, n-grams only once, phrases that must not come."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from transduce.search.constraint import Proposals

Scores = Float[Tensor, "rows vocabulary"]
Written = Int[Tensor, "rows time"]
Rows = Int[Tensor, " rows"]


@final
@dataclass(frozen=True)
class Prefixes:
    """Outputs begin with these ids; sentences without an entry begin as they like."""

    ids: Mapping[int, Sequence[int]]

    def symbols(self, number: int) -> Collection[int]:
        """The prefix's."""
        return self.ids.get(number, ())

    def start(self, numbers: Sequence[int], beam: int, device: torch.device) -> "_Forced":
        """The prefixes of these sentences."""
        prefixes = [self.ids.get(number, ()) for number in numbers]
        table = torch.full((len(prefixes), max(map(len, prefixes), default=0)), -1, dtype=torch.long)
        for row, prefix in zip(table, prefixes, strict=True):
            row[: len(prefix)] = torch.tensor(prefix, dtype=torch.long)
        return _Forced(table.repeat_interleave(beam, dim=0).to(device))


@final
@dataclass(frozen=True)
class _Forced:
    """Each row's symbols that are still to come, -1 where it is free."""

    table: Int[Tensor, "rows longest"]

    def mask(self, scores: Scores, written: Written, room: Rows) -> None:
        if not self.table.shape[1]:
            return
        symbol = self.table[:, 0]
        rows = (symbol >= 0).nonzero().squeeze(1)
        kept = scores[rows, symbol[rows]]
        scores[rows] = -torch.inf
        scores[rows, symbol[rows]] = kept

    def propose(self) -> Proposals | None:
        return None

    def advance(self, symbols: Rows) -> "_Forced":
        return _Forced(self.table[:, 1:])

    def reorder(self, rows: Int[Tensor, " kept"]) -> "_Forced":
        return _Forced(self.table[rows])

    def admit(self, other: "_Forced") -> "_Forced":
        longest = max(self.table.shape[1], other.table.shape[1])
        tables = (F.pad(each, (0, longest - each.shape[1]), value=-1) for each in (self.table, other.table))
        return _Forced(torch.cat([*tables]))


@final
@dataclass(frozen=True)
class NoRepeat:
    """No n symbols stand twice in the same order in an output."""

    n: int

    def symbols(self, number: int) -> Collection[int]:
        """None: it only forbids."""
        return ()

    def start(self, numbers: Sequence[int], beam: int, device: torch.device) -> "NoRepeat":
        """Nothing has to be remembered."""
        return self

    def mask(self, scores: Scores, written: Written, room: Rows) -> None:
        """The last n - 1 symbols must not go on as they did before."""
        if written.shape[1] < self.n:
            return
        before = written.unfold(1, self.n, 1)
        newest = written[:, written.shape[1] - self.n + 1 :].unsqueeze(1)
        again = (before[:, :, :-1] == newest).all(dim=2) & (before[:, :, -1] >= 0)
        rows, places = again.nonzero(as_tuple=True)
        scores[rows, before[rows, places, -1]] = -torch.inf

    def propose(self) -> Proposals | None:
        """Never."""
        return None

    def advance(self, symbols: Rows) -> "NoRepeat":
        """Nothing has to be remembered."""
        return self

    def reorder(self, rows: Int[Tensor, " kept"]) -> "NoRepeat":
        """Nothing has to be remembered."""
        return self

    def admit(self, other: "NoRepeat") -> "NoRepeat":
        """Nothing has to be remembered."""
        return self


@final
@dataclass(frozen=True)
class Without:
    """None of these phrases stands in any output."""

    phrases: Sequence[Sequence[int]]

    def symbols(self, number: int) -> Collection[int]:
        """None: it only forbids."""
        return ()

    def start(self, numbers: Sequence[int], beam: int, device: torch.device) -> "_Banned":
        """The phrases, those of one length together."""
        by_length = groupby(sorted((phrase for phrase in self.phrases if phrase), key=len), key=len)
        return _Banned(tuple(torch.tensor(list(map(list, phrases)), device=device) for _, phrases in by_length))


@final
@dataclass(frozen=True)
class _Banned:
    phrases: tuple[Int[Tensor, "_ _"], ...]

    def mask(self, scores: Scores, written: Written, room: Rows) -> None:
        for phrases in self.phrases:
            begun = phrases.shape[1] - 1
            if begun > written.shape[1]:
                return
            newest = written[:, written.shape[1] - begun :].unsqueeze(1)
            rows, which = (newest == phrases[:, :-1]).all(dim=2).nonzero(as_tuple=True)
            scores[rows, phrases[which, -1]] = -torch.inf

    def propose(self) -> Proposals | None:
        return None

    def advance(self, symbols: Rows) -> "_Banned":
        return self

    def reorder(self, rows: Int[Tensor, " kept"]) -> "_Banned":
        return self

    def admit(self, other: "_Banned") -> "_Banned":
        return self
