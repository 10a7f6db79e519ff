"""A round of beam search in one call (rounds.cpp): ranking, what ends, what stays open, and whose outputs are certain.

The plain formula is ``search/hypotheses.py``, sentence by sentence: both give the same to the last bit. What a round
needs stays in flat arrays from one to the next. Symbols are kept once, with the hypothesis that each continues, and put
together to an output when its sentence is done.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, final

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int64, Shaped
from torch import Tensor

from transduce.config import LengthPenaltyKind
from transduce.kernels.allowed import Choices, LogitColumns
from transduce.kernels.interface import Ended, ListsAddress, RoundAddress, Searched, Written
from transduce.kernels.native import address, array_address, call, has_native
from transduce.kernels.ranking import choices_addresses, lists_address, symbols_of
from transduce.kernels.transformer import READS_NOTHING

_PENALTIES: Final[dict[LengthPenaltyKind, int]] = {"none": 0, "gnmt": 1, "marian": 2}
_SEARCHED, _ENDED, _WRITTEN = map(np.dtype, (Searched, Ended, Written))
# Room for so many symbols of each hypothesis at first; it doubles when it is full.
_COLUMNS: Final = 16


def can_advance(device: torch.device) -> bool:
    """Whether there are C++ kernels for rounds of searches on a device."""
    return has_native(torch.empty(0, device=device))


@final
class Asked(NamedTuple):
    """What a sentence is asked for: ``limit`` counts the end symbol, ``min_length`` does not."""

    limit: int
    min_length: int
    n_best: int
    full_beam: bool
    penalty: LengthPenaltyKind
    alpha: float


@final
class Output(NamedTuple):
    """An output: its ids without the end symbol, its natural log-probability with it, and its score."""

    ids: tuple[int, ...]
    log_probability: float
    score: float


@final
@dataclass
class FlatBeams:
    """The hypotheses of some sentences in arrays that C++ goes through once a round; row b of a sentence is its b-th.

    ``newest`` are the symbols that the rows read next, those in empty places of a beam ``READS_NOTHING``. ``rows`` are
    the rows that they go on from, behind a round in which any has ``moved``. ``certain`` says whose outputs are final,
    and ``done`` how many. ``forbidden`` symbols are never written. ``longest`` is how much any sentence has written.
    """

    searched: Shaped[np.ndarray, " sentences"]  # of Searched
    so_far: Float32[np.ndarray, "sentences beam"]
    ended: Shaped[np.ndarray, "sentences most"]  # of Ended, of which the first ones are there
    written: Shaped[np.ndarray, "sentences columns beam"]  # of Written, of which the first columns are there
    newest: Int64[Tensor, " rows"]
    forbidden: tuple[int, ...]
    end: int
    longest: int = 0
    rows: Int64[Tensor, " rows"] = field(init=False)
    certain: Bool[Tensor, " sentences"] = field(init=False)
    _banned: Int64[Tensor, " banned"] = field(init=False)
    _round: RoundAddress = field(init=False)

    @classmethod
    def begin(
        cls, asked: Sequence[Asked], beam: int, newest: Int64[Tensor, " rows"], forbidden: tuple[int, ...], end: int
    ) -> "FlatBeams":
        """Nothing has been written yet."""
        count = len(asked)
        records = [(*each[:4], _PENALTIES[each.penalty], each.alpha, 0, 0) for each in asked]
        # At first all hypotheses are alike: only one of them counts.
        so_far = np.full((count, beam), -np.inf, np.float32)
        so_far[:, 0] = 0
        ended = np.empty((count, max(beam, *(each.n_best for each in asked))), _ENDED)
        written = np.empty((count, _COLUMNS, beam), _WRITTEN)
        return cls(np.array(records, _SEARCHED), so_far, ended, written, newest, forbidden, end)

    def __post_init__(self) -> None:
        """Look where everything lies, once for the rounds to come."""
        sentences, beam = self.so_far.shape
        most, columns = self.ended.shape[1], self.written.shape[1]
        self.rows, self.certain = torch.empty_like(self.newest), torch.empty(sentences, dtype=torch.bool)
        self._banned = symbols_of(self.forbidden)
        self._round = RoundAddress(
            searched=array_address(self.searched, _SEARCHED, sentences),
            so_far=array_address(self.so_far, np.dtype(np.float32), sentences, beam),
            ended=array_address(self.ended, _ENDED, sentences, most),
            written=array_address(self.written, _WRITTEN, sentences, columns, beam),
            newest=address(self.newest, torch.long, sentences * beam),
            rows=address(self.rows, torch.long, sentences * beam),
            certain=address(self.certain, torch.bool, sentences),
            **{"sentences": sentences, "beam": beam, "most": most, "columns": columns},
            banned=address(self._banned, torch.long, len(self.forbidden)),
            **{"bans": len(self.forbidden), "end": self.end},
        )

    @property
    def moved(self) -> bool:
        """Whether any row goes on from another one."""
        return bool(self._round.moved)

    @property
    def failed(self) -> bool:
        """Whether a score of the last round was NaN: the search cannot go on."""
        return bool(self._round.not_a_number)

    @property
    def done(self) -> int:
        """How many sentences' outputs are certain."""
        return int(self._round.done)

    @property
    def beam(self) -> int:
        """The rows of each sentence."""
        return int(self.so_far.shape[1])

    @property
    def rooms(self) -> list[int]:
        """How many symbols fit yet into the outputs of each sentence, end symbol counted."""
        left: list[int] = (self.searched["limit"] - self.searched["length"]).tolist()
        return left

    def advance(
        self,
        logits: Float[Tensor, "rows columns"],
        columns: LogitColumns | None = None,
        choices: Choices | None = None,
    ) -> None:
        """Go on with the best continuations, as ``rank_continuations`` has them; may use ``logits`` up."""
        logits = logits.float().contiguous()
        round_, lists = self.prepare(logits, columns, choices)
        call("advance_beams", None, round_, lists)
        self.longest += 1

    @property
    def room(self) -> int:
        """How many rounds can be made until there is none for another symbol, or a sentence has come to its limit."""
        left = int((self.searched["limit"] - self.searched["length"]).min())
        return min(left, int(self.written.shape[1]) - self.longest)

    def prepare(
        self, logits: Float32[Tensor, "rows columns"], columns: LogitColumns | None, choices: Choices | None = None
    ) -> tuple[RoundAddress, ListsAddress | None]:
        """Make room for another symbol; what C++ is called with. Whoever calls it counts its rounds in ``longest``."""
        if self.longest == self.written.shape[1]:
            self._replace(written=_widen(self.written, 2 * self.longest))
        (sentences, beam), width, round_ = self.so_far.shape, logits.shape[1], self._round
        round_.logits, round_.width = address(logits, torch.float32, sentences * beam, width), width
        for name, value in choices_addresses(choices, sentences * beam).items():
            setattr(round_, name, value)
        return round_, None if columns is None else lists_address(columns, sentences)

    def outputs(self, sentences: Int64[np.ndarray, " chosen"]) -> list[list[Output]]:
        """The best that each of these has found so far, of as many as it was asked for."""
        searched, ended = self.searched[sentences], self.ended[sentences]
        counts = np.minimum(searched["ended"], searched["n_best"])
        most = int(counts.max(initial=0))
        there = np.arange(most) < counts[:, np.newaxis]
        longest = int(ended["length"][:, :most].max(initial=0, where=there))
        ids = np.zeros((len(sentences), most, longest), np.int64)
        found = array_address(ids, ids.dtype, *ids.shape)
        chosen = array_address(sentences, ids.dtype, len(sentences))
        call("read_outputs", None, self._round, chosen, *ids.shape, found)
        return [
            [
                Output(tuple(symbols[:length]), log_probability, score)
                for (score, log_probability, length, _), symbols in zip(several[:count], rows, strict=False)
            ]
            for count, several, rows in zip(counts.tolist(), ended.tolist(), ids.tolist(), strict=True)
        ]

    def stop(self, sentences: Int64[np.ndarray, " stopped"]) -> None:
        """These go on no more: their rows read nothing."""
        self.so_far[sentences] = -np.inf
        self.newest.numpy().reshape(-1, self.beam)[sentences] = READS_NOTHING

    def is_full(self, among: Bool[np.ndarray, " sentences"]) -> bool:
        """Whether any of these sentences has come to its limit, in rounds."""
        return bool((among & (self.searched["length"] >= self.searched["limit"])).any())

    def keep(self, sentences: Int64[np.ndarray, " kept"]) -> None:
        """Only these sentences stay."""
        beam = self.so_far.shape[1]
        searched = self.searched[sentences]
        newest = torch.from_numpy(self.newest.numpy().reshape(-1, beam)[sentences].ravel())
        self.longest = int(searched["length"].max()) if len(searched) else 0
        self._replace(
            searched=searched,
            so_far=self.so_far[sentences],
            ended=self.ended[sentences],
            written=self.written[sentences],
            newest=newest,
        )

    def admit(self, other: "FlatBeams") -> None:
        """The sentences of another come in behind these: of the same beam, the same end and the same forbidden ones."""
        assert (self.forbidden, self.end) == (other.forbidden, other.end)
        most, columns = (max(getattr(each, name).shape[1] for each in (self, other)) for name in ("ended", "written"))
        self.longest = max(self.longest, other.longest)
        self._replace(
            searched=np.concatenate([self.searched, other.searched]),
            so_far=np.concatenate([self.so_far, other.so_far]),
            ended=np.concatenate([_widen(each.ended, most) for each in (self, other)]),
            written=np.concatenate([_widen(each.written, columns) for each in (self, other)]),
            newest=torch.cat([self.newest, other.newest]),
        )

    def _replace(self, **arrays: Any) -> None:  # noqa: ANN401 - arrays of every type
        for name, array in arrays.items():
            setattr(self, name, array)
        self.__post_init__()


def _widen(array: Shaped[np.ndarray, "sentences _ *more"], columns: int) -> Shaped[np.ndarray, "sentences _ *more"]:
    """Room for more in every sentence's row."""
    if columns == array.shape[1]:
        return array
    wide = np.empty((len(array), columns, *array.shape[2:]), array.dtype)
    wide[:, : array.shape[1]] = array
    return wide
