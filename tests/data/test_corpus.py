import gzip
import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from transduce.config import BadInputError, Corpus
from transduce.data import corpus_paths, is_text, name_corpus, read_corpus, read_numbered

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
        ("text.jsonl", b'{"source": "a\\ud800", "target": "b"}\n', r"text\.jsonl line 1: half a surrogate pair"),
        ("text.csv", b"a,b\n", r"text\.csv: a file of pairs is named .* or has a pattern"),
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


@pytest.mark.parametrize("end", ["\n", "\n\n", " \n", "\r\n", "  "])
@pytest.mark.parametrize(
    ("name", "line", "blank"),
    [("text.tsv", "a\tb\n", "has 0 tabs"), ("text.jsonl", '{"source": "a", "target": "b"}\n', "not JSON")],
)
def test_blank_lines_behind_the_last_pair_are_none(tmp_path, name, line, blank, end):
    (tmp_path / name).write_bytes((line + line + end).encode())
    assert list(read_corpus(Corpus(pairs=name), tmp_path)) == [("a", "b")] * 2
    (tmp_path / name).write_bytes(f"{line}\n\n{line}".encode())
    with pytest.raises(BadInputError, match=f"{name} line 2: {blank}"):
        list(read_corpus(Corpus(pairs=name), tmp_path))


def test_an_empty_pair_behind_the_last_one_is_a_pair(tmp_path):
    (tmp_path / "text.tsv").write_bytes(b"a\tb\n\t\n")
    assert list(read_corpus(Corpus(pairs="text.tsv"), tmp_path)) == [("a", "b"), ("", "")]


def test_a_zstd_file_cut_short_is_named(tmp_path):
    with zstd(tmp_path / "text.tsv.zst") as stream:
        stream.write(b"".join(b"%d\t%d\n" % (n, n * n) for n in range(9999)))
    whole = (tmp_path / "text.tsv.zst").read_bytes()
    (tmp_path / "text.tsv.zst").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadInputError, match=r"text\.tsv\.zst"):
        list(read_corpus(Corpus(pairs="text.tsv.zst"), tmp_path))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"source": "a"},
        {"target": "b"},
        {"pairs": "c", "source": "a"},
        {"pairs": "c", "source": "a", "target": "b"},
        {"made_up": "copy", "pairs": "c"},
        {"trees": "d", "pairs": "c"},
        {"made_up": "copy", "source": "a", "target": "b"},
    ],
)
def test_a_corpus_is_two_files_or_one_or_made_up(given):
    forms = "a source and a target file, or one file of pairs, or a treebank, or a made-up task"
    with pytest.raises(ValueError, match=forms):
        Corpus(**given)


def test_a_parquet_column_that_is_there_twice_is_named(tmp_path):
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"]), pa.array(["c"])], ["source", "target", "target"])
    parquet.write_table(table, tmp_path / "text.parquet")
    with pytest.raises(BadInputError, match=r"text\.parquet: there are several columns target"):
        list(read_corpus(Corpus(pairs="text.parquet"), tmp_path))


