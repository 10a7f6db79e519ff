"""Trees as NLTK has them, its words of running text, and its drawings; the extra ``parsing``."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from transduce.config import BadInputError, GenerationChanges, TransduceError
from transduce.inference.parsing import Parser, read_sentences
from transduce.text import BadTreeError, Tree, escape

if TYPE_CHECKING:
    import nltk


def split_words(text: str) -> list[str]:
    """The words of running text, as the Penn Treebank has them: ``do n't``, and quotes as `` and ''.

    Raises:
        TransduceError: The extra ``parsing`` is not installed.
    """
    try:
        from nltk.tokenize import TreebankWordTokenizer  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise _missing("running text needs words") from error
    words: list[str] = TreebankWordTokenizer().tokenize(text)
    return words


def to_nltk(tree: Tree | None) -> "nltk.Tree":
    """The same as NLTK has it, leaves as they stand in the tree; no tree is one without label and children.

    Raises:
        TransduceError: The extra ``parsing`` is not installed.
    """
    try:
        import nltk  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise _missing("trees are given as nltk.Tree") from error
    done: list[list[Any]] = [[]]
    waiting: list[Tree | str] = [] if tree is None else [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, str):
            parts = done.pop()
            done[-1].append(nltk.Tree(node, parts))
        elif node.word is not None:
            done[-1].append(nltk.Tree(node.label, [node.word]))
        else:
            done.append([])
            waiting += [node.label, *reversed(node.parts)]
    return done[0][0] if done[0] else nltk.Tree("", [])


def parse_to_nltk(
    parser: Parser,
    sentences: Iterable[str | Sequence[str]],
    beam_size: int | None = None,
    length_penalty: float | None = None,
    **changes: Unpack[GenerationChanges],
) -> "list[nltk.Tree]":
    """The tree of each sentence, which is words separated by white space, or in a list; they are leaves to the letter.

    Raises:
        BadInputError: As ``Parser.parse``; or a sentence has no tree.
        TransduceError: The extra ``parsing`` is not installed.
    """
    words = read_sentences(sentences)
    parses = parser.parse(words, beam_size, length_penalty, **changes)
    trees = []
    for number, (found, own) in enumerate(zip(parses, words, strict=True), start=1):
        if found.error is not None:
            raise BadInputError(f"sentence {number:,}: {found.error}")
        tree = to_nltk(found.tree)
        for place, word in zip(tree.treepositions("leaves"), own, strict=True):
            tree[place] = word
        trees.append(tree)
    return trees


def from_nltk(tree: "nltk.Tree") -> Tree:
    """A tree of NLTK's, whose words are leaves; brackets in them are escaped.

    Raises:
        BadTreeError: A word has no tag of its own, or a phrase is empty.
    """
    done: list[list[Tree]] = [[]]
    waiting: list[Any] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, tuple):
            (label,), parts = node, done.pop()
            if not parts:
                raise BadTreeError(f"the phrase ({label}) is empty")
            done[-1].append(Tree(label, tuple(parts)))
        elif isinstance(node, str):
            raise BadTreeError(f"the word {node} has no part-of-speech tag: give it a Tree of its own")
        elif len(node) == 1 and isinstance(node[0], str):
            done[-1].append(Tree(node.label(), (), escape(node[0])))
        else:
            done.append([])
            waiting += [(node.label(),), *reversed(node)]
    return done[0][0]


def draw(tree: Tree) -> str:
    """The tree drawn as text.

    Raises:
        TransduceError: The extra ``parsing`` is not installed.
    """
    nltk_tree = to_nltk(tree)
    from nltk.tree.prettyprinter import TreePrettyPrinter  # noqa: PLC0415 - an extra

    text: str = TreePrettyPrinter(nltk_tree).text(unicodelines=True)
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())


def _missing(what: str) -> TransduceError:
    return TransduceError(f"{what}: install the extra parsing (pip install 'transduce[parsing]')")
