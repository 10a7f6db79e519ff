import gzip
import io
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.command import complete
from transduce.cli import main
from transduce.cli.streams import count_lines, read_lines_of
from transduce.config.disk import write_alone
from transduce.data import read_lines
from transduce.inference import Translator
from transduce.inference.translation import EMPTY

pytest_plugins = ["tiny_run"]

COMMAND = [str(Path(sys.executable).with_name("transduce"))]


@pytest.fixture
def translate(trained_run, monkeypatch, capfdbinary):
    """Run ``transduce translate`` on bytes of standard input: its status, its lines of output, and its errors."""

    def run(stdin, *options):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        status = main._run(["translate", str(trained_run), "--precision", "float32", *options])
        sys.stdout.flush()
        shown = capfdbinary.readouterr()
        return status, shown.out.decode().split("\n"), shown.err.decode()

    return run


def test_as_a_process(trained_run, tmp_path):
    lines = b"bamo dulu kari\n\nwe\xffmo\n \t\nwemo\rwemo\nfepi\xe2\x80\xa8luso\ngo\0zu\n<s> </s> <pad>\nwemo"
    done = complete(["translate", str(trained_run), "--precision", "float32"], lines, tmp_path)
    assert done.returncode == 0
    outputs = done.stdout.decode().split("\n")
    assert len(outputs) == 9 + 1  # each line's, and nothing behind the last line feed
    assert (outputs[0], outputs[1], outputs[3], outputs[8], outputs[9]) == ("ti sor mup", "", "", "yob", "")
    invalid, nul = done.stderr.decode().splitlines()
    assert nul.startswith("warning: the input line 7: has a NUL, which stays: ")
    assert invalid.startswith("warning: the input line 3: invalid UTF-8 was replaced by U+FFFD: ")


