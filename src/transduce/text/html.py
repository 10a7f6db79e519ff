"""HTML as tags and text, and back: read by libxml2's parser (lxml), which repairs whatever comes.

It closes what is left open, drops what closes nothing, and works in linear time whatever the input: HTML5's own rules
may make n^2 elements of n tags, by opening formatting elements anew in every block. Neither does it add elements that
nobody wrote (``tbody``), or drop cells without a table. Hence an element that is closed across another
(``<b>a<i>b</b>c</i>``) ends there, where browsers go on with it.
"""

import re
from dataclasses import dataclass
from typing import Final, final

from transduce.config import BadInputError, TransduceError

# Elements without content, which have no end tag. (SVG's image has one.)
VOID: Final = frozenset({
    "area", "base", "basefont", "bgsound", "br", "col", "command", "embed", "frame", "hr", "img", "input",
    "isindex", "keygen", "link", "meta", "param", "source", "track", "wbr",
})  # fmt: skip
# Their content is no markup, not even character references.
_RAW: Final = frozenset({"iframe", "noembed", "noframes", "script", "style", "xmp"})
# Nothing can end it, so that nothing could follow it: it is shown as this is.
_RENAMED: Final = {"plaintext": "pre"}
_AROUND: Final = ("html", "body")
_PAGE: Final = re.compile(
    r"(?>\s|<!--.*?-->|<\?[^>]*>)*+<(?:!doctype|html|head|body)(?=[\s/>])", re.DOTALL | re.IGNORECASE
)
# Browsers go down to 512, people's pages to some dozens. An end tag without a start tag is looked for in all of them.
_DEEPEST: Final = 1000
_PORTION: Final = 2**16  # bytes that are read before that is looked at
_TEXT: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\u00a0": "&nbsp;", "\r": "&#13;"})
_VALUE: Final = _TEXT | str.maketrans({'"': "&quot;"})


@final
@dataclass(frozen=True, slots=True)
class StartTag:
    """The beginning of an element; of one without content (``VOID``), all of it."""

    name: str
    attributes: dict[str, str]

    def __str__(self) -> str:
        """As it is written; values have the same characters as before, whatever quotes and references they had."""
        return (
            f"<{self.name}"
            + "".join(f' {name}="{_escape_value(self.attributes[name])}"' for name in self.attributes)
            + ">"
        )


@final
@dataclass(frozen=True, slots=True)
class EndTag:
    """The end of the element that was opened last of those that are open."""

    name: str

    def __str__(self) -> str:
        """As it is written."""
        return f"</{self.name}>"


@final
@dataclass(frozen=True, slots=True)
class Characters:
    """Text, without character references but in scripts and their like, where there are none."""

    text: str
    raw: bool = False

    def __str__(self) -> str:
        """As it is written."""
        return self.text if self.raw else escape_text(self.text)


@final
@dataclass(frozen=True, slots=True)
class Declaration:
    """A comment or a document type, as it is written."""

    markup: str

    def __str__(self) -> str:
        """As it is written."""
        return self.markup


HtmlPart = StartTag | EndTag | Characters | Declaration


def escape_text(text: str) -> str:
    """Text as HTML: no character of it is markup."""
    return text.translate(_TEXT)


def _escape_value(text: str) -> str:
    return text.translate(_VALUE)


