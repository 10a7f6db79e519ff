"""Partitions of text, of objects and of tables, translated."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, final

from pyarrow import parquet

from transduce.config import Precision
from transduce.data.places import open_text, whole_file
from transduce.data.tables import open_table, read_texts
from transduce.inference import Translation, limits_told_once, load
from transduce.workflows.answers import WiderTable, answer_columns, describe, text_lines
from transduce.workflows.partitions import Partition, digest_models, format_of
from transduce.workflows.requests import SOURCE, Answer, Failures, RequestReader
from transduce.workflows.translate import translate_stream

_Translate = Callable[[list[str], int], list[Translation]]


@final
@dataclass(frozen=True)
class BulkTranslation:
    """What ``translate`` was asked for: ``options`` are those of ``Translator.translate`` that are the same for all."""

    models: tuple[Path, ...]
    precision: Precision
    shortlist: bool
    cache: bool
    column: str
    options: Mapping[str, Any]

    @property
    def settings(self) -> dict[str, Any]:
        """All that results follow from."""
        given = {name: value for name, value in self.options.items() if value is not None}
        own = {"precision": self.precision, "shortlist": self.shortlist, "column": self.column}
        return {"verb": "translate", "models": digest_models(self.models), **own, **given}

    def start(self, device: str | None) -> Callable[[Partition], Failures]:
        """Load the models, and see that the options are right.

        Raises:
            TransduceError: They are not, or a model cannot be loaded.
        """
        translator = load(self.models, self.precision, device, shortlist=self.shortlist, cache=self.cache)

        def translate(texts: list[str], first_number: int) -> list[Translation]:
            return translator.translate(texts, first_number=first_number, errors="return", **self.options)

        translate([], 1)
        return partial(self._do, translate)

    def _do(self, translate: _Translate, partition: Partition) -> Failures:
        with limits_told_once(), whole_file(partition.target) as target:
            if format_of(partition.source) == "parquet":
                return self._translate_table(translate, partition.source, target)
            return self._translate_lines(translate, partition, target)

    def _translate_lines(self, translate: _Translate, partition: Partition, target: BinaryIO) -> Failures:
        failures = Failures()
        written: Literal["text", "jsonl"] = "jsonl" if format_of(partition.target) == "jsonl" else "text"

        def write(answer: Answer) -> None:
            lines = text_lines(answer, written, self.options.get("n_best", 1))
            target.write("".join(f"{line}\n" for line in lines).encode())
            failures.count_translation(answer.request.text, answer.translation)

        reader = RequestReader(json=written == "jsonl", field=self.column)
        with open_text(partition.source) as source:
            translate_stream(source, reader.answering(translate), write, partition.source)
        return failures

    def _translate_table(self, translate: _Translate, place: str, target: BinaryIO) -> Failures:
        failures = Failures()
        columns = answer_columns(
            alignment=bool(self.options.get("return_alignment")), alternatives=self.options.get("n_best", 1) > 1
        )
        with open_table(place, self.column) as table:
            wider = WiderTable(table.schema_arrow, columns, without=self.column)
            with parquet.ParquetWriter(target, wider.schema) as writer:
                for batch, (texts,) in read_texts(table, [self.column], place):
                    translations = translate(texts, failures.lines + 1)
                    described = zip(texts, map(describe, translations), strict=True)
                    writer.write_table(wider.rows(batch, [{SOURCE: text, **each} for text, each in described]))
                    for text, each in zip(texts, translations, strict=True):
                        failures.count_translation(text, each)
        return failures
