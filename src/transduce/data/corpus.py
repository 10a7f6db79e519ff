"""Parallel text as people have it: two files, one file of pairs, or a treebank."""

import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import assert_never

import pyarrow as pa
from pyarrow import parquet

from transduce.config import BadInputError, Corpus
from transduce.config.corpora import MadeUpTask
from transduce.data.lines import Bare, decode_lines, describe_json_error, is_text, pair_lines, tell_once
from transduce.data.places import is_address, open_raw, open_text, unpacked_name
from transduce.data.treebank import OnBad, read_tree_pairs, treebank_files

Pairs = Iterator[tuple[str, str]]


@dataclass(frozen=True)
class _File:
    """A file of lines or pairs, wherever it lies, and how to read it."""

    place: str
    corpus: Corpus
    keep_invalid: bool

    def sides(self) -> Callable[[str, str, str], tuple[str, str]]:
        """Makes a pair of two sides and their place: a side may have been a line of a file from Windows itself."""
        texts = self._texts()
        return lambda source, target, place: (texts.text(source, place), texts.text(target, place))

    def lines(self) -> Iterator[str]:
        """The lines alone."""
        with open_text(self.place) as stream:
            yield from decode_lines(stream, self.place, self._texts(), keep_invalid=self.keep_invalid)

    def numbered(self) -> Iterator[tuple[str, str]]:
        """Each line with its place, for messages."""
        for number, line in enumerate(self.lines(), start=1):
            yield f"{self.place} line {number}", line

    def records(self) -> Iterator[tuple[str, str]]:
        """As ``numbered``, for one record a line: blank lines behind the last record, which editors leave, are none."""
        blank = None
        for numbered in self.numbered():
            if not numbered[1].strip(" "):
                blank = blank or numbered
                continue
            if blank is not None:
                yield blank  # for whoever reads it to say that it is no record
            yield numbered

    def _texts(self) -> Bare:
        return Bare() if is_address(self.place) else Bare(tell_once(Path(self.place)))


def read_corpus(corpus: Corpus, root: Path, *, keep_invalid: bool = False) -> Pairs:
    """The pairs of a corpus whose files are relative to ``root``, each source behind the corpus's tag.

    Raises:
        BadInputError: A file cannot be read, or a line or row of it is no pair; place and cause are named.
    """
    for _, source, target in read_numbered(corpus, root, keep_invalid=keep_invalid):
        yield corpus.source_prefix + source, target


def read_numbered(
    corpus: Corpus, root: Path, *, keep_invalid: bool = False, on_bad_tree: OnBad | None = None
) -> Iterator[tuple[int, str, str]]:
    """As ``read_corpus``, without the tag, each pair behind the number of its line or row, counted from 1.

    ``on_bad_tree`` is told of what a treebank leaves out.
    """
    pairs = _read(corpus, root, keep_invalid, on_bad_tree)
    first, last = corpus.lines or (1, None)
    reached = first - 1
    for reached, (source, target) in enumerate(islice(pairs, first - 1, last), start=first):
        yield reached, source, target
    if last is not None and reached < last:
        raise BadInputError(f"{name_corpus(corpus, root)}: ends before line {last:,}, which lines asks for")


def corpus_paths(corpus: Corpus, root: Path) -> list[Path]:
    """The files of a corpus, source before target."""
    if corpus.trees is not None:
        return treebank_files(corpus, root)
    return [root / name for name in (corpus.pairs, corpus.source, corpus.target) if name is not None]


def name_corpus(corpus: Corpus, root: Path) -> str:
    """What a corpus is called in messages."""
    if corpus.made_up:
        return f"{corpus.made_up} task"
    if isinstance(corpus.trees, tuple) and len(corpus.trees) > 1:
        return f"{root / corpus.trees[0]} and {len(corpus.trees) - 1} more"
    name = next(each for each in (corpus.trees, corpus.pairs, corpus.source) if each is not None)
    return place_of(name if isinstance(name, str) else name[0], root)


def place_of(name: str, root: Path) -> str:
    """Where a file of a corpus lies: an address as it is, a path below the root."""
    return name if is_address(name) else str(root / name)


def _read(corpus: Corpus, root: Path, keep_invalid: bool, on_bad_tree: OnBad | None) -> Pairs:
    if corpus.made_up is not None:
        return make_task(corpus.made_up, corpus.count, corpus.seed)
    if corpus.trees is not None:
        return read_tree_pairs(corpus, root, keep_invalid=keep_invalid, on_bad=on_bad_tree)
    return read_files([str(path) for path in corpus_paths(corpus, root)], corpus, keep_invalid=keep_invalid)


def read_files(places: Sequence[str], corpus: Corpus, *, keep_invalid: bool) -> Pairs:
    """The pairs of one file of them, or of two parallel ones, which are as ``corpus`` says and lie anywhere.

    Raises:
        BadInputError: As ``read_corpus``.
    """
    files = [_File(place, corpus, keep_invalid) for place in places]
    if corpus.pairs is None:
        source, target = files
        return pair_lines(source.lines(), target.lines(), (source.place, target.place))
    return _read_matches(files[0], corpus.pattern) if corpus.pattern else _reader(places[0])(files[0])


