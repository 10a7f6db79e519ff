"""A block of running text: its sentences, the tags around its words, and what stands between them."""

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, final

from transduce.text.html import escape_text
from transduce.text.sentences import split_sentences

_SPACE: Final = " \t\n\f\r"
_SPACES: Final = re.compile(rf"[{_SPACE}]+")
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


def has_letters(text: str) -> bool:
    """Whether there is anything to translate: numbers and signs alone stay as they are."""
    return any(map(str.isalpha, text))


@dataclass(slots=True)
class _OpenElement:
    """An element whose words have not all been read."""

    parent: int
    opening: str
    number: int
    start: int = -1
    end: int = -1
    closing: str = ""


@final
class BlockReader:
    """A block as far as it has been read; ``escape`` makes markup of text."""

    def __init__(self, escape: Callable[[str], str] = escape_text) -> None:
        self._escape = escape
        self._markup: list[str] = []
        self._text: list[str] = []
        self._length = 0
        self._before = ""
        self._space = ""  # the white space that was read last, where nothing but white space was
        self._spaced = self._visible = self._beside = False  # since the last word: white space, something else
        self._ends: list[int] = []
        self._elements: list[_OpenElement] = []
        self._placeholders: list[Placeholder] = []
        self._open: list[int] = []
        self._wordless: list[_OpenElement] = []  # those that are open and have no word yet
        self._owners: list[tuple[int, int]] = []

    def add_text(self, text: str) -> None:
        """Text, with white space as it stands in the page."""
        self._markup.append(self._escape(text))
        words = text.strip(_SPACE)
        before = len(text) - len(text.lstrip(_SPACE))
        if before:
            self._add_space(text[:before])
        if words:
            self._add_words(_SPACES.sub(" ", words))
            if after := text[before + len(words) :]:
                self._add_space(after)

    def _add_space(self, space: str) -> None:
        self._space += space
        self._spaced = True
        if not self._length and not self._placeholders:
            self._before = self._space
        elif self._placeholders and self._beside:
            self._placeholders[-1] = replace(self._placeholders[-1], after=self._space)

    def _add_words(self, words: str) -> None:
        if self._length and self._parts_from(words[0]):
            self._text.append(" ")
            self._length += 1
        for element in self._wordless:
            element.start = self._length
        self._wordless.clear()
        owner = self._open[-1] if self._open else -1
        if not self._owners or self._owners[-1][1] != owner:
            self._owners.append((self._length, owner))
        self._text.append(words)
        self._length += len(words)
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
        element = _OpenElement(self._open[-1] if self._open else -1, tag, self._count())
        self._open.append(len(self._elements))
        self._elements.append(element)
        self._wordless.append(element)

    def close(self, tag: str) -> None:
        """The element that began last ends."""
        self._markup.append(tag)
        element = self._elements[self._open.pop()]
        element.end, element.closing = self._length, tag

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
            tuple(Element(e.parent, e.start, e.end, e.opening, e.closing, e.number) for e in self._elements),
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
