"""Parallel text as people have it: two files, or one file of pairs."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import parquet

from transduce.config import BadInputError, Corpus
from transduce.data.lines import read_lines, read_pairs

_COMPRESSED: Final = (".gz", ".zst")

Pairs = Iterator[tuple[str, str]]


def read_corpus(corpus: Corpus, root: Path) -> Pairs:
    """The pairs of a corpus whose files are relative to ``root``.

    Raises:
        BadInputError: A file cannot be read, or a line or row of it is no pair; place and cause are named.
    """
    paths = corpus_paths(corpus, root)
    if corpus.pairs is None:
        return read_pairs(*paths)
    return _reader(paths[0])(paths[0], corpus)


def corpus_paths(corpus: Corpus, root: Path) -> list[Path]:
    """The files of a corpus, source before target."""
    return [root / name for name in (corpus.pairs, corpus.source, corpus.target) if name is not None]


def _reader(path: Path) -> Callable[[Path, Corpus], Pairs]:
    """By what the name ends in, compression aside."""
    name = path.with_suffix("") if path.suffix in _COMPRESSED else path
    match name.suffix:
        case ".tsv":
            return _read_tsv
        case ".jsonl":
            return _read_jsonl
        case ".parquet":
            return _read_parquet
        case _:
            raise BadInputError(f"{path}: a file of pairs is named .tsv, .jsonl (both also .gz or .zst) or .parquet")


def _read_tsv(path: Path, _: Corpus) -> Pairs:
    for number, line in enumerate(read_lines(path), start=1):
        source, *targets = line.split("\t")
        if len(targets) != 1:
            raise BadInputError(f"{path} line {number}: has {len(targets)} tabs, a pair has one between its sides")
        yield source, targets[0]


def _read_jsonl(path: Path, corpus: Corpus) -> Pairs:
    for number, line in enumerate(read_lines(path), start=1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadInputError(f"{path} line {number}: not JSON: {error}") from error
        if not isinstance(record, dict):
            raise BadInputError(f"{path} line {number}: not a JSON object")
        source, target = (_text(record, field, f"{path} line {number}") for field in corpus.fields)
        yield source, target


def _text(record: dict[str, object], field: str, place: str) -> str:
    text = record.get(field)
    if isinstance(text, str):
        return text
    raise BadInputError(f"{place}: {field} is {'missing' if field not in record else 'no text'}: {_advice(record)}")


def _read_parquet(path: Path, corpus: Corpus) -> Pairs:
    try:
        with parquet.ParquetFile(path) as file:
            missing = [field for field in corpus.fields if field not in file.schema_arrow.names]
            if missing:
                raise BadInputError(f"{path}: column {missing[0]} is missing: {_advice(file.schema_arrow.names)}")
            row = 0
            for batch in file.iter_batches(columns=list(corpus.fields)):
                for pair in zip(*(batch.column(field).to_pylist() for field in corpus.fields), strict=True):
                    row += 1
                    if not all(isinstance(side, str) for side in pair):
                        raise BadInputError(f"{path} row {row}: a side is no text")
                    yield pair
    except (pa.ArrowException, OSError) as error:
        raise BadInputError(f"{path}: not a readable Parquet file: {' '.join(str(error).split())}") from error


def _advice(names: object) -> str:
    known = ", ".join(map(str, names)) if isinstance(names, (dict, list)) and names else "none"
    return f"there are {known}; source_field and target_field in the run file say which to read"
