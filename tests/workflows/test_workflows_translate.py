import gzip
import io
import os
import subprocess
import threading
import time
import tracemalloc
from contextlib import suppress

import pyarrow as pa
import pytest

from transduce.config import BadInputError
from transduce.data.lines import LONGEST_LINE, open_binary
from transduce.inference import Translation
from transduce.workflows.translate import one_line, translate_stream


def _echo(texts, first_number):
    return [Translation(text.upper(), 0.0, 0.0, ()) for text in texts]


@pytest.fixture
def run(caplog):
    """Translate bytes, or a stream: the outputs, and what was warned of."""

    def run(content, stream=None):
        outputs = []
        count = translate_stream(stream or io.BytesIO(content), _echo, lambda each: outputs.append(each.text))
        assert count == len(outputs)
        assert {record.levelname for record in caplog.records} <= {"WARNING"}
        return outputs, caplog.messages

    return run


def test_only_a_line_feed_ends_a_line(run):
    text = "one\rtwo\u2028three\u0085four\x0bfive\x0csixseven\nlast"
    assert run(text.encode()) == (["ONE\rTWO\u2028THREE\u0085FOUR\x0bFIVE\x0cSIXSEVEN", "LAST"], [])


def test_every_line_gives_one_line(run):
    assert run(b"")[0] == []
    assert run(b"\n")[0] == [""]
    assert run(b"a\n\n \nb\n")[0] == ["A", "", " ", "B"]


def test_more_lines_than_are_taken_at_a_time_stay_in_order(run):
    lines = [f"line {number}" for number in range(5003)]
    assert run("\n".join(lines).encode())[0] == [line.upper() for line in lines]


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_a_pipe_that_gives_compressed_lines_is_read_as_what_it_holds(run, tmp_path, kind):
    """Its bytes were read as they came, and refused: give the file a name that ends in .gz, which it had."""
    pipe = tmp_path / f"lines.{kind}"
    os.mkfifo(pipe)
    lines = b"a\nb\n"
    compressed = gzip.compress(lines) if kind == "gz" else pa.compress(lines, codec="zstd", asbytes=True)
    threading.Thread(target=pipe.write_bytes, args=(compressed,), daemon=True).start()
    with open_binary(pipe) as stream:
        assert run(b"", stream)[0] == ["A", "B"]


def test_invalid_utf8_is_replaced_and_its_line_named(run):
    outputs, warnings = run(b"fine\nb\xffd\nfine\n\xe2\x82\n")
    assert outputs == ["FINE", "B\ufffdD", "FINE", "\ufffd"]
    warning, count = warnings
    assert warning.startswith("the input line 2: invalid UTF-8 was replaced by U+FFFD: convert")
    assert count == "the input: invalid UTF-8 was replaced in 2 lines"
    assert "iconv -f ISO-8859-1 -t UTF-8" in warning


def test_a_replacement_character_of_the_texts_own_is_no_error(run):
    assert run("a\ufffdb\n".encode()) == (["A\ufffdB"], [])


def test_a_replacement_character_does_not_hide_an_error_beside_it(run):
    outputs, warnings = run("\ufffd".encode() + b" \xff\n")
    assert outputs == ["\ufffd \ufffd"]
    assert [warning.partition(":")[0] for warning in warnings] == ["the input line 1"]


def test_an_error_of_the_stream_reaches_the_caller(run):
    damaged = gzip.GzipFile(fileobj=io.BytesIO(gzip.compress(b"text\n" * 99)[:-9]))
    with pytest.raises(BadInputError, match="damaged gzip"):
        run(b"", damaged)


def test_who_types_is_answered_before_the_end():
    """The second line is written only when the first has been answered."""
    reader, writer = os.pipe()
    answered = threading.Event()
    outputs = []

    def write(translation):
        outputs.append((translation.text, time.monotonic()))
        answered.set()

    def type_in():
        os.write(writer, b"first\n")
        assert answered.wait(timeout=10)
        os.write(writer, b"second\n")
        os.close(writer)

    typist = threading.Thread(target=type_in)
    typist.start()
    with open(reader, "rb", buffering=0) as stream:  # noqa: PTH123 - a file descriptor has no path
        translate_stream(io.BufferedReader(stream), _echo, write)
    typist.join()
    assert [text for text, _ in outputs] == ["FIRST", "SECOND"]