def read_html(html: str) -> list[HtmlPart]:
    """The parts of a page, or of a fragment, to which nothing is added; every tag has its counterpart.

    It is a page where it begins as one does (a document type, ``html``, ``head`` or ``body``).

    Raises:
        BadInputError: It holds half of a surrogate pair, or elements in more than 1,000 others.
        TransduceError: The extra ``markup`` is not installed.
    """
    try:
        from lxml import etree  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise TransduceError("reading markup needs lxml: pip install 'transduce[markup]'") from error
    html = html.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
    page = _PAGE.match(html) is not None
    try:
        encoded = (html if page else f"<html><body>{html}").encode()
    except UnicodeEncodeError as error:
        raise BadInputError(
            "the markup holds half of a surrogate pair, which is no text: decode the bytes that it came from as UTF-8"
        ) from error
    reading = _Reading(page=page)
    parser = etree.HTMLParser(target=reading, encoding="utf-8", huge_tree=True)
    for start in range(0, len(encoded), _PORTION):
        parser.feed(encoded[start : start + _PORTION])
        if reading.deepest > _DEEPEST:
            raise BadInputError(f"the markup has elements in more than {_DEEPEST:,} others: close them, or split it")
    parser.close()
    return reading.parts


@final
class _Reading:
    """What the parser tells, in its own words; void elements it takes for others, and pages may end several times."""

    def __init__(self, *, page: bool) -> None:
        self._page = page
        self.parts: list[HtmlPart] = []
        self._open: list[str] = []
        self._depth = self.deepest = 0
        self._text: list[str] = []
        self._around: list[str] = []  # of html and body, what there is
        self._ended: list[HtmlPart] = []  # their ends and what came behind, unless more of the body does

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """An element begins."""
        self._finish_text()
        self._depth += 1
        self.deepest = max(self.deepest, self._depth)
        if self._is_around(name):
            if self._page and name not in self._around and not self._open:
                self._around.append(name)
                self._add(StartTag(name, dict(attributes)))
            return
        name = _RENAMED.get(name, name)
        self._add(StartTag(name, dict(attributes)))
        if name not in VOID:
            self._open.append(name)

    def end(self, name: str) -> None:
        """An element ends; it is the one that began last."""
        self._finish_text()
        self._depth -= 1
        if self._is_around(name):
            if name in self._around and EndTag(name) not in self._ended:
                self._ended.append(EndTag(name))
            return
        name = _RENAMED.get(name, name)
        if name not in VOID:
            self._open.pop()
            self._add(EndTag(name))

    def _is_around(self, name: str) -> bool:
        """Whether it is an element that a page has once, and a fragment not at all."""
        return name in _AROUND or (name == "head" and not self._page)

    def data(self, text: str) -> None:
        """Some of a text."""
        self._text.append(text)

    def comment(self, text: str) -> None:
        """A comment, or what is none of HTML's and counts as one."""
        self._finish_text()
        (self._ended or self.parts).append(Declaration(f"<!--{text}-->"))

    def pi(self, target: str, data: str | None = None) -> None:
        """An instruction to programs, which HTML has none of."""
        self.comment(f"?{target} {data or ''}")

    def doctype(self, name: str | None, public: str | None, system: str | None) -> None:
        """The document type."""
        if self._page:
            words = [f"<!DOCTYPE {name or ''}".rstrip()]
            if public is not None:
                words.append("PUBLIC")
            elif system is not None:
                words.append("SYSTEM")
            words += [f"'{each}'" if '"' in each else f'"{each}"' for each in (public, system) if each is not None]
            self.parts.append(Declaration(" ".join(words) + ">\n"))

    def close(self) -> None:
        """The end of the text."""
        self._finish_text()
        ends = [EndTag(name) for name in reversed(self._around)]
        if [each for each in self._ended if isinstance(each, EndTag)] != ends:
            self._ended = [*(each for each in self._ended if not isinstance(each, EndTag)), *ends]
        self.parts += self._ended

    def _add(self, part: HtmlPart) -> None:
        """Behind the end of the body, what is more than white space stands in the body still."""
        if self._ended:
            self.parts += [each for each in self._ended if not isinstance(each, EndTag)]
            self._ended = []
        self.parts.append(part)

    def _finish_text(self) -> None:
        text = "".join(self._text)
        self._text.clear()
        if not text:
            return
        part = Characters(text, raw=bool(self._open) and self._open[-1] in _RAW)
        if self._ended and text.isspace():
            self._ended.append(part)
        else:
            self._add(part)
