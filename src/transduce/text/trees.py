"""Phrase structure trees in the Penn Treebank's brackets: read, cleaned as evaluation expects, and written."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, final

from transduce.config import BadInputError

# A bracket, or a label or word: everything else without white space.
_PARTS: Final = re.compile(r"[()]|[^\s()]+")
# How treebanks write the brackets of the text.
_ESCAPED: Final = {"(": "-LRB-", ")": "-RRB-", "[": "-LSB-", "]": "-RSB-", "{": "-LCB-", "}": "-RCB-"}
_CHARACTERS: Final = {written: character for character, written in _ESCAPED.items()} | {r"\/": "/", r"\*": "*"}
_ESCAPES: Final = re.compile("|".join(map(re.escape, _CHARACTERS)))
# What stands around a sentence's tree in the files.
_ROOTS: Final = frozenset({"", "ROOT", "TOP", "S1"})
ROOT: Final = "ROOT"
_TRACE: Final = "-NONE-"
# Behind a label: what a phrase does in its sentence, other labels that it might have, numbers that join it to others.
_FUNCTIONS: Final = re.compile(r"(?<=.)[-=|].*")
_NUMBERS: Final = re.compile(r"(?<=.)[-=]\d+")


@final
@dataclass(frozen=True, slots=True)
class Tree:
    """A phrase: its label and its parts; or a word, with its part-of-speech tag as the label, ``word`` as written.

    Trees may be deep, and no method calls itself.
    """

    label: str
    parts: "tuple[Tree, ...]" = ()
    word: str | None = None

    def leaves(self) -> "Iterator[Tree]":
        """The words with their tags, from left to right."""
        waiting = [self]
        while waiting:
            tree = waiting.pop()
            if tree.word is not None:
                yield tree
            waiting += reversed(tree.parts)

    @property
    def words(self) -> list[str]:
        """The words as they are written in the tree: ``-LRB-`` and not ``(``."""
        return [leaf.word or "" for leaf in self.leaves()]

    def __str__(self) -> str:
        """In brackets, on one line."""
        written: list[str] = []
        waiting: list[Tree | None] = [self]
        while waiting:
            tree = waiting.pop()
            if tree is None:
                written.append(")")
            elif tree.word is not None:
                written.append(f" ({tree.label} {tree.word})")
            else:
                written.append(f" ({tree.label}")
                waiting += [None, *reversed(tree.parts)]
        return "".join(written).lstrip()


def escape(word: str) -> str:
    """A word of running text as a tree can hold it: without brackets and white space."""
    return re.sub(r"\s", "_", re.sub(r"[()]", lambda found: _ESCAPED[found.group()], word))


def unescape(word: str) -> str:
    """A word of a tree as people write it: ``(`` for ``-LRB-``, and no backslash before ``/`` and ``*``."""
    return _ESCAPES.sub(lambda found: _CHARACTERS[found.group()], word)


class BadTreeError(BadInputError):
    """Text that is no tree, with the reason."""


def read_trees(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, Tree | BadTreeError]]:
    """The trees of numbered lines, or what is wrong with them, each behind the number of its first line.

    A tree stands on a line, or on several, of which all but the first begin with white space. An unlabelled bracket
    around a tree stays, as a phrase whose label is empty.
    """
    waiting: list[str] = []
    first = depth = 0
    for number, line in lines:
        if waiting and line.startswith("("):  # what came before was never closed
            yield first, _tree_or_error(waiting)
            waiting, depth = [], 0
        if not line.strip():
            continue
        if not waiting:
            first = number
        waiting.append(line)
        depth += line.count("(") - line.count(")")
        if depth <= 0:
            yield first, _tree_or_error(waiting)
            waiting, depth = [], 0
    if waiting:
        yield first, _tree_or_error(waiting)


def _tree_or_error(lines: list[str]) -> Tree | BadTreeError:
    try:
        return parse_brackets("\n".join(lines))
    except BadTreeError as error:
        return error


def parse_brackets(text: str) -> Tree:
    """The tree of a text in brackets.

    Raises:
        BadTreeError: It is none, or more than one.
    """
    reading = _Reading()
    for part in _PARTS.findall(text):
        match part:
            case "(":
                reading.begin()
            case ")":
                reading.end()
            case _:
                reading.name(part)
    return reading.finish()


@dataclass(slots=True)
class _Bracket:
    """One that is open: its label, None as long as nothing stands in it, and what followed that."""

    label: str | None = None
    parts: list[Tree] = field(default_factory=list)
    word: str | None = None


@final
class _Reading:
    """A tree as far as its text has been read."""

    def __init__(self) -> None:
        self._open: list[_Bracket] = []
        self._root: Tree | None = None

    def begin(self) -> None:
        """A bracket opens."""
        if self._root is not None:
            raise BadTreeError("two trees on a line: write each on its own")
        if self._open:
            around = self._open[-1]
            if around.word is not None:
                raise BadTreeError(f"a phrase begins beside the word {around.word}: a word stands alone with its tag")
            around.label = around.label or ""
        self._open.append(_Bracket())

    def end(self) -> None:
        """A bracket closes."""
        if not self._open:
            raise BadTreeError("unbalanced: a closing bracket too many")
        closed = self._open.pop()
        if closed.word is None and not closed.parts:
            raise BadTreeError(f"the phrase ({closed.label or ''}) is empty")
        tree = Tree(closed.label or "", tuple(closed.parts), closed.word)
        if self._open:
            self._open[-1].parts.append(tree)
        else:
            self._root = tree

    def name(self, text: str) -> None:
        """A label or a word."""
        if not self._open:
            raise BadTreeError(f"{text!r} stands outside of all brackets")
        inside = self._open[-1]
        if inside.parts:
            raise BadTreeError(f"the word {text} has no part-of-speech tag: write it as (TAG {text})")
        if inside.word is not None:
            raise BadTreeError(f"two words in one bracket, {inside.word} and {text}: each has its own, with its tag")
        if inside.label is None:
            inside.label = text
        else:
            inside.word = text

    def finish(self) -> Tree:
        """The text has ended."""
        if self._open:
            last = self._open[-1].label or ""
            raise BadTreeError(f"unbalanced: the tree ends with {len(self._open)} open, the last of them ({last}")
        if self._root is None:
            raise BadTreeError("there is no tree")
        return self._root


def clean(tree: Tree, *, functions: bool = False) -> Tree | None:
    """The tree as evaluation expects it; None where nothing is left of it.

    Without null elements and the phrases that they leave empty, without functions (``NP-SBJ`` is ``NP``; they stay with
    ``functions``) and the numbers of what belongs together, and without the root of the file around a phrase. Where
    there is no single phrase in it, the root stays, with the label ROOT.
    """
    plain = _without_numbers if functions else _without_functions
    done: list[list[Tree]] = [[]]
    waiting: list[Tree | str] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, str):
            if parts := done.pop():
                done[-1].append(Tree(node, tuple(parts)))
        elif node.word is None:
            done.append([])
            waiting += [plain(node.label), *reversed(node.parts)]
        elif node.label != _TRACE:
            done[-1].append(Tree(plain(node.label), (), node.word))
    if not done[0]:
        return None
    (cleaned,) = done[0]
    while cleaned.label in _ROOTS and len(cleaned.parts) == 1 and cleaned.parts[0].word is None:
        cleaned = cleaned.parts[0]
    if cleaned.word is not None:
        return Tree(ROOT, (cleaned,))
    return Tree(ROOT, cleaned.parts) if cleaned.label in _ROOTS else cleaned


def _without_functions(label: str) -> str:
    return label if label.startswith("-") else _FUNCTIONS.sub("", label)


def _without_numbers(label: str) -> str:
    return label if label.startswith("-") else _NUMBERS.sub("", label)