def test_a_pipe_that_does_not_block_is_waited_for():
    """As a parent leaves it that reads and writes asynchronously."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    typist = threading.Timer(0.2, lambda: (os.write(writer, b"late\n"), os.close(writer)))
    typist.start()
    outputs = []
    with open(reader, "rb", buffering=0) as stream:  # noqa: PTH123 - a file descriptor has no path
        translate_stream(io.BufferedReader(stream), _echo, lambda translation: outputs.append(translation.text))
    typist.join()
    assert outputs == ["LATE"]


@pytest.mark.parametrize("chunks", [[b"a\nb"], [b"a", b"\nb\n"], [b"", b"a\n", b"b"], [b"a\nb\n"]])
def test_a_pipe_may_cut_lines_anywhere(chunks):
    reader, writer = os.pipe()
    for chunk in chunks:
        os.write(writer, chunk)
    os.close(writer)
    outputs = []
    with open(reader, "rb") as stream:  # noqa: PTH123 - a file descriptor has no path
        count = translate_stream(stream, _echo, lambda translation: outputs.append(translation.text))
    assert (count, outputs) == (2, ["A", "B"])


def sizes_of_groups(stream):
    sizes = []

    def count(texts, first_number):
        assert first_number == sum(sizes) + 1
        sizes.append(len(texts))
        return texts

    translate_stream(stream, count, lambda _: None)
    return sizes


def test_the_first_results_of_a_long_file_come_soon():
    assert sizes_of_groups(io.BytesIO(b"line\n" * 5000)) == [64, 128, 256, 512, 1024, 2048, 968]


def test_the_first_results_of_a_full_pipe_come_soon(tmp_path):
    lines = tmp_path / "lines"
    lines.write_bytes(b"line\n" * 5000)
    with subprocess.Popen(["cat", str(lines)], stdout=subprocess.PIPE) as process:
        sizes = sizes_of_groups(process.stdout)
    assert sum(sizes) == 5000
    assert sizes[0] <= 64
    assert max(sizes) <= 2048


@pytest.mark.parametrize("pipe", [True, False])
def test_large_lines_come_in_small_groups(pipe):
    """Lines of a fifth of what a group may hold: five at a time, or six where one more block has come."""
    content = (b"q" * (LONGEST_LINE // 5) + b"\n") * 13
    if not pipe:
        assert sizes_of_groups(io.BytesIO(content)) == [5, 5, 3]
        return
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        threading.Thread(target=lambda: (process.stdin.write(content), process.stdin.close())).start()
        sizes = sizes_of_groups(process.stdout)
    assert sum(sizes) == 13
    assert max(sizes) <= 6


def test_a_pipe_that_never_ends_a_line_is_refused_soon():
    with subprocess.Popen(["cat", "/dev/zero"], stdout=subprocess.PIPE) as process:
        with pytest.raises(BadInputError, match=r"line 1: is longer than 16,777,216 bytes"):
            sizes_of_groups(process.stdout)
        process.kill()


class Endless(io.RawIOBase):
    """So many lines, none of which exists before it is read."""

    def __init__(self, lines):
        self.left = lines

    def readable(self):
        return True

    def readinto(self, buffer):
        self.left -= 1
        if self.left < 0:
            return 0
        line = f"line {self.left:0500}\n".encode()
        buffer[: len(line)] = line
        return len(line)


def peak(lines):
    """The most memory that Python's objects take at a time while so many lines are translated."""
    tracemalloc.start()
    try:
        with io.BufferedReader(Endless(lines)) as stream:
            assert translate_stream(stream, _echo, lambda _: None) == lines
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_is_bounded_whatever_the_length():
    """Groups are full from line 1,985 on: 2,048 lines of half a kilobyte, as bytes, as text and as their result."""
    assert peak(20_000) < 1.1 * peak(6_200) < 12e6


def test_an_output_is_one_line_whatever_the_model_wrote():
    assert one_line("a\nb\rc\u2028d") == "a b\rc\u2028d"


def test_a_line_without_end_in_a_pipe_is_named_behind_the_outputs_of_those_before_it():
    """The memory for it is bounded, as for a file's."""
    reading, writing = os.pipe()

    def write():
        with suppress(BrokenPipeError), os.fdopen(writing, "wb") as stream:
            stream.write(b"one\ntwo\n" + b"x" * (LONGEST_LINE + 2**17))

    writer = threading.Thread(target=write)
    writer.start()
    outputs = []
    with os.fdopen(reading, "rb", buffering=0) as stream, pytest.raises(BadInputError, match="line 3: is longer than"):
        translate_stream(stream, _echo, lambda each: outputs.append(each.text))
    writer.join()
    assert outputs == ["ONE", "TWO"]
