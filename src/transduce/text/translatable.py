"""What of a page is translated, block by block, and what is left as it stands."""

from dataclasses import dataclass
from typing import Final, final

from transduce.text.blocks import Block, BlockReader, has_letters
from transduce.text.html import VOID, Characters, EndTag, HtmlPart, StartTag

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
            markup = "".join(map(str, parts[index : node.end + 1]))
            page.leave(node, markup, hidden=node.end == index + 1)  # such as an anchor
            index = node.end
        elif node is not None:
            open_.append(node)
            page.start(node, str(part))
        elif isinstance(part, EndTag):
            page.end(open_.pop(), str(part))
        elif not translated:
            page.keep(str(part))
        elif isinstance(part, Characters):
            page.block.add_text(part.text)
        else:
            page.block.add_placeholder(str(part), visible=False)
        index += 1
    page.finish_block()
    return page.found


@final
class _Page:
    """What has been found so far, and the block that is being read."""

    def __init__(self, language: str | None) -> None:
        self._language = language
        self.found: list[Block | str] = []
        self.block = BlockReader()

    def leave(self, node: "_Node", markup: str, *, hidden: bool) -> None:
        """An element without words; within a sentence, it is a placeholder."""
        if node.block or not node.inside:
            self.keep(markup)
        else:
            visible = not hidden and node.name not in _WITHIN_WORDS
            self.block.add_placeholder(markup, visible=visible, ends_line=node.name == _BREAK)

    def start(self, node: "_Node", tag: str) -> None:
        """An element with words begins."""
        if node.flows:
            self.block.open(tag)
        else:
            self.keep(tag)

    def end(self, node: "_Node", tag: str) -> None:
        """It ends."""
        if node.flows:
            self.block.close(tag)
        else:
            self.keep(tag)

    def keep(self, markup: str) -> None:
        """What ends a block and stays as it is."""
        self.finish_block()
        self.found.append(markup)

    def finish_block(self) -> None:
        """No text belongs to the block any more."""
        if found := self.block.finish(self._language):
            self.found.append(found)
            self.block = BlockReader()


@final
@dataclass(slots=True)
class _Node:
    """An element, which ends at ``end``: whether the text around it, its own and any in it is translated."""

    name: str
    inside: bool
    translated: bool
    never: bool
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
            never = part.name in _NEVER or (bool(open_) and open_[-1].never)
            translated = not never and _is_translated(part, inside)
            # What is left alone divides nothing: an icon within a sentence may have a title of its own.
            block = part.name in _BLOCKS and not (open_ and open_[-1].never)
            node = _Node(part.name, inside, translated, never, block, index)
            nodes[index] = node
            if node.block:
                _make_blocks(open_)
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
            for depth in range(len(open_), 0, -1):
                around = open_[depth - 1]
                if around.worded:
                    break
                around.worded = True
                if not around.translated:  # a sentence does not go through what is not translated
                    _make_blocks(open_[:depth])
    return nodes


def _make_blocks(around: list[_Node]) -> None:
    """What is around a block is one."""
    for node in reversed(around):
        if node.block:
            break
        node.block = True


def _is_translated(tag: StartTag, inside: bool) -> bool:
    """As HTML's attribute ``translate`` and the class ``notranslate``, which Google's translator knows, have it."""
    said = tag.attributes.get("translate", "inherit").strip().lower()
    if said in ("yes", ""):
        return True
    if said == "no" or tag.name in _CODE or "notranslate" in tag.attributes.get("class", "").split():
        return False
    return inside
