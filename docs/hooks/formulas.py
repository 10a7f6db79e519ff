"""Formulas as MathML, made when the site is built: a browser draws them itself, without scripts or fonts."""

import html
import re
from typing import Final

from latex2mathml.converter import convert

# What pymdownx.arithmatex makes of $...$ and $$...$$.
_INLINE: Final = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.S)
_DISPLAYED: Final = re.compile(r'<div class="arithmatex">\\\[(.*?)\\\]</div>', re.S)


def draw(page: str) -> str:
    """The page's HTML with its formulas as MathML."""
    page = _INLINE.sub(lambda match: convert(html.unescape(match[1])), page)
    return _DISPLAYED.sub(lambda match: convert(html.unescape(match[1]), display="block"), page)
