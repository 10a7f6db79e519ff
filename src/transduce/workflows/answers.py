"""Translations as they are written: lines of text, JSON objects, and rows of a table."""

import json
from collections.abc import Mapping
from typing import Any, Final, Literal, final

import pyarrow as pa

from transduce.inference import Translation, pharaoh
from transduce.workflows.requests import SOURCE, Answer, free_names
from transduce.workflows.translate import one_line

# Between what stands on a line, as Moses and Marian have it.
_FIELD: Final = " ||| "


def text_lines(answer: Answer, format_: Literal["text", "jsonl"], n_best: int) -> list[str]:
    """What is written of a line: ``n_best`` lines of text, or an object."""
    translation = answer.translation
    if format_ == "jsonl":
        return [json.dumps(answer.request.beside(describe(translation)), ensure_ascii=False)]
    lines = [one_line(each.text) + aligned(each) for each in (translation, *translation.alternatives)]
    # An empty input has one output: readers count lines, and the fields of each.
    nothing = "" if translation.alignment is None else _FIELD
    return lines + [nothing] * (n_best - len(lines))


def aligned(translation: Translation) -> str:
    """The alignment, where there is one, as it stands behind an output."""
    return "" if translation.alignment is None else _FIELD + pharaoh(translation.alignment)


def describe(translation: Translation) -> dict[str, Any]:
    """The fields of a translation's object."""
    none = translation.error is not None  # JSON has no number for the logarithm of nothing
    described: dict[str, Any] = {
        "text": translation.text,
        "score": None if none else translation.score,
        "log_probability": None if none else translation.log_probability,
        "tokens": translation.tokens,
        "at_limit": translation.at_limit,
    }
    if translation.alignment is not None:
        described["alignment"] = pharaoh(translation.alignment)
    if none:
        described["error"] = translation.error
    if translation.alternatives:
        described["alternatives"] = [describe(each) for each in translation.alternatives]
    return described


_COLUMNS: Final[dict[str, pa.DataType]] = {
    "text": pa.string(),
    "score": pa.float64(),
    "log_probability": pa.float64(),
    "tokens": pa.list_(pa.string()),
    "at_limit": pa.bool_(),
    "alignment": pa.string(),
    "error": pa.string(),
}


def answer_columns(*, alignment: bool, alternatives: bool) -> dict[str, pa.DataType]:
    """The columns of a table of translations: the fields of an object, where any has them."""
    columns = {name: kind for name, kind in _COLUMNS.items() if alignment or name != "alignment"}
    nested = {"alternatives": pa.list_(pa.struct(list(columns.items())))} if alternatives else {}
    return {SOURCE: pa.string(), **columns, **nested}


@final
class WiderTable:
    """Tables that get columns of ours behind their own, as ``Request.beside`` names them.

    Args:
        before: Their columns.
        ours: What comes.
        without: A column that goes.
    """

    def __init__(self, before: pa.Schema, ours: Mapping[str, pa.DataType], without: str | None = None) -> None:
        self._kept = [name for name in before.names if name != without]
        others = [before.field(name) for name in self._kept]
        names = free_names(self._kept, ours)
        self._ours = pa.schema(list(ours.items()))
        self.schema = pa.schema([*others, *((names[name], kind) for name, kind in ours.items())])

    def rows(self, before: pa.RecordBatch, ours: list[dict[str, Any]]) -> pa.Table:
        """Some rows; what ours lack of a column is empty."""
        wider = pa.Table.from_pylist(ours, schema=self._ours)
        return pa.table([*map(before.column, self._kept), *wider.columns], schema=self.schema)
