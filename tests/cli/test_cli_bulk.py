import gzip
import json
import shutil

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.tiny_partitions import read_folder
from transduce.cli import main
from transduce.inference import load

pytest_plugins = ["tiny_partitions"]
LIMIT = ("--max-extra-length", "3")


@pytest.fixture
def bulk(random_model, tmp_path, capsys):
    """Run a verb on the random model: its status, and what it said but for outputs that no training taught to end."""

    def run(input_, *options, output=tmp_path / "out", verb="translate"):
        arguments = ["--input", str(input_), "--output", str(output), "--precision", "float32", "-q", *options]
        arguments += LIMIT if verb == "translate" else ()
        status = main._run([verb, str(random_model), *arguments])
        shown = capsys.readouterr()
        assert shown.out == ""
        return status, "".join(line for line in shown.err.splitlines(keepends=True) if "the length limit" not in line)

    return run


def translations(random_model, lines):
    return [each.text for each in load(random_model, "float32").translate(lines, max_extra_length=3)]


def test_each_partition_becomes_one_of_the_same_name_and_format(random_model, partitions, bulk, tmp_path):
    assert bulk(partitions) == (0, "")
    out = tmp_path / "out"
    assert read_folder(out).keys() == read_folder(partitions).keys()
    lines = (partitions / "a.txt").read_text().splitlines()
    assert (out / "a.txt").read_text().split("\n") == [*translations(random_model, lines), ""]
    lines = gzip.decompress((partitions / "b.txt.gz").read_bytes()).decode().split("\n")
    assert gzip.decompress((out / "b.txt.gz").read_bytes()).decode().splitlines() == translations(random_model, lines)
    before, after = (
        [json.loads(line) for line in (folder / "deep" / "d.jsonl").read_text().splitlines()]
        for folder in (partitions, out)
    )
    assert [each["text"] for each in after] == translations(random_model, [each["text"] for each in before])
    assert [(each["page"], each["source"], each["translation_source"]) for each in after] == [
        (each["page"], "web", each["text"]) for each in before
    ]


def test_tables_keep_their_columns(random_model, partitions, bulk, tmp_path):
    assert bulk(f"{partitions}/**/*.parquet") == (0, "")
    before = parquet.read_table(partitions / "deep" / "er" / "e.parquet")
    after = parquet.read_table(tmp_path / "out" / "deep" / "er" / "e.parquet")
    assert after.column_names == [
        *("page", "score", "source", "text", "translation_score", "log_probability", "tokens", "at_limit", "error")
    ]
    assert after.schema.field("page").type == pa.int16()
    assert all(after[name].equals(before[name]) for name in ("page", "score"))
    assert after["source"].to_pylist() == before["text"].to_pylist()
    assert after["text"].to_pylist() == translations(random_model, before["text"].to_pylist())
    assert set(after["error"].to_pylist()) == {None}


