import gzip
import json

import pyarrow as pa
import pytest
from pyarrow import parquet

from transduce.config import BadInputError, Corpus
from transduce.data import read_corpus

PAIRS = [("a dog\rruns", "ein Hund läuft"), ("", "leer"), ("zwei\u2028drei", " ")]


def two_files(folder, ending, opened):
    for side, name in enumerate(("en", "de")):
        with opened(folder / f"text.{name}{ending}") as stream:
            stream.write("".join(f"{pair[side]}\n" for pair in PAIRS).encode())
    return Corpus(source=f"text.en{ending}", target=f"text.de{ending}")


def zstd(path):
    return pa.output_stream(str(path), compression="zstd")


def plain(path):
    return path.open("wb")


def compressed(path):
    return gzip.open(path, "wb")


OPENERS = [("", plain), (".gz", compressed), (".zst", zstd)]


@pytest.mark.parametrize(("ending", "opened"), OPENERS)
def test_two_files(tmp_path, ending, opened):
    assert list(read_corpus(two_files(tmp_path, ending, opened), tmp_path)) == PAIRS


@pytest.mark.parametrize(("ending", "opened"), OPENERS)
def test_two_columns(tmp_path, ending, opened):
    with opened(tmp_path / f"text.tsv{ending}") as stream:
        stream.write("".join(f"{source}\t{target}\n" for source, target in PAIRS).encode())
    assert list(read_corpus(Corpus(pairs=f"text.tsv{ending}"), tmp_path)) == PAIRS


@pytest.mark.parametrize(("ending", "opened"), OPENERS)
@pytest.mark.parametrize("names", [("source", "target"), ("en", "de")])
def test_json_lines(tmp_path, ending, opened, names):
    with opened(tmp_path / f"text.jsonl{ending}") as stream:
        for number, pair in enumerate(PAIRS):
            stream.write(json.dumps(dict(zip(names, pair, strict=True)) | {"id": number}).encode() + b"\n")
    corpus = Corpus(pairs=f"text.jsonl{ending}", source_field=names[0], target_field=names[1])
    assert list(read_corpus(corpus, tmp_path)) == PAIRS


def test_parquet(tmp_path):
    sources, targets = zip(*PAIRS, strict=True)
    table = pa.table({"id": [1, 2, 3], "de": targets, "en": sources})
    parquet.write_table(table, tmp_path / "text.parquet", row_group_size=2)
    corpus = Corpus(pairs="text.parquet", source_field="en", target_field="de")
    assert list(read_corpus(corpus, tmp_path)) == PAIRS


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("text.tsv", b"a\tb\nc\n", r"text\.tsv line 2: has 0 tabs"),
        ("text.tsv", b"a\tb\tc\n", r"text\.tsv line 1: has 2 tabs"),
        ("text.tsv", b"a\tb\n\xff\tc\n", r"text\.tsv line 2: invalid UTF-8"),
        ("text.jsonl", b'{"source": "a", "target": "b"}\n{"source"\n', r"text\.jsonl line 2: not JSON"),
        ("text.jsonl", b"[1]\n", r"text\.jsonl line 1: not a JSON object"),
        ("text.jsonl", b'{"source": "a", "german": "b"}\n', r"line 1: target is missing: there are source, german;"),
        ("text.jsonl", b'{"source": "a", "target": 7}\n', r"line 1: target is no text"),
        ("text.parquet", b"no parquet at all", r"text\.parquet: not a readable Parquet file"),
        ("text.csv", b"a,b\n", r"text\.csv: a file of pairs is named"),
        ("text.tsv.zst", b"no zstd at all", r"text\.tsv\.zst: damaged zstd file"),
    ],
)
def test_what_is_no_pair_is_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInputError, match=message) as caught:
        list(read_corpus(Corpus(pairs=name), tmp_path))
    assert len(str(caught.value).splitlines()) == 1


def test_a_missing_column_and_a_row_without_text_are_named(tmp_path):
    parquet.write_table(pa.table({"source": ["a", "b"], "target": ["c", None]}), tmp_path / "text.parquet")
    with pytest.raises(BadInputError, match="row 2: a side is no text"):
        list(read_corpus(Corpus(pairs="text.parquet"), tmp_path))
    with pytest.raises(BadInputError, match="column de is missing: there are source, target;"):
        list(read_corpus(Corpus(pairs="text.parquet", target_field="de"), tmp_path))


def test_a_zstd_file_cut_short_is_named(tmp_path):
    with zstd(tmp_path / "text.tsv.zst") as stream:
        stream.write(b"".join(b"%d\t%d\n" % (n, n * n) for n in range(9999)))
    whole = (tmp_path / "text.tsv.zst").read_bytes()
    (tmp_path / "text.tsv.zst").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadInputError, match=r"text\.tsv\.zst"):
        list(read_corpus(Corpus(pairs="text.tsv.zst"), tmp_path))


@pytest.mark.parametrize("given", [{}, {"source": "a"}, {"target": "b"}, {"pairs": "c", "source": "a", "target": "b"}])
def test_a_corpus_is_two_files_or_one(given):
    with pytest.raises(ValueError, match="a source and a target file, or one file of pairs"):
        Corpus(**given)