@pytest.mark.parametrize("kind", ["string", "large_string", "dictionary"])
def test_parquet_that_is_no_utf8_is_named_or_kept(tmp_path, kind):
    binary, text = (pa.large_binary(), pa.large_string()) if kind == "large_string" else (pa.binary(), pa.string())
    sources = pa.Array.from_buffers(text, 3, pa.array([b"a", b"\xff", b"b"], binary).buffers())
    if kind == "dictionary":
        sources = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int32()), sources)
    parquet.write_table(pa.table({"source": sources, "target": ["c", None, "d"]}), tmp_path / "none.parquet")
    parquet.write_table(pa.table({"source": sources, "target": ["c", "d", "e"]}), tmp_path / "text.parquet")
    corpus = Corpus(pairs="text.parquet")
    kept = list(read_corpus(corpus, tmp_path, keep_invalid=True))
    assert kept == [("a", "c"), ("\udcff", "d"), ("b", "e")]
    with pytest.raises(BadInputError, match=r"text\.parquet row 2: invalid UTF-8: .*invalid_utf8 = \"drop\""):
        list(read_corpus(corpus, tmp_path))
    with pytest.raises(BadInputError, match=r"none\.parquet row 2: a side is no text"):
        list(read_corpus(Corpus(pairs="none.parquet"), tmp_path, keep_invalid=True))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("text.tsv", b"a\tb\n\xff\tc\nd\te\n"),
        (
            "text.jsonl",
            b'{"source": "a", "target": "b"}\n{"source": "\xff", "target": "c"}\n{"source": "d", "target": "e"}\n',
        ),
        (
            "text.jsonl",
            b'{"source": "a", "target": "b"}\n{"source": "x", "target": "\\ud800"}\n{"source": "d", "target": "e"}\n',
        ),
    ],
)
def test_what_is_no_text_is_let_through_where_asked_for(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    pairs = list(read_corpus(Corpus(pairs=name), tmp_path, keep_invalid=True))
    assert [all(map(is_text, pair)) for pair in pairs] == [True, False, True]


class TestPattern:
    """Lines as SCAN has them."""

    CORPUS = Corpus(pairs="tasks.txt", pattern=r"IN: (?P<source>.*) OUT: (?P<target>.*)")
    LINES = "IN: jump OUT: JUMP\nIN: turn left twice OUT: LTURN LTURN\n"

    @pytest.mark.parametrize(("ending", "opened"), OPENERS)
    def test_both_sides_of_each_line(self, tmp_path, ending, opened):
        with opened(tmp_path / f"tasks.txt{ending}") as stream:
            stream.write(self.LINES.encode())
        corpus = self.CORPUS.model_copy(update={"pairs": f"tasks.txt{ending}"})
        assert list(read_corpus(corpus, tmp_path)) == [("jump", "JUMP"), ("turn left twice", "LTURN LTURN")]

    def test_whatever_the_file_is_called(self, tmp_path):
        (tmp_path / "tasks.tsv").write_text(self.LINES)
        corpus = self.CORPUS.model_copy(update={"pairs": "tasks.tsv"})
        assert next(read_corpus(corpus, tmp_path)) == ("jump", "JUMP")

    @pytest.mark.parametrize("line", ["IN: jump", "  IN: jump OUT: JUMP", "IN: jump OUT: JUMP\u2028", ""])
    def test_the_whole_line_fits_or_is_named(self, tmp_path, line):
        (tmp_path / "tasks.txt").write_text(f"{self.LINES}{line}\n", encoding="utf-8")
        corpus = Corpus(pairs="tasks.txt", pattern=r"IN: (?P<source>[\w ]*) OUT: (?P<target>[\w ]*)")
        with pytest.raises(BadInputError, match=r"tasks\.txt line 3: does not fit the pattern"):
            list(read_corpus(corpus, tmp_path))

    def test_a_group_that_takes_no_part_is_empty(self, tmp_path):
        (tmp_path / "tasks.txt").write_text("jump\n")
        corpus = Corpus(pairs="tasks.txt", pattern=r"(?P<source>\w+)( (?P<target>\w+))?")
        assert list(read_corpus(corpus, tmp_path)) == [("jump", "")]


class TestLines:
    @pytest.fixture(params=["two files", "tsv", "parquet", "made up"])
    def corpus(self, request, tmp_path):
        pairs = [(f"s{number}", f"t{number}") for number in range(1, 8)]
        match request.param:
            case "two files":
                for side, name in enumerate(("a", "b")):
                    (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs))
                return Corpus(source="a", target="b")
            case "tsv":
                (tmp_path / "a.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in pairs))
                return Corpus(pairs="a.tsv")
            case "parquet":
                table = pa.table(dict(zip(("source", "target"), zip(*pairs, strict=True), strict=True)))
                parquet.write_table(table, tmp_path / "a.parquet", row_group_size=3)
                return Corpus(pairs="a.parquet")
            case _:
                return Corpus(made_up="copy", count=7)

    @pytest.mark.parametrize("lines", [None, (1, 7), (1, 1), (3, 5), (7, 7)])
    def test_only_these_are_read_and_keep_their_numbers(self, corpus, tmp_path, lines):
        whole = list(read_corpus(corpus, tmp_path))
        some = list(read_numbered(corpus.model_copy(update={"lines": lines}), tmp_path))
        first, last = lines or (1, 7)
        assert some == [(number, *whole[number - 1]) for number in range(first, last + 1)]

    @pytest.mark.parametrize("lines", [(1, 8), (7, 8), (8, 8), (9, 1009)])
    def test_beyond_the_end_is_refused(self, corpus, tmp_path, lines):
        named = f"{name_corpus(corpus, tmp_path)}: ends before line {lines[1]:,}, which lines asks for"
        with pytest.raises(BadInputError) as caught:
            list(read_numbered(corpus.model_copy(update={"lines": lines}), tmp_path))
        assert str(caught.value) == named


def test_a_tag_stands_before_each_source_but_not_before_what_is_compared(tmp_path):
    (tmp_path / "a.tsv").write_text("eins\tone\n zwei\ttwo\n")
    corpus = Corpus(pairs="a.tsv", tag="<bt>")
    assert list(read_corpus(corpus, tmp_path)) == [("<bt> eins", "one"), ("<bt>  zwei", "two")]
    assert list(read_numbered(corpus, tmp_path)) == [(1, "eins", "one"), (2, " zwei", "two")]


def test_files_and_names(tmp_path):
    assert corpus_paths(Corpus(source="a", target="b"), tmp_path) == [tmp_path / "a", tmp_path / "b"]
    assert corpus_paths(Corpus(pairs="c.tsv"), tmp_path) == [tmp_path / "c.tsv"]
    assert corpus_paths(Corpus(made_up="copy"), tmp_path) == []
    assert name_corpus(Corpus(pairs="c.tsv"), tmp_path) == str(tmp_path / "c.tsv")
    assert name_corpus(Corpus(made_up="copy"), tmp_path) == "copy task"


class TestMadeUp:
    def pairs(self, **changes):
        return list(read_corpus(Corpus(made_up="copy", **changes), Path("nowhere")))

    def test_the_target_is_the_source(self):
        pairs = self.pairs(count=997)
        assert len(pairs) == 997
        assert all(source == target for source, target in pairs)

    def test_sequences_have_1_to_10_of_10_symbols_and_all_lengths_are_as_frequent(self):
        words = [source.split(" ") for source, _ in self.pairs(count=9973)]
        assert {word for row in words for word in row} == set("0123456789")
        counts = Counter(map(len, words))
        assert set(counts) == set(range(1, 11))
        # 997 on average, and 30 for a standard deviation.
        assert all(997 - 150 < count < 997 + 150 for count in counts.values())

    def test_the_seed_decides(self):
        assert self.pairs(count=17, seed=3) == self.pairs(count=17, seed=3)
        assert self.pairs(count=17, seed=3) != self.pairs(count=17, seed=4)
        assert self.pairs(count=17) == self.pairs(count=101)[:17]