def test_a_missing_model_as_a_process(tmp_path):
    missing = str(tmp_path / "missing")
    done = complete(["translate", missing], b"", tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode() == f"error: {missing}: no such model directory\n"
    debug = complete(["translate", missing, "--debug"], b"", tmp_path)
    assert debug.returncode == 2
    errors = debug.stderr.decode()
    assert errors.startswith("Traceback")
    assert errors.endswith(f"BadInputError: {missing}: no such model directory\n{done.stderr.decode()}")


def test_a_run_and_its_best_are_the_same_model(trained_run, translate, monkeypatch, capfdbinary):
    _, lines, _ = translate(b"bamo\nluso gozu\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"bamo\nluso gozu\n")))
    assert main._run(["translate", str(trained_run / "best"), "--precision", "float32"]) == 0
    assert capfdbinary.readouterr().out.decode().split("\n") == lines == ["ti", "hax ved", ""]


@pytest.mark.parametrize("name", ["in.txt", "in.txt.gz"])
def test_files(translate, tmp_path, name):
    path, output = tmp_path / name, tmp_path / "out.txt"
    content = b"wemo\n\nkari bamo"
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert translate(b"not this\n", "--input", str(path), "--output", str(output)) == (0, [""], "")
    assert output.read_bytes() == b"yob\n\nmup ti\n"


def test_a_dash_is_standard_input_and_output(translate):
    assert translate(b"wemo\n", "--input", "-", "--output", "-") == (0, ["yob", ""], "")


def test_jsonl(translate, translator):
    status, lines, _ = translate(b"wemo\n\nbamo dulu\n", "--format", "jsonl", "--n-best", "2")
    assert status == 0
    first, empty, third = map(json.loads, lines[:-1])
    (expected,) = translator.translate(["bamo dulu"], n_best=2)
    assert first["text"] == "yob"
    assert (third["text"], third["tokens"]) == ("ti sor", [" ti", " sor"])
    assert third["log_probability"] == pytest.approx(expected.log_probability, abs=1e-4)
    assert third["score"] == pytest.approx(expected.score, abs=1e-4)
    assert [each["text"] for each in third["alternatives"]] == [each.text for each in expected.alternatives]
    assert (empty["text"], empty["tokens"]) == ("", [])


@pytest.mark.parametrize("options", [(), ("--format", "jsonl")])
def test_objects_that_are_read_as_text_are_said_once(translate, options):
    errors = translate(b'\n{"text": "bamo"}\n{"text": "bamo"}\n', *options)[2]
    assert errors.count("line 2: is a JSON object, and translated as it is: --format jsonl") == (not options)
    assert errors.count("JSON object") == (not options)


def test_json_lines_come_with_an_id_and_fields_of_their_own(translate):
    lines = b'\n{"text": "wemo", "id": "a7", "from": {"page": 3}}\n{"n": [1.5, null], "text": "bamo\\ndulu"}\n\n'
    status, outputs, errors = translate(lines, "--format", "jsonl")
    assert (status, errors) == (0, "")
    blank, first, second, last = map(json.loads, outputs[:-1])
    assert (first["id"], first["from"], first["text"], first["tokens"]) == ("a7", {"page": 3}, "yob", [" yob"])
    assert (second["id"], second["n"]) == (3, [1.5, None])
    assert [(each["id"], each["text"]) for each in (blank, last)] == [(1, ""), (4, "")]
    assert all({"score", "log_probability", "tokens", "at_limit"} <= each.keys() for each in (first, second))


def test_what_came_in_stays_and_ours_stand_beside_it(translate):
    line = b'{"text": "wemo", "score": 7, "source": "news", "tokens": null, "translation_score": 8, "error": "none"}\n'
    status, outputs, _ = translate(line, "--format", "jsonl")
    assert status == 0
    found = json.loads(outputs[0])
    kept = {"id": 1, "score": 7, "source": "news", "tokens": None, "translation_score": 8, "error": "none"}
    assert {name: found[name] for name in kept} == kept
    assert (found["text"], found["translation_source"], found["translation_tokens"]) == ("yob", "wemo", [" yob"])
    assert found["translation_translation_score"] < 0
    assert found["log_probability"] < 0


def test_the_text_that_was_translated_is_kept(translate):
    _, outputs, _ = translate(b'{"id": 9, "text": "bamo\\ndulu"}\n\n', "--format", "jsonl")
    assert [json.loads(line)["source"] for line in outputs[:-1]] == ["bamo\ndulu", ""]
    _, outputs, _ = translate(b"wemo\n", "--format", "jsonl")
    assert json.loads(outputs[0])["source"] == "wemo"


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (b'{"text": "wemo"', "line 2: not readable JSON: Expecting ',' delimiter at column 16"),
        (b" {wemo}", "line 2: not readable JSON: "),
        (b'{"text": 3}', 'line 2: no JSON object with a string "text": write {"text": "..."}'),
        (b"{}", 'line 2: no JSON object with a string "text": write'),
    ],
    ids=["cut", "text", "number", "empty"],
)
def test_a_first_line_that_is_a_broken_object_is_an_error(translate, line, named):
    """Translated as it stands, it would be nonsense with a score."""
    status, outputs, errors = translate(b"\n" + line + b"\nwemo\n", "--format", "jsonl")
    assert (status, len(outputs)) == (2, 2)
    assert json.loads(outputs[0])["id"] == 1  # the blank line before it
    assert errors.startswith(f"error: {named}")
    assert "before it" not in errors
    if "readable" in named:
        assert 'of plain text, write each line as {"text": "..."}' in errors


def test_what_came_before_a_line_that_is_no_request_is_written(translate):
    status, outputs, errors = translate(b'{"text": "wemo"}\n{"text": "bamo"}\n{"txt": "kari"}\n', "--format", "jsonl")
    assert status == 2
    assert [json.loads(line)["text"] for line in outputs[:-1]] == ["yob", "ti"]
    assert errors.startswith("error: line 3: no JSON object")


def test_a_later_line_is_held_against_the_first(translate):
    _, _, errors = translate(b'\n{"text": "wemo"}\n[]\n', "--format", "jsonl")
    assert errors.startswith('error: line 3: no JSON object with a string "text", and line 2 is an object: write')