def test_text_may_become_objects(partitions, bulk, tmp_path):
    options = ("--format", "jsonl", "--n-best", "2", "--alignment")
    assert bulk(partitions, *options) == (0, "")
    assert list(read_folder(tmp_path / "out")) == [
        *("a.jsonl", "b.jsonl.gz", "c.jsonl.zst", "deep/d.jsonl", "deep/er/e.parquet", "deep/er/f.parquet")
    ]
    rows = parquet.read_table(tmp_path / "out" / "deep" / "er" / "f.parquet").to_pylist()
    lines = [json.loads(line) for line in (tmp_path / "out" / "a.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == list(range(1, 19))
    nested = [set(each["alternatives"][0]) for each in (rows[0], lines[1])]
    assert nested[0] - nested[1] == {"error"}  # a column has a place for what an object leaves out
    assert rows[0]["alternatives"][0]["alignment"] is not None


def test_what_stands_is_skipped_and_the_rest_is_done(partitions, bulk, tmp_path):
    out, twice = tmp_path / "out", tmp_path / "twice"
    assert bulk(partitions) == (0, "")
    shutil.copytree(out, twice)
    (twice / "b.txt.gz").unlink()
    (twice / ".b.txt.gz.5.unfinished").write_text("left behind by a worker that was lost")
    (twice / ".z.txt.5.unfinished").write_text("another command's")
    (twice / "a.txt").write_text("not made again\n")
    assert bulk(partitions, output=twice) == (0, "")
    others = {"a.txt": b"not made again\n", ".z.txt.5.unfinished": b"another command's"}
    assert read_folder(twice) == {**read_folder(out), **others}


def test_a_folder_of_something_else_is_left_alone(partitions, bulk, tmp_path):
    assert bulk(f"{partitions}/*.txt")[0] == 0
    before = read_folder(tmp_path / "out")
    status, said = bulk(partitions, "--beam-size", "2")
    assert status == 2
    assert "holds partitions made with other settings (beam_size was None, and is 2)" in said
    status, said = bulk(f"{partitions}/*.txt", "--format", "jsonl")
    assert (status, 'other settings (format was None, and is "jsonl")' in said) == (2, True)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("mine")
    assert "no record of what they are" in bulk(partitions, output=mine)[1]
    (tmp_path / "out" / "_transduce.json").write_text("[")
    assert "a damaged record of a folder" in bulk(partitions)[1]
    assert (read_folder(tmp_path / "out"), list(read_folder(mine))) == (before, ["thesis.txt"])


def test_a_folder_with_files_that_are_no_text_is_refused(bulk, tmp_path):
    for name in ("a.txt", "config.json", "tokenizer.json", ".hidden", "_SUCCESS"):
        (tmp_path / "in" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "in" / name).write_text("w5\n")
    status, said = bulk(tmp_path / "in")
    assert (status, (tmp_path / "out").exists()) == (2, False)
    assert "holds files that are neither text nor .jsonl nor .parquet (config.json, and 1 more): give a pattern" in said
    assert bulk(f"{tmp_path}/in/*.txt")[0] == 0
    assert list(read_folder(tmp_path / "out")) == ["a.txt"]


def test_a_partition_that_has_changed_is_named(bulk, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("w5\n")
    assert bulk(tmp_path / "in")[0] == 0
    (tmp_path / "in" / "a.txt").write_text("w5\nw6\n")
    status, said = bulk(tmp_path / "in")
    assert (status, "a.txt had another size when this was made" in said) == (2, True)


def test_bad_partitions_are_named_and_the_others_done(bulk, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"w5\n\xffw6\nw7\n")
    (folder / "b.jsonl").write_text('{"text": "w5"}\nno object\n')
    (folder / "c.txt.gz").write_bytes(gzip.compress(b"w5 w6\n" * 5)[:-5])
    (folder / "d.parquet").write_bytes(b"no table")
    parquet.write_table(pa.table({"words": ["w5"]}), folder / "e.parquet")
    parquet.write_table(pa.table({"text": ["w5", None]}), folder / "f.parquet")
    (folder / "g.zst").write_bytes(b"no zstd")
    table = pa.Table.from_arrays([pa.array(["w5"]), pa.array(["x"]), pa.array(["y"])], ["text", "a", "a"])
    parquet.write_table(table, folder / "i.parquet")
    (folder / "h.txt").write_text("w5\n" + "w6 " * 3000 + "\n")
    status, said = bulk(folder)
    assert status == 2
    [warning] = warnings = [line for line in said.splitlines() if line.startswith("warning: ")]
    errors = [
        line.removeprefix("error: ").replace(f"{folder}/", "") for line in said.splitlines() if line not in warnings
    ]
    assert warning.startswith(f"warning: {folder}/a.txt line 2: invalid UTF-8 was replaced by U+FFFD: ")
    assert [error.split(": ")[0] for error in errors] == [
        *("b.jsonl line 2", "c.txt.gz", "d.parquet", "e.parquet", "f.parquet row 2", "g.zst", "i.parquet"),
        "1 of 5 lines have no output (an empty one stands for each)",
    ]
    assert "column text is missing: there are words; --column says which to read" in errors[3]
    assert "column a is there several times" in errors[6]
    assert "h.txt line 2: " in errors[7]
    assert list(read_folder(tmp_path / "out")) == ["a.txt", "h.txt"]
    assert bulk(folder, "--column", "words", output=tmp_path / "words")[1].count("words is missing") == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--prefixes", "f"), "--prefixes: is for one stream of lines"),
        (("--scores",), "--scores: is for one stream of lines"),
        (("--beam-size", "0"), "beam size 0"),
    ],
)
def test_options_that_cannot_be(partitions, bulk, tmp_path, options, said):
    assert said in bulk(partitions, *options)[1]
    assert read_folder(tmp_path / "out") == {}


def test_wrong_places_are_named(partitions, bulk, tmp_path):
    (tmp_path / "two").mkdir()
    for name in ("x.txt", "x.jsonl"):
        (tmp_path / "two" / name).write_text("w5\n")
    assert "both would be written to" in bulk(tmp_path / "two", "--format", "jsonl")[1]
    assert "is the input too" in bulk(tmp_path / "two", output=tmp_path / "two")[1]
    assert "no file matches" in bulk(f"{partitions}/*.tsv")[1]
    assert "--output DIR" in bulk(partitions, output="-")[1]
    assert "--column: is for partitions" in bulk(partitions / "a.txt", "--column", "words")[1]
    assert not (tmp_path / "out").exists()


def test_results_within_the_input_folder_are_no_input(bulk, tmp_path):
    """Given again, the command translated its translations, and those of these the next time."""
    folder, out = tmp_path / "in", tmp_path / "in" / "out"
    folder.mkdir()
    (folder / "a.txt").write_text("w5\n")
    assert bulk(folder, output=out) == (0, "")
    (folder / "b.txt").write_text("w6\n")
    assert bulk(folder, output=out) == bulk(f"{folder}/**/*.txt", output=out) == (0, "")
    assert list(read_folder(out)) == ["a.txt", "b.txt"]
    status, said = bulk(out, "--format", "jsonl", output=out)
    assert (status, f"all that --input {out} means lies in it: give --output another folder" in said) == (2, True)


@pytest.fixture
def pairs(tmp_path):
    """Seven pairs in each format; of the third, the target is longer than any line may be."""
    folder = tmp_path / "pairs"
    folder.mkdir()
    found = [(f"w{4 + number} w7", " ".join([f"w{9 + number}"] * (number + 1))) for number in range(7)]
    found[2] = (found[2][0], "w5 " * 3000)
    (folder / "a.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in found))
    objects = [{"en": source, "de": target, "pair_score": "mine"} for source, target in found]
    (folder / "b.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in objects))
    table = pa.table({"en": [pair[0] for pair in found], "page": range(7), "de": [pair[1] for pair in found]})
    parquet.write_table(table, folder / "c.parquet")
    return folder, found


COLUMNS = ("--source-column", "en", "--target-column", "de")


def test_pairs_are_scored(random_model, pairs, bulk, tmp_path):
    folder, found = pairs
    status, said = bulk(folder, *COLUMNS, verb="score")
    assert (status, "3 of 21 lines have no score" in said, "a.tsv line 3" in said) == (1, True, True)
    expected = load(random_model, "float32").score(*zip(*found, strict=True), errors="return")
    means = [value / (number + 2) for number, value in enumerate(expected)]
    expected[2] = means[2] = None
    out = tmp_path / "out"
    lines = (out / "a.tsv").read_text().splitlines()
    assert lines == ["nan" if value is None else f"{value:.6f}" for value in expected]
    objects = [json.loads(line) for line in (out / "b.jsonl").read_text().splitlines()]
    assert [(each["en"], each["de"], each["pair_score"], each["translation_pair_score"]) for each in objects] == [
        (*pair, "mine", mean) for pair, mean in zip(found, means, strict=True)
    ]
    table = parquet.read_table(out / "c.parquet")
    assert table.column_names == ["en", "page", "de", "pair_log_probability", "pair_score"]
    assert table["pair_log_probability"].to_pylist() == expected
    assert table["pair_score"].to_pylist() == means


def test_pairs_are_filtered_by_their_scores(random_model, pairs, bulk, tmp_path):
    folder, found = pairs
    values = load(random_model, "float32").score(*zip(*found, strict=True), errors="return")
    means = [value / (number + 2) for number, value in enumerate(values)]
    least = sorted(mean for index, mean in enumerate(means) if index != 2)[3]
    kept = [index for index, mean in enumerate(means) if mean >= least]
    assert len(kept) == 3
    assert bulk(folder, *COLUMNS, "--min-score", str(least), verb="score")[0] == 1
    lines = (folder / "a.tsv").read_text().splitlines()
    assert (tmp_path / "out" / "a.tsv").read_text().splitlines() == [lines[index] for index in kept]
    assert len((tmp_path / "out" / "b.jsonl").read_text().splitlines()) == 3
    assert parquet.read_table(tmp_path / "out" / "c.parquet")["page"].to_pylist() == kept


def test_a_score_that_no_pair_has_is_said(pairs, bulk):
    folder, found = pairs
    _, said = bulk(folder / "a.tsv", *COLUMNS, "--min-score", "0.5", verb="score")
    assert f"warning: all {len(found)} lines are left out: none has the score that --min-score asks for" in said


def test_no_number_is_no_least_score(pairs, bulk):
    status, said = bulk(pairs[0], *COLUMNS, "--min-score", "nan", verb="score")
    assert (status, "--min-score nan: give a finite number" in said) == (2, True)


def test_what_is_no_pair_is_named(pairs, bulk, tmp_path):
    folder, _ = pairs
    (folder / "a.tsv").write_text("w5\tw6\nw7\n")
    said = bulk(folder, "--target-column", "words", "--source-column", "en", verb="score")[1]
    assert "a.tsv line 2: has 0 tabs" in said
    assert 'b.jsonl line 1: no string "words"' in said
    assert "c.parquet: column words is missing" in said
    assert read_folder(tmp_path / "out") == {}
    assert "leave --source and --target out" in bulk(folder, "--source", "f", verb="score")[1]
