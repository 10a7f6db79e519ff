"""Code in pages, read from the source when the site is built, so that no page can tell of code that is gone."""

import ast
import re
import textwrap
from pathlib import Path
from typing import Final

# In the repository a link to the file; on the site, the code itself.
_MARK: Final = re.compile(r"^\[code of `(?P<name>[\w.]+)`\]\((?:\.\./)+(?P<path>src/[\w/]+\.py)\)$", re.M)


def include(markdown: str, root: Path) -> str:
    """The page with the code of the functions, classes and methods that its lines ``[code of `NAME`](PATH)`` name."""
    return _MARK.sub(lambda match: _block(root / match["path"], match["path"], match["name"]), markdown)


def read_code(file: Path, name: str) -> str:
    """The source of a function, class or method, with its docstring.

    Raises:
        LookupError: The file has none of that name.
    """
    source = file.read_text(encoding="utf-8")
    body: list[ast.stmt] = ast.parse(source).body
    found: ast.stmt | None = None
    for part in name.split("."):
        named = [each for each in body if getattr(each, "name", None) == part]
        if not named:
            raise LookupError(f"{file} has no {name}: the page that shows it is behind the code")
        found, body = named[0], getattr(named[0], "body", [])
    if found is None or found.end_lineno is None:
        raise LookupError(f"{file}: no name to look for")
    lines = source.splitlines()[found.lineno - 1 : found.end_lineno]
    return textwrap.dedent("\n".join(lines))


def _block(file: Path, path: str, name: str) -> str:
    return f'```python title="{path}"\n{read_code(file, name)}\n```'