def test_plain_text_has_the_numbers_of_its_lines_as_ids(translate):
    _, outputs, _ = translate(b'wemo\n{"text": "wemo"}\n', "--format", "jsonl")
    assert [json.loads(line)["id"] for line in outputs[:-1]] == [1, 2]
    assert json.loads(outputs[1])["text"] != "yob"  # the first line is no object, so this one is text


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (b"wemo", "line 2: not readable JSON"),
        (b'{"text": "wemo"', "line 2: not readable JSON"),
        (b'{"text": 3}', 'line 2: no JSON object with a string "text"'),
        (b'["wemo"]', "line 2: no JSON object"),
        (b'{"text": "wemo", "n": NaN}', "line 2: not readable JSON: NaN"),
        (b'{"text": "wemo", "n": 1e999}', "line 2: not readable JSON"),
        (b'{"text": "\\ud800"}', "line 2: not readable JSON"),
        (b"[" * 99_999, "line 2: not readable JSON"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_line_that_is_no_request_is_named(translate, line, named):
    status, _, errors = translate(b'{"text": "wemo"}\n' + line, "--format", "jsonl")
    assert status == 2
    assert errors.startswith(f"error: {named}")


def test_a_bar_is_shown_on_a_terminal_that_shows_nothing_else(translate, monkeypatch, tmp_path):
    """Standard output is exactly what it is without a bar."""
    (tmp_path / "in").write_bytes(b"wemo\nkari bamo\n")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("transduce.cli.progress.sys.stderr.isatty", lambda: True, raising=False)
    status, lines, errors = translate(b"", "--input", str(tmp_path / "in"))
    assert (status, lines) == (0, ["yob", "mup ti", ""])
    assert "2/2" in errors
    assert translate(b"wemo\n", "--quiet") == (0, ["yob", ""], "")


def test_n_best_gives_as_many_lines_for_every_line(translate, translator):
    """Also for an empty one: a reader can only tell whose they are by counting."""
    _, lines, _ = translate(b"bamo dulu\n\nwemo\n", "--n-best", "3")
    assert len(lines) == 3 * 3 + 1
    best = {}
    for text in ("bamo dulu", "wemo"):
        (output,) = translator.translate([text], n_best=3)
        best[text] = [output.text, *(each.text for each in output.alternatives)]
    assert lines == [*best["bamo dulu"], "", "", "", *best["wemo"], ""]


LONG = b"bamo kari " * 2000


def test_lines_without_an_output_fail_alone_and_are_named_at_the_end(translate, tmp_path):
    (tmp_path / "prefixes").write_text("\n" * 3 + "ti " * 40 + "\n" * 2)
    status, lines, errors = translate(
        b"wemo\n" + LONG + b"\n\nkari\nbamo\n", f"--prefixes={tmp_path / 'prefixes'}", "--n-best", "2"
    )
    assert status == 1
    assert len(lines) == 5 * 2 + 1
    assert (lines[0], lines[8]) == ("yob", "ti")
    assert lines[2:8] == [""] * 6
    assert errors.startswith("error: 2 of 5 lines have no output (an empty one stands for each): line 2: ")
    assert "; line 4: the search found no output" in errors
    assert errors.count("\n") == 1


def test_outputs_that_are_all_empty_are_a_warning(translate, monkeypatch):
    """A blank line's is empty by right."""
    monkeypatch.setattr(Translator, "translate", lambda _, texts, **__: [EMPTY] * len(texts))
    status, lines, errors = translate(b"bamo\n\ndulu\n")
    assert (status, lines) == (0, ["", "", "", ""])
    assert "warning: 2 of 2 outputs are empty, though their lines are not: the model writes nothing" in errors


def test_many_lines_without_an_output_are_counted(translate):
    status, lines, errors = translate(b"bamo dulu\n" * 13, "--max-source-length", "1")
    assert (status, lines) == (1, [""] * 14)
    assert "error: 13 of 13 lines have no output" in errors
    assert "line 10: 2 symbols, but at most 1 are read" in errors
    assert errors.endswith("; and 3 more\n")


def test_an_object_says_why_it_has_no_output(translate):
    status, lines, _ = translate(b"wemo\n" + LONG + b"\n", "--format", "jsonl", "--n-best", "2")
    first, second = map(json.loads, lines[:-1])
    assert status == 1
    assert "error" not in first
    assert (second["text"], second["score"], second["log_probability"]) == ("", None, None)
    assert "(max_source_length)" in second["error"]
    assert "alternatives" not in second


def test_n_best_lists_as_marian_writes_them(translate, translator):
    options = {"n_best": 2, "return_alignment": True}
    status, lines, _ = translate(b"bamo dulu\n\nwemo\n", "--n-best", "2", "--scores", "--alignment")
    assert status == 0
    found = [line.split(" ||| ") for line in lines[:-1]]
    assert [line[0] for line in found] == ["0", "0", "1", "2", "2"]
    assert lines[2] == "1 |||  |||  ||| F0= 0.000000 ||| 0.000000"  # as many fields as every line
    for text, (one, other) in (("bamo dulu", found[:2]), ("wemo", found[3:])):
        (best,) = translator.translate([text], **options)
        for each, (_, output, pairs, feature, score) in ((best, one), (best.alternatives[0], other)):
            assert (output, pairs) == (each.text, " ".join(f"{a}-{b}" for a, b in each.alignment))
            assert feature.startswith("F0= ")
            assert float(feature[4:]) == pytest.approx(each.log_probability, abs=1e-4)
            assert float(score) == pytest.approx(each.score, abs=1e-4)


def test_scores_of_one_output_and_of_none(translate):
    status, lines, _ = translate(b"wemo\n" + LONG + b"\n", "--scores")
    assert status == 1
    assert lines[0].startswith("0 ||| yob ||| F0= -0.")
    assert lines[1] == "1 |||  ||| F0= -inf ||| -inf"
    status, lines, errors = translate(b"wemo\n", "--scores", "--format", "jsonl")
    assert (status, lines) == (2, [""])
    assert errors.startswith("error: --scores: is for --format text")


def test_no_line_ends_the_process(trained_run, tmp_path):
    long = [b"bamo " * 1_000_000, b"q" * (2**24 - 1), b" " * 200_000, b"q" * 20_000]
    lines = b"".join(b"wemo\n" + line + b"\nbamo\n" for line in long)
    done = complete(["translate", str(trained_run), "--precision", "float32"], lines, tmp_path)
    assert done.stdout == b"yob\n\nti\n" * len(long)
    assert done.returncode == 1
    assert all(f"line {number}: " in done.stderr.decode() for number in (2, 5, 11))
    assert b"line 8: " not in done.stderr  # white space is empty


@pytest.mark.parametrize("pipe", [True, False])
@pytest.mark.parametrize("length", [2**24, 2**24 + 1, 2**24 + 2**20])
def test_a_line_longer_than_any_is_refused_and_what_came_before_is_written(
    trained_run, tmp_path, pipe, length, monkeypatch, capfdbinary
):
    """The line feed counts."""
    path = tmp_path / "in"
    path.write_bytes(b"wemo\nbamo\n" + b"q" * length + b"\nkari\n")
    with ExitStack() as files:
        if pipe:
            stream = files.enter_context(subprocess.Popen(["cat", path], stdout=subprocess.PIPE)).stdout
        else:
            stream = files.enter_context(path.open("rb"))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))
        assert main._run(["translate", str(trained_run), "--precision", "float32"]) == 2
        sys.stdout.flush()
    shown = capfdbinary.readouterr()
    assert shown.out == b"yob\nti\n"
    assert b"line 3: is longer than 16,777,216 bytes" in shown.err


