import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from transduce.config import BadInputError
from transduce.text import AlignedText, Subtitles

FILM = """1
00:00:01,000 --> 00:00:04,000
<i>Hello there, my
dear friend.</i> How are you?

2
00:00:05,000 --> 00:00:06,500
- Fine & <b>you</b>?
- I'm <3 too.

"""


def texts(film, language=None):
    return [segment.text for segment in Subtitles.read(film, language).segments]


def written(film, *outputs, language=None):
    return Subtitles.read(film, language).write([AlignedText(each) for each in outputs])


def test_a_cue_is_a_text_and_so_is_what_each_speaker_says():
    assert texts(FILM) == ["Hello there, my dear friend. How are you?", "Fine & you?", "I'm <3 too."]
    assert texts(FILM, "en")[:2] == ["Hello there, my dear friend.", "How are you?"]


def test_a_mark_before_the_first_time_is_no_part_of_it():
    assert texts("\ufeff00:00:01,000 --> 00:00:02,000\nA b\n\n00:00:03,000 --> 00:00:04,000\nC d\n") == ["A b", "C d"]


def test_times_stay_and_lines_are_as_many():
    outputs = "Hallo, lieber guter Freund.", "Wie geht es dir heute?", "Gut & dir?", "Ich <3 auch."
    assert (
        written(FILM, *outputs, language="en")
        == """1
00:00:01,000 --> 00:00:04,000
<i>Hallo, lieber guter Freund.</i>
Wie geht es dir heute?

2
00:00:05,000 --> 00:00:06,500
- Gut & <b>dir</b>?
- Ich <3 auch.

"""
    )


def test_what_is_not_translated_stays_to_the_letter():
    film = FILM.replace("\n", "\r\n")
    subtitles = Subtitles.read(film)
    assert subtitles.write([None] * 3) == film
    assert subtitles.write([None, AlignedText("x y"), None]) == film.replace("- Fine & <b>you</b>?", "- x <b>y</b>")


@pytest.mark.parametrize(
    "film",
    [
        "\ufeff1\n00:00:01,000 --> 00:00:02,000\nA b\n",
        "00:00:01,000 --> 00:00:02,000\nA b",  # no number
        "1\r\n00:00:01.000 --> 00:00:02.000 X1:40 X2:600\r\nA b\r\n\r\n\r\n",
        "\n\n 7 \n1:02,5-->1:03,5\n\nA b\n",
        "a stray line\n1\n00:00:01,000 --> 00:00:02,000\n{\\an8}A b\n\n2\n00:00:03,000 --> 00:00:04,000\n\n",
        "1\r00:00:01,000 --> 00:00:02,000\rA b\r",
        "1\n00:00:01,000 --> 00:00:02,000\n1999\n2\n00:00:03,000 --> 00:00:04,000\n<i></i>A b</b>\n",
    ],
)
def test_files_as_they_come(film):
    assert texts(film) == ["A b"]
    assert written(film, "C d") == film.replace("A b", "C d")


@pytest.mark.parametrize(
    "times", ["00:00:05,000 -> 00:00:06,500", "00:00:05,000 --> 00:00:06", "0O:00:05,000 --> 00:00:06"]
)
def test_damaged_times_are_told_and_never_translated(times, caplog):
    film = FILM.replace("00:00:05,000 --> 00:00:06,500", times)
    assert texts(film) == texts(FILM)
    assert written(film, "one", "two", "three").splitlines()[5] == times
    assert caplog.messages[0].startswith(f"line 7: {times!r} is no line of times such as 00:00:01,000 --> ")


@pytest.mark.parametrize(
    "text", ["A --> b, 10:30 - 11:30", "Train 12:30 --> 13:30 leaves", "Score 3:2 --> 4:2", "a 1:2:3 > b"]
)
def test_an_arrow_in_a_text_is_text(text, caplog):
    assert texts(f"00:00:01,000 --> 00:00:02,000\n{text}\n") == [text]
    assert not caplog.messages


def test_an_arrow_between_two_numbers_is_no_damage(caplog):
    assert texts("00:00:01,000 --> 00:00:02,000\nA b\n12:30 > 11:15\n") == ["A b 12:30 > 11:15"]
    assert not caplog.messages


def test_texts_with_empty_lines():
    assert texts("00:01,0 --> 00:02,0\nA\nb\n\nC\n\n\n2\n00:03,0 --> 00:04,0\nD\n") == ["A b", "C", "D"]


def test_long_lines_are_about_as_long_as_each_other():
    film = "1\n00:00:01,000 --> 00:00:02,000\na\nb\nc"
    lines = written(film, "one two three four five six <font> seven eight nine").split("\n")[2:]
    assert lines == ["one two three", "four five six <font>", "seven eight nine"]
    assert written(film, "one two").split("\n")[2:] == ["one", "two"]
    film = '1\n00:00:01,000 --> 00:00:02,000\n<font color="#f00 x">a\nb</font>'
    assert written(film, "one two").split("\n")[2:] == ['<font color="#f00 x">one', "two</font>"]


def test_tags_without_a_counterpart_stay():
    film = "1\n00:00:01,000 --> 00:00:02,000\n<i>a <b>b</i> c</b> <u>d"
    assert texts(film) == ["a b c d"]
    assert written(film, "p q r s").split("\n")[2] == "<i>p <b>q</i> r</b> <u>s"


@pytest.mark.parametrize("text", ["", "\ufeff", "\n \n"])
def test_an_empty_file(text):
    assert written(text) == text


def test_what_is_no_such_file_is_named():
    with pytest.raises(BadInputError, match="no subtitles: a line of times"):
        Subtitles.read("Hello.\nWorld.")


def test_every_segment_has_an_output():
    with pytest.raises(BadInputError, match="1 outputs for 3 segments"):
        written(FILM, "x")


LINES = st.sampled_from(
    [
        "1",
        "00:00:01,000 --> 00:00:02,000",
        "0:1,2-->0:3,4 x",
        "",
        " ",
        "<i>a",
        "b</i>",
        "<i>",
        "- c",
        "{\\an8}",
        "<b x>d",
    ]
)


@given(
    st.lists(LINES | st.text(st.characters(exclude_characters="\r"), max_size=4)).map("\n".join),
    st.sampled_from([None, "en"]),
)
@example("00:00:01,000 --> 00:00:02,000\n<i>a\n\ud800", "en")
def test_whatever_comes_goes_out_as_it_came(film, language):
    try:
        subtitles = Subtitles.read(film, language)
    except BadInputError:
        return
    assert subtitles.write([None] * len(subtitles.segments)) == film
    words = [AlignedText(each.text, [(n, n) for n in range(len(each.text.split()))]) for each in subtitles.segments]
    assert "".join(subtitles.write(words).split()) == "".join(film.split())


@pytest.mark.parametrize(
    "text", ["<i>" * 20_000 + "x" + "</b>" * 20_000, "<b " * 30_000, "{\\" * 50_000, "a\n" * 30_000]
)
def test_time_grows_with_the_size(text):
    began = time.process_time()
    subtitles = Subtitles.read(f"1\n00:00:01,000 --> 00:00:02,000\n{text}")
    for output in ("x y", "x y " * 30_000):
        subtitles.write([AlignedText(output)] * len(subtitles.segments))
    assert time.process_time() - began < 5
