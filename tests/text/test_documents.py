import pytest

from transduce.text import AlignedText, Markup, Subtitles, read_document


@pytest.mark.parametrize(
    ("kind", "of", "text"),
    [("html", Markup, "<p>a <b>b</b></p>"), ("srt", Subtitles, "00:01,0 --> 00:02,0\na <b>b</b>")],
)
def test_each_kind_is_read_and_written(kind, of, text):
    document = read_document(kind, text, "en")
    assert isinstance(document, of)
    assert [segment.text for segment in document.segments] == ["a b"]
    assert document.write([AlignedText("c d")]) == text.replace("a", "c").replace("b</", "d</")