def test_the_advice_about_a_limit_is_of_the_option_that_set_it(translate):
    _, _, errors = translate(b"bamo dulu kari\n", "--max-length", "2")
    assert "allow more (--max-length, or max_length in" in errors


def test_options_reach_the_search(translate, translator):
    options = ("--beam-size", "1", "--length-penalty", "2", "--length-penalty-kind", "gnmt", "--format", "jsonl")
    _, lines, _ = translate(b"bamo dulu kari\n", *options)
    (expected,) = translator.translate(["bamo dulu kari"], beam_size=1, length_penalty=2.0)
    assert json.loads(lines[0])["score"] == pytest.approx(expected.score, abs=1e-4)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--beam-size", "0"], "beam size 0"),
        (["--n-best", "5"], "n-best 5"),
        (["--input", "{folder}/missing"], "missing: no such file"),
        (["--input", "{folder}"], "--output: partitions go to a folder"),
        (["--input", "{folder}/cut.gz"], "cut.gz"),
        (["--input", "{folder}/plain.gz"], "plain.gz"),
        (["--output", "{folder}/no/such/place"], "{folder}/no/such/place"),
        (["--output", "{folder}"], "{folder}"),
    ],
)
def test_bad_input_is_named(translate, tmp_path, options, named):
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"wemo\n" * 9)[:-9])
    (tmp_path / "plain.gz").write_bytes(b"wemo\n")
    status, lines, errors = translate(b"wemo\n", *(option.format(folder=tmp_path) for option in options))
    # What could be read before the place that is damaged is translated.
    assert (status, lines) == (2, ["yob"] * (9 if "cut.gz" in named else 0) + [""])
    assert errors.startswith("error: ")
    assert named.format(folder=tmp_path) in errors
    assert errors.count("\n") == 1


