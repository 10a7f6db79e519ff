"""What of a page is text to be translated, block by block, and what is left as it stands."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, final

from transduce.text.html import VOID, Characters, EndTag, HtmlPart, StartTag
from transduce.text.sentences import split_sentences

# Elements that text does not flow through: a paragraph ends where one begins or ends.
_BLOCKS: Final = frozenset({
    "address", "article", "aside", "base", "basefont", "blockquote", "body", "caption", "center", "col", "colgroup",
    "dd", "details", "dialog", "dir", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "frame",
    "frameset", "h1", "h2", "h3", "h4", "h5", "h6", "head", "header", "hgroup", "hr", "html", "legend", "li", "listing",
    "main", "marquee", "menu", "menuitem", "nav", "noframes", "noscript", "ol", "optgroup", "option", "p", "pre",
    "search", "section", "select", "summary", "table", "tbody", "td", "template", "tfoot", "th", "thead", "title", "tr",
    "ul", "xmp",
})  # fmt: skip
# No text for people, or text whose white space matters, or that is no running text.
_NEVER: Final = frozenset({
    "audio", "canvas", "iframe", "listing", "math", "noembed", "noframes", "object", "pre", "script", "style", "svg",
    "textarea", "video", "xmp",
})  # fmt: skip
# Not translated unless translate="yes" says so.
_CODE: Final = frozenset({"code", "kbd", "rp", "rt", "samp", "var"})
# Footnote marks and exponents: without a letter they are no word of the sentence.
_MARKS: Final = frozenset({"sub", "sup"})
# A word may go on behind one of these.
_WITHIN_WORDS: Final = _MARKS | {"link", "meta", "script", "style", "wbr"}
_BREAK: Final = "br"
_SPACE: Final = " \t\n\f\r"
_RUNS: Final = re.compile(rf"[{_SPACE}]+|[^{_SPACE}]+")
_AFTER_A_WORD: Final = frozenset(",.;:!?…、。，．！？：；")


@final
@dataclass(frozen=True, slots=True)
class Element:
    """A tag and its counterpart around words of a block: those from ``start`` to ``end`` in its text.

    ``parent`` is the index of the element around it, -1 for the block itself; ``number`` counts elements and
    placeholders of the block in their order.
    """

    parent: int
    start: int
    end: int
    opening: str
    closing: str
    number: int


@final
@dataclass(frozen=True, slots=True)
class Placeholder:
    """What stands in a block and is not translated (an image, code, a comment, a line's end), at a place in its text.

    ``before`` and ``after`` are the white space beside it; ``parent`` and ``number`` are as an element's.
    """

    parent: int
    offset: int
    markup: str
    before: str
    number: int
    after: str = ""


@final
@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of text without the beginning or end of a paragraph in it.

    ``text`` has its white space collapsed as browsers do; ``sentences`` are where each starts and ends in it,
    ``owners`` from where on its characters stand in which element; ``markup`` is all of it as it came.
    """

    before: str
    text: str
    after: str
    sentences: tuple[tuple[int, int], ...]
    elements: tuple[Element, ...]
    placeholders: tuple[Placeholder, ...]
    owners: tuple[tuple[int, int], ...]
    markup: str


def find_blocks(parts: list[HtmlPart], language: str | None) -> list[Block | str]:
    """The blocks that have letters in them, and between them the markup that stays as it is.

    With a language, a block's sentences are those of ``split_sentences``; without one, line ends alone divide it.
    """
    nodes = _look_at(parts)
    page = _Page(language)
    open_: list[_Node] = []
    index = 0
    while index < len(parts):
        part, node = parts[index], nodes.get(index)
        translated = open_[-1].translated if open_ else True
        if node is not None and not node.worded:
            page.leave(node, "".join(map(str, parts[index : node.end + 1])), hidden=node.end == index + 1)  # an anchor
            index = node.end
        elif node is not None:
            open_.append(node)
            page.start(node, str(part))
        elif isinstance(part, EndTag):
            page.end(open_.pop(), str(part))
        elif not translated:
            page.keep(str(part))
        elif isinstance(part, Characters):
            page.run.add_text(part.text)
        else:
            page.run.add_placeholder(str(part), visible=False)
        index += 1
    page.finish_block()
    return page.found


@final
class _Page:
    """What has been found so far, and the block that is being read."""

    def __init__(self, language: str | None) -> None:
        self._language = language
        self.found: list[Block | str] = []
        self.run = _Run()

    def leave(self, node: "_Node", markup: str, *, hidden: bool) -> None:
        """An element without words; within a sentence, it is a placeholder."""
        if node.block or not node.inside:
            self.keep(markup)
        else:
            visible = not hidden and node.name not in _WITHIN_WORDS
            self.run.add_placeholder(markup, visible=visible, ends_line=node.name == _BREAK)

    def start(self, node: "_Node", tag: str) -> None:
        """An element with words begins."""
        if node.flows:
            self.run.open(tag)
        else:
            self.keep(tag)

    def end(self, node: "_Node", tag: str) -> None:
        """It ends."""
        if node.flows:
            self.run.close(tag)
        else:
            self.keep(tag)

    def keep(self, markup: str) -> None:
        """What ends a block and stays as it is."""
        self.finish_block()
        self.found.append(markup)

    def finish_block(self) -> None:
        """No text belongs to the block any more."""
        if block := self.run.finish(self._language):
            self.found.append(block)
            self.run = _Run()


@final
@dataclass(slots=True)
class _Node:
    """An element: its name, where it ends, whether text around it, its own, and any text in it is translated."""

    name: str
    inside: bool
    translated: bool
    block: bool
    end: int
    worded: bool = False

    @property
    def flows(self) -> bool:
        """Whether a paragraph goes on where it begins and ends."""
        return self.translated and not self.block


def _look_at(parts: list[HtmlPart]) -> dict[int, _Node]:
    """The elements by the places of their start tags. What has a block in it is one: ``<a><div>...</div></a>``."""
    nodes: dict[int, _Node] = {}
    open_: list[_Node] = []
    marks = 0
    for index, part in enumerate(parts):
        inside = open_[-1].translated if open_ else True
        if isinstance(part, StartTag):
            node = _Node(part.name, inside, _is_translated(part, inside, open_), part.name in _BLOCKS, index)
            nodes[index] = node
            if node.block:
                for around in reversed(open_):
                    if around.block:
                        break
                    around.block = True
            if part.name not in VOID:
                open_.append(node)
                marks += part.name in _MARKS
        elif isinstance(part, EndTag):
            node = open_.pop()
            node.end = index
            marks -= part.name in _MARKS
        elif isinstance(part, Characters) and inside and not part.text.isspace():
            if marks and not has_letters(part.text):
                continue
            for around in reversed(open_):
                if around.worded:
                    break
                around.worded = True
    return nodes


def _is_translated(tag: StartTag, inside: bool, around: list[_Node]) -> bool:
    """As HTML's attribute ``translate`` and the class ``notranslate``, which Google's translator knows, have it."""
    if tag.name in _NEVER or (around and around[-1].name in _NEVER):
        return False
    said = tag.attributes.get("translate", "inherit").strip().lower()
    if said in ("yes", ""):
        return True
    if said == "no" or tag.name in _CODE or "notranslate" in tag.attributes.get("class", "").split():
        return False
    return inside


def has_letters(text: str) -> bool:
    """Whether there is anything to translate: numbers and signs alone stay as they are."""
    return any(map(str.isalpha, text))


@final
class _Run:
    """A block as far as it has been read."""

    def __init__(self) -> None:
        self._markup: list[str] = []
        self._text: list[str] = []
        self._length = 0
        self._before = ""
        self._space = ""  # the white space that was read last, where nothing but white space was
        self._spaced = self._visible = self._beside = False  # since the last word: white space, something else
        self._ends: list[int] = []
        self._elements: list[Element] = []
        self._placeholders: list[Placeholder] = []
        self._open: list[int] = []
        self._owners: list[tuple[int, int]] = []

    def add_text(self, text: str) -> None:
        """Text, with white space as it stands in the page."""
        self._markup.append(str(Characters(text)))
        for found in _RUNS.finditer(text):
            if found[0][0] in _SPACE:
                self._add_space(found[0])
            else:
                self._add_word(found[0])

    def _add_space(self, space: str) -> None:
        self._space += space
        self._spaced = True
        if not self._length and not self._placeholders:
            self._before = self._space
        elif self._placeholders and self._beside:
            self._placeholders[-1] = replace(self._placeholders[-1], after=self._space)

    def _add_word(self, word: str) -> None:
        if self._length and self._parts_from(word[0]):
            self._text.append(" ")
            self._length += 1
        owner = self._open[-1] if self._open else -1
        for element in reversed(self._open):
            if self._elements[element].start >= 0:
                break
            self._elements[element] = replace(self._elements[element], start=self._length)
        if not self._owners or self._owners[-1][1] != owner:
            self._owners.append((self._length, owner))
        self._text.append(word)
        self._length += len(word)
        self._space = ""
        self._spaced = self._visible = self._beside = False

    def _parts_from(self, character: str) -> bool:
        """Whether a word that begins so is another one than what stands before it."""
        if self._ends and self._ends[-1] == self._length:
            return False  # the line's end parts them
        if self._spaced:
            closes = character in _AFTER_A_WORD or unicodedata.category(character) in ("Pe", "Pf")
            return bool(self._space) or not closes
        return self._visible and character.isalnum() and self._text[-1][-1].isalnum()

    def add_placeholder(self, markup: str, *, visible: bool, ends_line: bool = False) -> None:
        """What is not translated."""
        self._markup.append(markup)
        before = self._space if self._length or self._placeholders else ""
        parent = self._open[-1] if self._open else -1
        self._placeholders.append(Placeholder(parent, self._length, markup, before, self._count()))
        self._space = ""
        self._beside = True
        self._visible |= visible
        if ends_line:
            self._ends.append(self._length)

    def open(self, tag: str) -> None:
        """An element with words in it begins."""
        self._markup.append(tag)
        parent = self._open[-1] if self._open else -1
        number = self._count()
        self._open.append(len(self._elements))
        self._elements.append(Element(parent, -1, -1, tag, "", number))

    def close(self, tag: str) -> None:
        """The element that began last ends."""
        self._markup.append(tag)
        element = self._open.pop()
        self._elements[element] = replace(self._elements[element], end=self._length, closing=tag)

    def _count(self) -> int:
        return len(self._elements) + len(self._placeholders)

    def finish(self, language: str | None) -> Block | str:
        """All of it, as markup where there is nothing to translate."""
        markup, text = "".join(self._markup), "".join(self._text)
        if not has_letters(text):
            return markup
        return Block(
            self._before,
            text,
            self._space,
            tuple(_sentences(text, self._ends, language)),
            tuple(self._elements),
            tuple(self._placeholders),
            tuple(self._owners),
            markup,
        )


def _sentences(text: str, ends: list[int], language: str | None) -> Iterator[tuple[int, int]]:
    """Where each sentence starts and ends; white space of any kind is at neither end."""
    for start, end in pairwise([0, *ends, len(text)]):
        line = text[start:end]
        if not line.strip():
            continue
        if language is None:
            yield end - len(line.lstrip()), start + len(line.rstrip())
            continue
        place = start
        for sentence, separator in split_sentences(line, language):
            if sentence:
                yield place, place + len(sentence)
            place += len(sentence) + len(separator)
