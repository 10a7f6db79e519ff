import gzip
import io
import os
import threading
import time

import pytest

from transduce.config import BadInputError
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
    text = "one\rtwo\u2028three\u0085four\x0bfive\x0csix\0seven\nlast"
    assert run(text.encode()) == (["ONE\rTWO\u2028THREE\u0085FOUR\x0bFIVE\x0cSIX\0SEVEN", "LAST"], [])


def test_every_line_gives_one_line(run):
    assert run(b"")[0] == []
    assert run(b"\n")[0] == [""]
    assert run(b"a\n\n \nb\n")[0] == ["A", "", " ", "B"]


def test_more_lines_than_are_taken_at_a_time_stay_in_order(run):
    lines = [f"line {number}" for number in range(5003)]
    assert run("\n".join(lines).encode())[0] == [line.upper() for line in lines]


def test_invalid_utf8_is_replaced_and_its_line_named(run):
    outputs, warnings = run(b"fine\nb\xffd\nfine\n\xe2\x82\n")
    assert outputs == ["FINE", "B\ufffdD", "FINE", "\ufffd"]
    assert [warning.partition(":")[0] for warning in warnings] == ["line 2", "line 4"]


def test_a_replacement_character_of_the_texts_own_is_no_error(run):
    assert run("a\ufffdb\n".encode()) == (["A\ufffdB"], [])


def test_a_replacement_character_does_not_hide_an_error_beside_it(run):
    outputs, warnings = run("\ufffd".encode() + b" \xff\n")
    assert outputs == ["\ufffd \ufffd"]
    assert [warning.partition(":")[0] for warning in warnings] == ["line 1"]


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


def test_an_output_is_one_line_whatever_the_model_wrote():
    assert one_line("a\nb\rc\u2028d") == "a b\rc\u2028d"
