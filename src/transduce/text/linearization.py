"""Trees as sequences of symbols and back: what a model reads and writes of them.

``brackets`` are those of Vinyals et al. 2015: each bracket is a symbol, the closing ones with their label, and words
are left out: ``(S (NP XX )NP (VP XX )VP )S``. ``shift_reduce`` are the actions of a top-down parser (Dyer et al. 2016):
``NT(S) NT(NP) SHIFT REDUCE NT(VP) SHIFT REDUCE REDUCE``. Words are those of the source, in its order. Their tags are
one symbol for all (``normalized``), or stand in it (``kept``): ``NN`` in place of ``XX``, ``SHIFT(NN)`` of ``SHIFT``.
With ``words``, each word stands behind its symbol, which is then ``WORD`` or ``WORD(NN)``: ``(NP WORD(NN) dog )NP``.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, final

from transduce.config.corpora import LinearizationKind, TreeTags
from transduce.text.trees import ROOT, BadTreeError, Tree, unescape

# The tag of every word whose own is not known.
NORMALIZED: Final = "XX"
_SHIFT, _REDUCE, _WORD = "SHIFT", "REDUCE", "WORD"
_BEGIN: Final = "NT("


@final
@dataclass(frozen=True)
class Opening:
    """A phrase begins."""

    label: str


@final
@dataclass(frozen=True)
class Closing:
    """A phrase ends: that which began last, whose label this is, where it is said."""

    label: str | None


@final
@dataclass(frozen=True)
class Leaf:
    """The next word, with its tag."""

    tag: str


Action = Opening | Closing | Leaf


@final
@dataclass(frozen=True)
class Linearization:
    """How trees are written as symbols."""

    kind: LinearizationKind = "brackets"
    tags: TreeTags = "normalized"
    words: bool = False

    @classmethod
    def of(cls, vocabulary: Collection[str]) -> "Linearization | None":
        """The one whose symbols are in a vocabulary, in the order of its ids; None where there is none.

        Words of texts may look like symbols of leaves (``WORD``), but are learned, and come behind them.
        """
        begun, ended = ({symbol[1:] for symbol in vocabulary if symbol.startswith(each)} for each in "()")
        kind: LinearizationKind
        if _REDUCE in vocabulary and any(symbol.startswith(_BEGIN) for symbol in vocabulary):
            kind, plain = "shift_reduce", _SHIFT
        elif begun & ended - {""}:
            kind, plain = "brackets", NORMALIZED
        else:
            return None
        ways = (plain, _WORD)
        leaf = next((symbol for symbol in vocabulary if symbol.partition("(")[0] in ways), "")
        return cls(kind, "normalized" if leaf in ways else "kept", leaf.startswith(_WORD))

    def write(self, tree: Tree) -> list[str]:
        """A tree's symbols."""
        symbols: list[str] = []
        waiting: list[Tree | str] = [tree]
        while waiting:
            node = waiting.pop()
            if isinstance(node, str):
                symbols.append(node)
            elif node.word is None:
                symbols.append(self._opening(node.label))
                waiting += [self._closing(node.label), *reversed(node.parts)]
            else:
                symbols.append(self._leaf(node.label))
                if self.words:
                    symbols.append(unescape(node.word))
        return symbols

    @lru_cache(maxsize=4096)  # noqa: B019 - of equal ones, of which a process has few
    def meaning(self, symbol: str) -> Action | None:
        """What a symbol says; None where it is no part of trees."""
        if self.words:
            found = (
                _action(symbol) if self.kind == "shift_reduce" or symbol.startswith(_WORD) else self._bracket(symbol)
            )
            return None if isinstance(found, Leaf) and not symbol.startswith(_WORD) else found
        return self._bracket(symbol) if self.kind == "brackets" else _action(symbol)

    def _bracket(self, symbol: str) -> Action | None:
        if symbol.startswith("("):
            return Opening(symbol[1:])
        if symbol.startswith(")"):
            return Closing(symbol[1:])
        return Leaf(symbol) if self.tags == "kept" or symbol == NORMALIZED else None

    def read(self, symbols: Iterable[str], words: Sequence[str]) -> Tree:
        """The tree that the symbols are of, over these words.

        Raises:
            BadTreeError: They are of none, or of one over more words, or fewer.
        """
        growing = _Growing(words)
        for symbol in symbols:
            match self.meaning(symbol):
                case Opening(label):
                    growing.begin(label)
                case Closing(label):
                    growing.end(label)
                case Leaf(tag):
                    growing.add_word(tag)
                case None:
                    raise BadTreeError(f"{symbol} is no part of a tree")
        return growing.finish()

    def repair(self, symbols: Iterable[str], words: Sequence[str]) -> Tree:
        """A tree over all of the words, of what of the symbols makes sense.

        What closes nothing, or a phrase without parts, is left out, as is a word too many. Phrases that are open at the
        end close there; words that are missing come last, in the root.
        """
        open_: list[tuple[str, list[Tree]]] = [(ROOT, [])]
        rest = iter(words)

        def close() -> None:
            label, parts = open_.pop()
            if parts:
                open_[-1][1].append(Tree(label, tuple(parts)))

        for symbol in symbols:
            match self.meaning(symbol):
                case Opening(label):
                    open_.append((label, []))
                case Closing() if len(open_) > 1:
                    close()
                case Leaf(tag) if (word := next(rest, None)) is not None:
                    open_[-1][1].append(Tree(tag, (), word))
                case _:
                    continue
        missing = [Tree(NORMALIZED, (), word) for word in rest]
        while len(open_) > 1:
            close()
        parts = open_[0][1]
        if len(parts) == 1 and parts[0].word is None:
            return Tree(parts[0].label, (*parts[0].parts, *missing))
        return Tree(ROOT, (*parts, *missing))

    def _opening(self, label: str) -> str:
        return f"({label}" if self.kind == "brackets" else f"{_BEGIN}{label})"

    def _closing(self, label: str) -> str:
        return f"){label}" if self.kind == "brackets" else _REDUCE

    def _leaf(self, tag: str) -> str:
        if self.words:
            return _WORD if self.tags == "normalized" else f"{_WORD}({tag})"
        if self.kind == "brackets":
            return NORMALIZED if self.tags == "normalized" else tag
        return _SHIFT if self.tags == "normalized" else f"{_SHIFT}({tag})"


