"""Code blocks of Markdown pages, and what each is written in: the site colours them by it, tests run them by it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from markdown_it import MarkdownIt

_COMMANDS: Final = (
    "cat|cut|curl|echo|export|head|kubectl|make|mkdir|paste|pip|podman|printf|python|sbatch|source|ssh\\.sh|sudo|"
    "torchrun|transduce|wget"
)
# In this order: the first one that a block looks like. A command line may begin with a variable or a folder.
_LOOKS: Final[Sequence[tuple[str, str]]] = (
    ("shell", rf"#!/bin/|([A-Z_]+=\S+ )*([\w./-]+/)?({_COMMANDS})\b(?! =)"),
    ("yaml", r"apiVersion:"),
    ("toml", r"\[\[?[\w.]+\]|[\w.]+ = "),
    ("python", r"import \w|from [\w.]+ import |translator\."),
    ("json", r"\{"),
    ("html", r"<\w+>"),
)


@final
@dataclass(frozen=True)
class Block:
    """A block: its text without indentation or fence, and its first line and the one behind it, counted from 0."""

    language: str
    text: str
    first: int
    behind: int


def read_blocks(markdown: str) -> list[Block]:
    """The fenced and indented blocks of a page, those in lists too, in their order."""
    tokens = [token for token in MarkdownIt().parse(markdown) if token.type in {"fence", "code_block"}]
    return [Block(_language(token.info.strip(), token.content), token.content, *(token.map or ())) for token in tokens]


def name_languages(markdown: str) -> str:
    """The page with every indented block that stands at the margin as a fenced one that says what it is written in."""
    lines = markdown.split("\n")
    for block in reversed(read_blocks(markdown)):
        if lines[block.first].startswith("    "):
            lines[block.first : block.behind] = [f"```{block.language}", *block.text.rstrip("\n").split("\n"), "```"]
    return "\n".join(lines)


def _language(said: str, text: str) -> str:
    return said or next((language for language, look in _LOOKS if re.match(rf"(# .*\n)*({look})", text)), "text")
