"""Parquet tables that have columns of texts, a group of rows at a time."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
from pyarrow import parquet

from transduce.config import BadInputError
from transduce.data.places import open_raw

_ROWS_AT_A_TIME: Final = 2048


@contextmanager
def open_table(place: str, *columns: str, option: str = "--column") -> Iterator[parquet.ParquetFile]:
    """A table that has these columns, and no two of one name; ``option`` is what names columns.

    Raises:
        BadInputError: It has not, or there is no such table.
    """
    with open_raw(place) as raw:
        try:
            table = parquet.ParquetFile(raw)
        except (pa.ArrowException, OSError) as error:
            raise BadInputError(f"{place}: not a readable Parquet file: {' '.join(str(error).split())}") from error
        names = table.schema_arrow.names
        for column in columns:
            if column not in names:
                raise BadInputError(
                    f"{place}: column {column} is missing: there are {', '.join(names) or 'none'}; {option} says which "
                    f"to read"
                )
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise BadInputError(f"{place}: column {twice} is there several times: give each a name of its own")
        yield table


def read_texts(
    table: parquet.ParquetFile, columns: Sequence[str], place: str
) -> Iterator[tuple[pa.RecordBatch, list[list[str]]]]:
    """Rows in groups, with the texts of each of the columns; ``place`` is what errors call the table.

    Raises:
        BadInputError: The table is damaged, or a row has no text.
    """
    number = 0
    try:
        for batch in table.iter_batches(batch_size=_ROWS_AT_A_TIME):
            texts = [batch.column(column).to_pylist() for column in columns]
            for column, values in zip(columns, texts, strict=True):
                for row, text in enumerate(values, start=number + 1):
                    if not isinstance(text, str):
                        raise BadInputError(f"{place} row {row:,}: {column} is no text")
            yield batch, texts
            number += len(batch)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{place}: damaged after row {number:,}: {' '.join(str(error).split())}") from error
