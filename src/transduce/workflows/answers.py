"""Translations as they are written: lines of text, JSON objects, and rows of a table."""

import json
from collections.abc import Sequence
from typing import Any, Final, Literal, final

import pyarrow as pa

from transduce.inference import Translation, pharaoh
from transduce.workflows.requests import SOURCE, Answer, free_names
from transduce.workflows.translate import one_line


def text_lines(answer: Answer, format_: Literal["text", "jsonl"], n_best: int) -> list[str]:
    """What is written of a line: ``n_best`` lines of text, or an object."""
    translation = answer.translation
    if format_ == "jsonl":
        return [json.dumps(answer.request.beside(describe(translation)), ensure_ascii=False)]
    lines = [one_line(each.text) + aligned(each) for each in (translation, *translation.alternatives)]
    return lines + [""] * (n_best - len(lines))  # an empty input has one output: readers count lines


def aligned(translation: Translation) -> str:
    """The alignment, where there is one, as it stands behind an output."""
    return "" if translation.alignment is None else f" ||| {pharaoh(translation.alignment)}"


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


@final
class AnswerTable:
    """Tables of answers: the requests' columns but for the text, and ours behind them, as ``Request.beside`` has them.

    Args:
        before: The columns of the requests.
        column: The one that has the text.
        alignment: Whether there are alignments.
        alternatives: Whether there are several outputs for a text.
    """

    def __init__(self, before: pa.Schema, column: str, *, alignment: bool, alternatives: bool) -> None:
        self._column = column
        columns = {name: kind for name, kind in _COLUMNS.items() if alignment or name != "alignment"}
        nested = {"alternatives": pa.list_(pa.struct(list(columns.items())))} if alternatives else {}
        ours = {SOURCE: pa.string(), **columns, **nested}
        others = before.remove(before.get_field_index(column)).remove_metadata()
        names = free_names(others.names, ours)
        self._ours = pa.schema(list(ours.items()))
        self.schema = pa.schema([*others, *((names[name], kind) for name, kind in ours.items())])

    def rows(self, before: pa.RecordBatch, texts: Sequence[str], translations: Sequence[Translation]) -> pa.Table:
        """The answers to some rows; where a translation lacks something, its place is empty."""
        described = [{SOURCE: text, **describe(each)} for text, each in zip(texts, translations, strict=True)]
        ours = pa.Table.from_pylist(described, schema=self._ours)
        return pa.table([*before.drop_columns([self._column]).columns, *ours.columns], schema=self.schema)