def _reader(place: str) -> Callable[[_File], Pairs]:
    """By what the name ends in, compression aside."""
    match PurePosixPath(unpacked_name(place)).suffix:
        case ".tsv":
            return _read_tsv
        case ".jsonl":
            return _read_jsonl
        case ".parquet":
            return _read_parquet
        case _:
            raise BadInputError(
                f"{place}: a file of pairs is named .tsv, .jsonl (both also .gz or .zst) or .parquet, or has a pattern"
            )


def _read_matches(file: _File, pattern: str) -> Pairs:
    expression, pair = re.compile(pattern), file.sides()
    for place, line in file.numbered():
        if (match := expression.fullmatch(line)) is None:
            raise BadInputError(f"{place}: does not fit the pattern {pattern}: {line[:80]}")
        yield pair(match["source"] or "", match["target"] or "", place)


def _read_tsv(file: _File) -> Pairs:
    pair = file.sides()
    for place, line in file.records():
        source, *targets = line.split("\t")
        if len(targets) != 1:
            raise BadInputError(f"{place}: has {len(targets)} tabs, a pair has one between its sides")
        yield pair(source, targets[0], place)


def _read_jsonl(file: _File) -> Pairs:
    pair = file.sides()
    for place, line in file.records():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadInputError(f"{place}: not JSON: {describe_json_error(error)}") from error
        if not isinstance(record, dict):
            raise BadInputError(f"{place}: not a JSON object")
        source, target = (_text(record, field, place) for field in file.corpus.fields)
        if not file.keep_invalid and not (is_text(source) and is_text(target)):
            raise BadInputError(f"{place}: half a surrogate pair (\\ud800 to \\udfff) stands alone, which is no text")
        yield pair(source, target, place)


def _text(record: dict[str, object], field: str, place: str) -> str:
    text = record.get(field)
    if isinstance(text, str):
        return text
    raise BadInputError(f"{place}: {field} is {'missing' if field not in record else 'no text'}: {_advice(record)}")


def _read_parquet(file: _File) -> Pairs:
    path, fields, pair = file.place, file.corpus.fields, file.sides()
    row = 0
    try:
        with parquet.ParquetFile(open_raw(path) if is_address(path) else path) as table:
            missing = [field for field in fields if field not in table.schema_arrow.names]
            if missing:
                raise BadInputError(f"{path}: column {missing[0]} is missing: {_advice(table.schema_arrow.names)}")
            if twice := [field for field in fields if table.schema_arrow.names.count(field) > 1]:
                raise BadInputError(f"{path}: there are several columns {twice[0]}: give each a name of its own")
            for batch in table.iter_batches(columns=list(fields)):
                for source, target in zip(*(_values(batch.column(field)) for field in fields), strict=True):
                    row += 1
                    if not (isinstance(source, str) and isinstance(target, str)):
                        raise BadInputError(f"{path} row {row}: a side is no text")
                    if not file.keep_invalid and not (is_text(source) and is_text(target)):
                        raise BadInputError(
                            f"{path} row {row}: invalid UTF-8: write the file again as valid text (of training text, "
                            f'data.invalid_utf8 = "drop" leaves such rows out)'
                        )
                    yield pair(source, target, f"{path} row {row}")
    except (pa.ArrowException, OSError) as error:
        raise BadInputError(f"{path}: not a readable Parquet file: {' '.join(str(error).split())}") from error


def _values(column: pa.Array) -> list[object]:
    """What stands in a column; bytes of a text that are no UTF-8 come as surrogates, which Arrow itself refuses."""
    try:
        values: list[object] = column.to_pylist()
    except UnicodeDecodeError:
        plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        texts = plain.cast(pa.large_binary()).to_pylist()
        values = [None if text is None else text.decode("utf-8", "surrogateescape") for text in texts]
    return values


def _advice(names: object) -> str:
    known = ", ".join(map(str, names)) if isinstance(names, (dict, list)) and names else "none"
    return f"there are {known}; source_field and target_field in the run file say which to read"


_DIGITS = "0123456789"
_LONGEST = 10


def make_task(task: MadeUpTask, count: int, seed: int) -> Iterator[tuple[str, str]]:
    """``count`` pairs of a task, the same for the same seed."""
    match task:
        case "copy":
            return _copy(count, random.Random(seed))
        case _:
            assert_never(task)


def _copy(count: int, draw: random.Random) -> Iterator[tuple[str, str]]:
    """Sequences of 1 to 10 symbols out of 10; the target is the source."""
    for _ in range(count):
        text = " ".join(draw.choices(_DIGITS, k=draw.randint(1, _LONGEST)))
        yield text, text