def test_a_pattern_without_quotes_is_told(translate, tmp_path):
    for name in ("a.en", "b.en"):
        (tmp_path / name).touch()
    status, _, errors = translate(b"", "--input", *(str(tmp_path / name) for name in ("a.en", "b.en")))
    assert status == 2
    assert errors.startswith(
        f"error: {tmp_path / 'b.en'}: is a file, and what stands without an option is a model: put"
    )


@pytest.mark.parametrize("option", ["input", "prefixes", "must-contain", "must-not-contain", "dictionary"])
def test_writing_over_what_is_read_is_refused(translate, tmp_path, option):
    path = tmp_path / "text"
    path.write_text("wemo\tti\n")
    status, _, errors = translate(b"fepi\n", f"--{option}", str(path), "--output", str(path))
    assert (status, path.read_text()) == (2, "wemo\tti\n")
    assert errors == f"error: {path}: is the input too: give --output another name\n"


def test_a_directory_that_is_no_model_is_named(tmp_path, capsys):
    assert main._run(["translate", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"error: {tmp_path}: neither a model directory")


def test_a_reader_that_leaves_early_is_no_error(trained_run):
    """As in ``transduce translate ... | head -1``, whose end is the interpreter's own."""
    command = [*COMMAND, "translate", str(trained_run), "--precision", "float32"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"wemo\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"yob\n"
        process.stdout.close()
        process.stdin.write(b"wemo\n" * 5000)
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1


def test_paragraphs_are_translated_sentence_by_sentence(translate, translator):
    status, lines, _ = translate(b"wemo.  Kari bamo!\n\nwemo\n", "--paragraphs", "--language", "de")
    one, other = translator.translate(["wemo.", "Kari bamo!"])
    assert (status, lines) == (0, [f"{one.text}  {other.text}", "", "yob", ""])
    assert translate(b"wemo.  Kari bamo!\n")[1][0] != lines[0]
    status, lines, errors = translate(b"wemo\n", "--paragraphs", "--language", "german")
    assert (status, lines) == (2, [""])
    assert errors.startswith("error: language 'german'")


def test_every_option_of_the_search_arrives(translate, translator):
    """Each changes the outputs or their scores as the same argument in Python does."""
    lines = ["bamo dulu kari", "wemo kari"]
    options = {
        "beam_size": 3,
        "length_penalty": 0.9,
        "length_penalty_kind": "marian",
        "stopping": "full_beam",
        "coverage_penalty": 0.4,
        "min_length": 4,
        "max_length": 6,
        "no_repeat_ngram": 1,
        "diversity": 0.3,
        "n_best": 2,
    }
    arguments = [part for name, value in options.items() for part in ("--" + name.replace("_", "-"), str(value))]
    status, shown, _ = translate("\n".join(lines).encode(), *arguments, "--format", "jsonl")
    assert status == 0
    for line, expected in zip(map(json.loads, shown[:-1]), translator.translate(lines, **options), strict=True):
        assert tuple(line["tokens"]) == expected.tokens
        assert line["score"] == pytest.approx(expected.score, abs=1e-4)
        assert [each["text"] for each in line["alternatives"]] == [each.text for each in expected.alternatives]


def test_samples_follow_from_the_line(translate, translator):
    arguments = ["--sampling", "--temperature", "2", "--top-k", "50", "--top-p", "0.9", "--seed", "7"]
    options = {"sampling": True, "temperature": 2.0, "top_k": 50, "top_p": 0.9, "seed": 7}
    _, shown, _ = translate(b"bamo dulu\n" * 3, *arguments)
    assert shown[:-1] == [each.text for each in translator.translate(["bamo dulu"] * 3, **options)]
    assert len(set(shown[:-1])) > 1


def test_prefixes_and_phrases_come_in_files(translate, tmp_path):
    (tmp_path / "prefixes").write_text("nal\n\n\n")
    (tmp_path / "wanted").write_text("\nmup hax\tti\n\n")
    (tmp_path / "banned").write_text("sor\nyob ved\n")
    files = [f"--{name}={tmp_path / file}" for name, file in (("prefixes", "prefixes"), ("must-contain", "wanted"))]
    status, lines, _ = translate(
        b"bamo\nwemo\ndulu kari\n", *files, f"--must-not-contain={tmp_path / 'banned'}", "--max-length", "6"
    )
    assert status == 0
    assert lines[0].startswith("nal")
    assert "mup hax" in lines[1]
    assert "ti" in lines[1]
    assert "sor" not in lines[2]


@pytest.mark.parametrize(("lines", "more_or_fewer"), [("nal\n", "fewer"), ("nal\n\n\n", "more")])
def test_a_file_beside_the_input_has_as_many_lines(translate, tmp_path, lines, more_or_fewer):
    (tmp_path / "beside").write_text(lines)
    for option in ("--prefixes", "--must-contain"):
        status, _, errors = translate(b"bamo\nwemo\n", option, str(tmp_path / "beside"))
        assert status == 2
        assert f"beside: has {more_or_fewer} lines than the input" in errors


def test_alignments_stand_behind_the_outputs_and_in_jsonl(translate):
    _, lines, _ = translate(b"bamo dulu\n\n", "--alignment")
    text, pairs = lines[0].split(" ||| ")
    assert (text, lines[1:]) == ("ti sor", [" ||| ", ""])
    assert {pair.split("-")[1] for pair in pairs.split()} == {"0", "1"}
    _, lines, _ = translate(b"bamo dulu\n\n" + LONG + b"\n", "--alignment", "--format", "jsonl")
    assert [json.loads(line)["alignment"] for line in lines[:3]] == [pairs, "", ""]
    _, lines, _ = translate(b"\n", "--alignment", "--n-best", "2")
    assert lines == [" ||| ", " ||| ", ""]


@pytest.mark.parametrize("name", ["stdin", "stdout"])
def test_a_standard_stream_that_is_closed_is_named(trained_run, monkeypatch, capfd, name):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"bamo\n")))
    monkeypatch.setattr(sys, name, None)
    assert main._run(["translate", str(trained_run)]) == 2
    assert f"standard {name[3:]}put is closed: give --{name[3:]}put F" in capfd.readouterr().err