def _action(symbol: str) -> Action | None:
    if symbol == _REDUCE:
        return Closing(None)
    if symbol in {_SHIFT, _WORD}:
        return Leaf(NORMALIZED)
    for begin, kind in ((_BEGIN, Opening), (f"{_SHIFT}(", Leaf), (f"{_WORD}(", Leaf)):
        if symbol.startswith(begin) and symbol.endswith(")"):
            return kind(symbol[len(begin) : -1])
    return None


@final
class _Growing:
    """A tree over some words, as far as its symbols have been read."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self._used = 0
        self._open: list[tuple[str, list[Tree]]] = []
        self._root: Tree | None = None

    def begin(self, label: str) -> None:
        """A phrase begins."""
        if self._root is not None:
            raise BadTreeError(f"a phrase {label} stands behind the end of the tree")
        self._open.append((label, []))

    def end(self, said: str | None) -> None:
        """The phrase that began last ends."""
        if not self._open:
            raise BadTreeError("a closing bracket too many")
        label, parts = self._open.pop()
        if said not in {None, label}:
            raise BadTreeError(f"the phrase {label} is closed as {said}")
        if not parts:
            raise BadTreeError(f"the phrase {label} is empty")
        made = Tree(label, tuple(parts))
        if self._open:
            self._open[-1][1].append(made)
        else:
            self._root = made

    def add_word(self, tag: str) -> None:
        """The next word."""
        if not self._open:
            raise BadTreeError("a word stands outside of all phrases")
        if self._used == len(self._words):
            raise BadTreeError(f"there are more words in the tree than the {len(self._words):,} of the sentence")
        self._open[-1][1].append(Tree(tag, (), self._words[self._used]))
        self._used += 1

    def finish(self) -> Tree:
        """The symbols have ended."""
        if self._root is None:
            raise BadTreeError(f"unbalanced: {len(self._open)} phrases do not end")
        if self._used < len(self._words):
            raise BadTreeError(f"{self._used:,} words in the tree, but the sentence has {len(self._words):,}")
        return self._root
