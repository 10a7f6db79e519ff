"""Links to files outside docs/: in the repository they lead to the file, on the site to a page that shows it."""

import posixpath
import re
from pathlib import Path
from typing import Final

from docs.hooks.notebooks import to_markdown

# What stands in code is no link.
_LINK: Final = re.compile(r"(?P<code>^```.*?^```|``.+?``|`[^`\n]+`)|(?P<open>\]\()(?P<target>[^)\s]+)\)", re.M | re.S)
ROOT_PAGES: Final = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
_WITH_LINKS: Final = frozenset({".md", ".ipynb"})
_LANGUAGES: Final = {".py": "python", ".toml": "toml", ".service": "ini", ".sh": "bash", ".cpp": "cpp", ".h": "cpp"}


def page_of(path: str) -> str:
    """Where on the site a file or folder of the repository is shown, by its path from the repository's root."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return ROOT_PAGES.get(path) or f"files/{path.removesuffix('.md').removesuffix('.ipynb')}.md"


def path_of(page: str) -> str:
    """The path from the repository's root of what a page of docs/, or one that ``page_of`` named, is made of."""
    sources = {target: source for source, target in ROOT_PAGES.items()}
    return sources.get(page, f"docs/{page}")


def read_markdown(file: Path) -> str:
    """A page as it stands, or what a notebook is as a page."""
    text = file.read_text(encoding="utf-8")
    return to_markdown(text) if file.suffix == ".ipynb" else text


def targets(markdown: str, path: str) -> set[str]:
    """The files and folders that a page links to, by their paths from the repository's root; ``path`` is its own."""
    found = (match["target"].partition("#")[0] for match in _LINK.finditer(markdown) if match["target"])
    return {_resolve(target, path) for target in found if target and ":" not in target}


def lead_to_pages(markdown: str, path: str, page: str) -> str:
    """A file's text with links as they are where it is shown as ``page``; ``path`` is its own in the repository."""

    def change(match: re.Match[str]) -> str:
        target, hash_, anchor = (match["target"] or "").partition("#")
        if not target or ":" in target:
            return match[0]
        return f"]({posixpath.relpath(page_of(_resolve(target, path)), posixpath.dirname(page) or '.')}{hash_}{anchor})"

    return _LINK.sub(change, markdown)


def show(root: Path, path: str) -> str:
    """The page that shows a file or a folder of the repository."""
    here = root / path
    if here.is_dir():
        names = sorted(each.name + "/" * each.is_dir() for each in here.iterdir() if each.name[0] not in "._")
        listing = "\n".join(names)
        return f"# {path}\n\n```text\n{listing}\n```\n"
    if here.suffix in _WITH_LINKS:
        return lead_to_pages(read_markdown(here), path, page_of(path))
    text = here.read_text(encoding="utf-8")
    return f"# {path}\n\n```{_LANGUAGES.get(here.suffix, 'text')}\n{text.rstrip()}\n```\n"


def _resolve(target: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