def test_an_ensemble(translate, trained_run, monkeypatch, capfdbinary):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"bamo\nluso gozu\n")))
    models = [str(trained_run), str(trained_run / "best")]
    assert main._run(["translate", *models, "--precision", "float32"]) == 0
    assert capfdbinary.readouterr().out.decode().split("\n") == ["ti", "hax ved", ""]


def test_an_output_that_was_cut_is_named_by_its_line(translate):
    status, lines, errors = translate(b"wemo\n" * 2999 + b"q" * 29 + b"\n", "--beam-size", "1")
    assert (status, len(lines)) == (0, 3001)
    assert errors.startswith("warning: text 3000: the output reached the length limit")
    assert errors.count("\n") == 1


def test_limits_are_told_once_and_counted(translate, tmp_path):
    (tmp_path / "in").write_bytes(b"bamo dulu kari\n" * 70)  # 64 lines are the first group
    _, _, errors = translate(b"", "--input", str(tmp_path / "in"), "--max-length", "1", "--beam-size", "1")
    first, last = errors.splitlines()
    assert first.startswith(
        "warning: text 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 54 more: the output reached the length limit"
    )
    assert last.startswith("warning: 70 outputs reached the length limit in all")


@pytest.mark.parametrize("typed", [True, False])
def test_who_sees_nothing_happen_is_told_what_is_read(monkeypatch, caplog, typed):
    class Given(io.TextIOWrapper):
        def isatty(self):
            return typed

    monkeypatch.setattr(sys, "stdin", Given(io.BytesIO(b"wemo\n")))
    caplog.set_level("INFO")
    with read_lines_of("-") as stream:
        assert stream.read() == b"wemo\n"
    assert caplog.messages == ["reading lines from the keyboard: --input F reads a file, Ctrl+D ends"] * typed


