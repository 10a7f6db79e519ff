"""Treebanks: files of trees in Penn brackets, as pairs of a sentence and its tree's symbols."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from transduce.config import BadInputError, Corpus
from transduce.data.lines import read_lines, tell_once
from transduce.text import BadTreeError, Linearization, Tree, clean, read_trees, unescape

# What files of trees are called, compression aside; others in a folder (READMEs, lists) are left alone.
_SUFFIXES: Final = frozenset({".mrg", ".trees", ".tree", ".ptb", ".parse", ".brackets"})
_COMPRESSED: Final = frozenset({".gz", ".zst"})

# Told of a tree that is none: where it stands, and what is wrong with it.
OnBad = Callable[[str], None]


@final
@dataclass(frozen=True)
class PlacedTree:
    """A tree, cleaned as evaluation expects it, and where it stands."""

    tree: Tree
    path: Path
    line: int

    @property
    def sentence(self) -> str:
        """Its words as people write them, separated by spaces: what a parser reads."""
        return " ".join(map(unescape, self.tree.words))


def treebank_files(corpus: Corpus, root: Path) -> list[Path]:
    """The files of a treebank whose paths are relative to ``root``, folders' in the order of their names.

    Raises:
        BadInputError: A folder has no file of trees.
    """
    names = [corpus.trees] if isinstance(corpus.trees, str) else corpus.trees or ()
    found = []
    for path in (root / name for name in names):
        if not path.is_dir():
            found.append(path)
            continue
        files = sorted(each for each in path.rglob("*") if each.is_file() and _kind(each) in _SUFFIXES)
        if not files:
            raise BadInputError(
                f"{path}: there is no file of trees in this folder: they are named {', '.join(sorted(_SUFFIXES))} "
                f"(also .gz or .zst)"
            )
        found += files
    return found


def read_treebank(
    corpus: Corpus, root: Path, *, keep_invalid: bool = False, on_bad: OnBad | None = None
) -> Iterator[PlacedTree]:
    """All trees of a treebank, cleaned.

    Where bad trees are to be left out, ``on_bad`` is told of each; without it, a warning for each file says how many
    there were.

    Raises:
        BadInputError: A file cannot be read or has no tree, or a tree is none and bad trees are not to be left out;
            file, line and tree are named.
    """
    for path in treebank_files(corpus, root):
        yield from _read_file(path, corpus, keep_invalid, on_bad)


def read_tree_pairs(
    corpus: Corpus, root: Path, *, keep_invalid: bool = False, on_bad: OnBad | None = None
) -> Iterator[tuple[str, str]]:
    """The sentences of a treebank and the symbols of their trees."""
    how = Linearization(corpus.linearization, corpus.tags, corpus.words)
    for placed in read_treebank(corpus, root, keep_invalid=keep_invalid, on_bad=on_bad):
        yield placed.sentence, " ".join(how.write(placed.tree))


def _read_file(path: Path, corpus: Corpus, keep_invalid: bool, on_bad: OnBad | None) -> Iterator[PlacedTree]:
    number, left_out, first = 0, 0, ""
    lines = enumerate(read_lines(path, keep_invalid=keep_invalid), start=1)
    for number, (line, found) in enumerate(read_trees(lines), start=1):
        tree = found if isinstance(found, BadTreeError) else clean(found, functions=corpus.functions)
        if isinstance(tree, Tree):
            yield PlacedTree(tree, path, line)
            continue
        reason = tree or "there is nothing but null elements in it"
        message = f"{path} line {line}: tree {number:,}: {reason}"
        if corpus.bad_trees == "refuse":
            raise BadInputError(f'{message} (bad_trees = "drop" leaves such trees out)')
        if on_bad is not None:
            on_bad(message)
            continue
        left_out, first = left_out + 1, first or message
    if not number:
        raise BadInputError(f"{path}: has no tree")
    if left_out:
        tell_once(path)(f"{first}: {left_out:,} of {number:,} trees of the file are left out")


def _kind(path: Path) -> str:
    return (path.with_suffix("") if path.suffix in _COMPRESSED else path).suffix
