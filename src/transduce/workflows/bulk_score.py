"""Partitions of pairs, scored by a model, or filtered by their scores."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final, final

import pyarrow as pa
from pyarrow import parquet

from transduce.config import BadInputError, Precision
from transduce.data import bare
from transduce.data.places import open_text, whole_file
from transduce.data.tables import open_table, read_texts
from transduce.inference import load
from transduce.workflows.answers import WiderTable
from transduce.workflows.partitions import Partition, digest_models, format_of
from transduce.workflows.requests import Failures, Request, RequestReader, free_names
from transduce.workflows.translate import translate_stream

_COLUMNS: Final = {"pair_log_probability": pa.float64(), "pair_score": pa.float64()}
_Pairs = list[tuple[str, str]]


@final
@dataclass(frozen=True)
class PairScore:
    """Of a target: its log-probability in nats, end symbol counted, and the mean over its tokens; nan where none is."""

    log_probability: float
    mean: float

    @property
    def fields(self) -> dict[str, float | None]:
        """As objects and tables have it, which know no nan."""
        values = (self.log_probability, self.mean)
        return {name: None if math.isnan(value) else value for name, value in zip(_COLUMNS, values, strict=True)}


_Score = Callable[[_Pairs, int], list[PairScore]]


@final
@dataclass(frozen=True)
class BulkScoring:
    """What ``score`` was asked for: with ``least``, pairs whose mean is below it are left out."""

    model: Path
    precision: Precision
    source_column: str
    target_column: str
    max_source_length: int | None
    least: float | None

    @property
    def settings(self) -> dict[str, Any]:
        """All that results follow from."""
        return {
            "verb": "score",
            "models": digest_models([self.model]),
            "precision": self.precision,
            "columns": [self.source_column, self.target_column],
            "max_source_length": self.max_source_length,
            "min_score": self.least,
        }

    def start(self, device: str | None) -> Callable[[Partition], Failures]:
        """Load the model.

        Raises:
            TransduceError: It cannot be loaded, or an option is wrong.
        """
        translator = load(self.model, self.precision, device)

        def score(pairs: _Pairs, first_number: int) -> list[PairScore]:
            values = translator.score(
                [source for source, _ in pairs],
                [target for _, target in pairs],
                first_number=first_number,
                max_source_length=self.max_source_length,
                errors="return",
            )
            scored = [bare(target) for (_, target), value in zip(pairs, values, strict=True) if not math.isnan(value)]
            lengths = iter([len(ids) + 1 for ids in translator.tokenizers.target.encode(scored)])
            return [PairScore(each, each if math.isnan(each) else each / next(lengths)) for each in values]

        score([], 1)
        return partial(self._do, score)

    def _do(self, score: _Score, partition: Partition) -> Failures:
        with whole_file(partition.target) as target:
            if format_of(partition.source) == "parquet":
                return self._score_table(score, partition.source, target)
            return self._score_lines(score, partition, target)

    def _keeps(self, scored: PairScore, failures: Failures) -> bool:
        """Count a pair, and say whether its row stays; one without a score is not good enough for any."""
        failures.count("" if math.isnan(scored.mean) else None)
        if self.least is None or scored.mean >= self.least:
            return True
        failures.left_out += 1
        return False

    def _score_lines(self, score: _Score, partition: Partition, target: BinaryIO) -> Failures:
        failures = Failures()
        objects = format_of(partition.source) == "jsonl"
        reader = RequestReader(json=objects, field=self.source_column)

        def answer(lines: list[str], first_number: int) -> Iterator[tuple[str, PairScore]]:
            requests, error = reader.read(lines, first_number)
            pairs: _Pairs = []
            try:
                for number, request in enumerate(requests, start=first_number):
                    pairs.append(self._read_pair(request, number, objects=objects))
            except BadInputError as no_pair:
                error = no_pair
            for request, pair, scored in zip(requests, pairs, score(pairs, first_number), strict=False):
                fields = request.fields | {self.source_column: pair[0]}
                yield self._written(fields, request.text, scored, objects=objects), scored
            if error is not None:
                raise error

        def write(answered: tuple[str, PairScore]) -> None:
            line, scored = answered
            if self._keeps(scored, failures):
                target.write(f"{line}\n".encode())

        with open_text(partition.source) as source:
            translate_stream(source, answer, write, partition.source)
        return failures

    def _read_pair(self, request: Request, number: int, *, objects: bool) -> tuple[str, str]:
        if not objects:
            source, *targets = request.text.split("\t")
            if len(targets) != 1:
                raise BadInputError(f"line {number:,}: has {len(targets)} tabs, a pair has one between its sides")
            return source, targets[0]
        target = request.fields.get(self.target_column)
        if not isinstance(target, str):
            raise BadInputError(
                f'line {number:,}: no string "{self.target_column}": --target-column says which to read'
            )
        return request.text, target

    def _written(self, fields: dict[str, Any], line: str, scored: PairScore, *, objects: bool) -> str:
        """Of plain text the number alone, as of one pair of files; where lines are left out, the line."""
        if objects:
            names = free_names(fields, _COLUMNS)
            return json.dumps(fields | {names[name]: each for name, each in scored.fields.items()}, ensure_ascii=False)
        return line if self.least is not None else f"{scored.log_probability:.6f}"

    def _score_table(self, score: _Score, place: str, target: BinaryIO) -> Failures:
        failures = Failures()
        columns = [self.source_column, self.target_column]
        with open_table(place, *columns, option="--source-column and --target-column") as table:
            wider = WiderTable(table.schema_arrow, _COLUMNS)
            with parquet.ParquetWriter(target, wider.schema) as writer:
                for batch, texts in read_texts(table, columns, place):
                    scored = score(list(zip(*texts, strict=True)), failures.lines + 1)
                    rows = wider.rows(batch, [each.fields for each in scored])
                    writer.write_table(rows.filter([self._keeps(each, failures) for each in scored]))
        return failures
