"""The parameter counts of the paper's Table 3, beside those of the presets."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from transduce.config import PRESETS, TABLE3
from transduce.models import build_without_storage

_MILLION: Final = 1_000_000


@final
@dataclass(frozen=True)
class Row:
    """A row of the table: ``fixed`` parameters, and ``per_symbol`` for each symbol of the shared vocabulary."""

    preset: str
    printed: int
    fixed: int
    per_symbol: int

    def parameters(self, vocabulary: int) -> int:
        """How many there are with a vocabulary of so many symbols."""
        return self.fixed + vocabulary * self.per_symbol

    def off(self, vocabulary: int) -> int:
        """Millions that this is above what the paper prints, both rounded; 0 is a match."""
        return (self.parameters(vocabulary) + _MILLION // 2) // _MILLION - self.printed

    @property
    def matching(self) -> tuple[int, int]:
        """The smallest and the largest vocabulary that match."""
        least = self.printed * _MILLION - _MILLION // 2
        first, behind = (-(-(bound - self.fixed) // self.per_symbol) for bound in (least, least + _MILLION))
        return first, behind - 1


def compare_table3() -> dict[str, Any]:
    """Every count that the paper prints, beside ours with the base model's vocabulary and with one that fits best."""
    rows = [_row(row.preset, row.millions) for row in TABLE3 if row.millions is not None]
    own, fitting = PRESETS["base"].vocab_size, fitting_vocabularies(rows)
    middle = sum(fitting) // 2
    return {
        "vocabulary": own,
        "fitting_vocabularies": list(fitting),
        "fitting_vocabulary": middle,
        "rows": [
            {
                "preset": row.preset,
                "paper_millions": row.printed,
                "parameters": row.parameters(own),
                "millions_off": row.off(own),
                "fitting_parameters": row.parameters(middle),
                "fitting_millions_off": row.off(middle),
            }
            for row in rows
        ],
    }


def fitting_vocabularies(rows: Sequence[Row]) -> tuple[int, int]:
    """The smallest and the largest vocabulary with which most rows match.

    A row matches from one size to another; where most of these ranges overlap, one of them begins.
    """
    ranges = [row.matching for row in rows]
    start = max((first for first, _ in ranges), key=lambda size: sum(a <= size <= b for a, b in ranges))
    return start, min(last for first, last in ranges if first <= start <= last)


def _row(preset: str, printed: int) -> Row:
    config = PRESETS[preset]
    counts = []
    for size in (config.vocab_size, config.vocab_size + 1):
        model = build_without_storage(config.model_copy(update={"vocab_size": size}))
        counts.append(sum(weight.numel() for weight in model.parameters()))
    per_symbol = counts[1] - counts[0]
    return Row(preset, printed, counts[0] - config.vocab_size * per_symbol, per_symbol)
