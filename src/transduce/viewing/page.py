"""Pages that need nothing but themselves: styles, scripts and data stand in one file."""

import html
import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any


def asset(name: str) -> str:
    """The text of a file of this room's folder ``assets``."""
    return (resources.files("transduce.viewing") / "assets" / name).read_text(encoding="utf-8")


def standalone(name: str, title: str, data: Any) -> str:  # noqa: ANN401 - whatever JSON can hold
    """The page whose files are called ``name``; its script finds the data as JSON in the element ``data``."""
    data_element = f'<script type="application/json" id="data">{embed(data)}</script>'
    return compose(name, title, f"{asset(f'{name}.html')}{data_element}")


def compose(name: str, title: str, body: str) -> str:
    """A page with this body, and the style and script of the files called ``name``."""
    parts = {
        "title": escape(title),
        "style": asset("page.css") + asset(f"{name}.css"),
        "body": body,
        "script": asset("page.js") + asset(f"{name}.js"),
    }
    return fill(asset("page.html"), parts)


def fill(template: str, parts: Mapping[str, str]) -> str:
    """A template with each ``{{name}}`` replaced; what stands in the parts is left as it is."""
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark[1]], template)


def escape(text: str) -> str:
    """Text as it stands in HTML, in an attribute too; half a surrogate pair, which no file can hold, as ``?``."""
    return html.escape(text.encode("utf-8", "replace").decode())


def embed(data: Any) -> str:  # noqa: ANN401 - whatever JSON can hold
    """JSON that can stand in an HTML script element, whatever texts are in it."""
    return json.dumps(data, ensure_ascii=False).replace("<", "\\u003c").replace("\u2028", "\\u2028")


def framed(page: str, height: int) -> str:
    """A page as part of another one, such as a notebook: in a frame of its own, so many pixels high."""
    return (
        f'<iframe srcdoc="{html.escape(page)}" style="width: 100%; height: {height}px; border: 0" '
        f'sandbox="allow-scripts" title="transduce"></iframe>'
    )