def test_a_page_keeps_its_tags(translate):
    page = b"<!-- x -->\n<p class=a>bamo <b>dulu</b>\n kari</p><p translate=no>bamo</p>\n"
    status, lines, errors = translate(page, "--markup", "html")
    expected = ["<!-- x -->", '<p class="a">ti <b>sor</b> mup</p><p translate="no">bamo</p>', ""]
    assert (status, lines, errors) == (0, expected, "")


def test_subtitles_keep_their_times(translate, tmp_path):
    film, output = tmp_path / "film.srt.gz", tmp_path / "film.srt"
    film.write_bytes(gzip.compress(b"\xef\xbb\xbf1\r\n00:00:01,000 --> 00:00:02,000\r\n<i>bamo</i> dulu\r\nkari\r\n"))
    status, _, errors = translate(b"", "--markup", "srt", "--input", str(film), "--output", str(output))
    assert (status, errors) == (0, "")
    assert output.read_bytes() == b"\xef\xbb\xbf1\r\n00:00:01,000 --> 00:00:02,000\r\n<i>ti</i> sor\r\nmup\r\n"


def test_sentences_of_a_page_are_split_by_its_language(translate):
    _, (page,), _ = translate(b"bamo. Dulu <b>kari</b>. Am 3. Mai.", "--markup", "html", "--max-source-length", "1")
    assert page == "bamo. Dulu <b>kari</b>. Am 3. Mai."
    for language, count in (("en", 4), ("de", 3)):
        _, _, errors = translate(
            b"bamo. Dulu <b>kari</b>. Am 3. Mai.",
            "--markup",
            "html",
            "--max-source-length",
            "1",
            "--language",
            language,
        )
        assert errors.startswith(f"error: {count} sentences have no output (they stay as they were): 'bamo.': ")


@pytest.mark.parametrize(
    ("page", "options", "message"),
    [
        (b"a", ["html", "--n-best", "2"], "--markup html: is for a document, and --n-best for lines: leave one out"),
        (b"a", ["srt", "--format", "jsonl"], "--markup srt: is for a document, and --format jsonl for lines"),
        (b"a", ["html", "--paragraphs"], "--markup html: is for a document, and --paragraphs for lines"),
        (b"a", ["srt"], "no subtitles: a line of times belongs here"),
        (b"a", ["html", "--language", "german"], "language 'german'"),
        (b"<b>" * 2000, ["html"], "the markup has elements in more than 1,000 others"),
        ("a".encode("utf-16"), ["html"], "begins with the byte-order mark of UTF-16"),
    ],
)
def test_what_a_document_cannot_be_is_named(translate, page, options, message):
    status, lines, errors = translate(page, "--markup", *options)
    assert (status, lines) == (2, [""])
    assert message in errors


