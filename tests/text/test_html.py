import sys

import pytest

from transduce.config import BadInputError, TransduceError
from transduce.text.html import EndTag, StartTag, read_html


def written(html):
    return "".join(map(str, read_html(html)))


@pytest.mark.parametrize(
    "html",
    [
        "",
        "Hello <b>World</b>",  # no html, body or p around it
        'a<br>b<img src="x">c<wbr>d<source src="y">e',
        "&lt;b&gt; &amp;amp; &nbsp; é 日本",
        '<a href="x?a=1&amp;b=2" title="&quot;&lt;&gt;\'" data-x="">y</a>',
        '<div @click="a" :class="{b: 1}" v-on:click.prevent="c &amp;&amp; d">e</div><o:p>f</o:p>',
        "<table><tr><td>x</td></tr></table><td>y</td>",  # no tbody, and no cell is lost
        "<script>if (a<b && c) '</p>'</script><style>a > b { }</style>",
        "<textarea>\n&lt;b&gt;</textarea><pre>\n\n  x\n</pre>",
        "<!-- a --><!--[if IE]>b<![endif]-->c",
        '<svg><image href="a.png"></image><text>b</text></svg>',
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n</head>\n<body class="b">\n<p>c</p>\n</body>\n</html>\n',
    ],
)
def test_what_is_well_formed_comes_out_as_it_came(html):
    assert written(html) == html


@pytest.mark.parametrize(
    ("html", "repaired"),
    [
        ("<p>a<p>b", "<p>a</p><p>b</p>"),
        ("<ul><li>a<li>b</ul>", "<ul><li>a</li><li>b</li></ul>"),
        ("<b>a<i>b</b>c</i>", "<b>a<i>b</i></b>c"),
        ("a</b></p>", "a"),
        ("a < b & c <3", "a &lt; b &amp; c &lt;3"),
        ("<A HREF='x' href=y DISABLED>z", '<a href="x" disabled="">z</a>'),
        ("a\r\nb\rc\0d", "a\nb\nc\ufffdd"),
        ("&copy &notin; &#0; &#xD800; &#x1F600;", "© ∉ \ufffd \ufffd \U0001f600"),
        ("<br></br>x</br>", "<br>x"),
        ("<plaintext>a<b>", "<pre>a&lt;b&gt;</pre>"),
        ("\ufeff<p>x", "<p>x</p>"),
        ("<title>x</title>", "<title>x</title>"),
        ("a<html><body>b</body>c</html>d<head>", "abcd"),
        ("</body><head>a</head>b", "ab"),
        ("<body>a</body>b", "<html><body>ab</body></html>"),
        ("<!-- x --><!doctype html>a", "<!-- x --><!DOCTYPE html>\n<html><body>a</body></html>"),
        ("<!doctype html public '-//A//B' 'c\"d'>", "<!DOCTYPE html PUBLIC \"-//A//B\" 'c\"d'>\n"),
    ],
)  # fmt: skip
def test_what_is_not_is_repaired(html, repaired):
    assert written(html) == repaired


def test_a_page_that_goes_on_behind_its_end():
    assert written("<html><body>a</body></html>\n<!-- b -->\n") == "<html><body>a</body></html>\n<!-- b -->\n"
    assert written("<html><body>a</body> <p>b</html> c") == "<html><body>a <p>b</p> c</body></html>"


def test_the_parts_are_tags_with_their_counterparts():
    assert read_html("<b class=x>") == [StartTag("b", {"class": "x"}), EndTag("b")]
    assert read_html("<br/>") == [StartTag("br", {})]


@pytest.mark.parametrize("tag", ["<div>", "<b>", "<source>", "<svg>", "<ul><li>"])
@pytest.mark.parametrize("end", ["", "</i>"])
def test_what_is_too_deep_is_named_at_once(tag, end):
    """The parser itself would take a time that grows with the square: 16 seconds for this."""
    assert len(read_html(f"{tag * 400}x")) > 400
    with pytest.raises(BadInputError, match="elements in more than 1,000 others"):
        read_html(tag * 20_000 + end * 100_000)
    with pytest.raises(BadInputError, match="elements in more than 1,000 others"):
        read_html(tag * 1001 + "</b></div></svg></li></ul>" * 2000)


def test_half_of_a_surrogate_pair_is_named():
    with pytest.raises(BadInputError, match="half of a surrogate pair"):
        read_html("<p>a\ud800")


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "lxml", None)
    with pytest.raises(TransduceError, match=r"transduce\[markup\]"):
        read_html("<b>")