def test_invalid_utf8_in_a_page_is_replaced(translate):
    status, lines, errors = translate(b"<p>\xff</p>", "--markup", "html")
    assert (status, lines) == (0, ["<p>\ufffd</p>"])
    assert errors.startswith("warning: the input line 1: invalid UTF-8 was replaced by U+FFFD: ")


@pytest.mark.parametrize(("name", "magic"), [("out.gz", b"\x1f\x8b"), ("out.zst", b"\x28\xb5\x2f\xfd")])
def test_an_output_is_compressed_where_its_name_says_so(translate, tmp_path, name, magic):
    assert translate(b"wemo\nkari bamo\n", "--output", str(tmp_path / name))[0] == 0
    assert (tmp_path / name).read_bytes().startswith(magic)
    assert list(read_lines(tmp_path / name)) == ["yob", "mup ti"]


@pytest.mark.parametrize("name", ["out.txt", "out.gz"])
def test_what_fails_midway_keeps_an_older_output_and_what_was_written(translate, tmp_path, name):
    output, part = tmp_path / name, tmp_path / f"{name}.unfinished"
    output.write_bytes(b"older")
    lines = b'{"text": "wemo"}\n{"text": 3}\n'
    status, _, errors = translate(lines, "--format", "jsonl", "--output", str(output))
    assert (status, output.read_bytes()) == (2, b"older")
    assert errors.startswith(
        f"warning: {output}: is not finished: what was written so far is in {part}\nerror: line 2:"
    )
    written = gzip.decompress(part.read_bytes()) if name.endswith(".gz") else part.read_bytes()
    assert json.loads(written)["text"] == "yob"
    assert translate(b"wemo\n", "--output", str(output))[0] == 0
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_two_commands_do_not_write_one_output(translate, tmp_path):
    pytest.importorskip("fcntl", reason="Windows has no such locks")
    output, part = tmp_path / "out", tmp_path / "out.unfinished"
    part.write_text("the other's\n")
    with write_alone(output, part):
        status, _, errors = translate(b"wemo\n", "--output", str(output))
    assert (status, part.read_text()) == (2, "the other's\n")
    assert (
        errors
        == f"error: {output}: another program writes it at this moment: wait for that, or write to another file\n"
    )
    assert translate(b"wemo\n", "--output", str(output))[0] == 0
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_what_an_earlier_call_left_is_not_written_over_while_it_is_read(translate, tmp_path):
    part = tmp_path / "out.unfinished"
    part.write_text("wemo\n")
    status, _, errors = translate(b"", "--input", str(part), "--output", str(tmp_path / "out"))
    assert (status, part.read_text()) == (2, "wemo\n")
    assert errors.startswith(f"error: {part}: is where {tmp_path / 'out'} is written first")


def test_where_nothing_was_written_nothing_stays(translate, tmp_path):
    assert translate(b'{"text": 3}\n', "--format", "jsonl", "--output", str(tmp_path / "out"))[0] == 2
    assert [*tmp_path.iterdir()] == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has none")
def test_an_output_that_takes_no_more_is_named(translate):
    status, _, errors = translate(b"wemo\n", "--output", "/dev/full")
    assert (status, errors) == (1, "error: /dev/full: No space left on device: make room on this disk\n")


def test_a_bar_reads_no_pipe_and_says_nothing_of_damage(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert count_lines(str(tmp_path / "pipe")) is None
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"a\nb\n" * 1000)[:-9])
    assert count_lines(str(tmp_path / "cut.gz")) is None
    (tmp_path / "whole.gz").write_bytes(gzip.compress(b"a\nb\n"))
    assert count_lines(str(tmp_path / "whole.gz")) == 2
