"""What MkDocs asks of this project while it builds the site (mkdocs.yml): pages made of the code, links, formulas.

It is started as ``python -m mkdocs`` from the repository's root, so that these modules are found.
"""

import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs.hooks import blocks, formulas, links, reference, sources

_ROOT: Final = Path(__file__).parents[2]
_OUTSIDE: Final = re.compile(
    r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"(?:https?:)?//(?!example\.invalid)[^\"]+\"[^>]*>"
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The reference, the three pages at the root, and a page for each file outside docs/ that a page links to."""
    for name, text in reference.pages().items():
        files.append(File.generated(config, name, content=text))
    own = {f"docs/{file.src_uri}" for file in files.documentation_pages()}
    to_read, shown = [*sorted(path for path in own if (_ROOT / path).exists()), *links.ROOT_PAGES], set[str]()
    while to_read:
        path = to_read.pop()
        if path in shown or not (_ROOT / path).exists():
            continue  # what is linked and not there is MkDocs' to complain of
        shown.add(path)
        if path.endswith((".md", ".ipynb")):
            to_read += sorted(links.targets(links.read_markdown(_ROOT / path), path))
        if not path.startswith("docs/"):
            files.append(File.generated(config, links.page_of(path), content=links.show(_ROOT, path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Code by name, links to where their files are shown, and languages of code blocks."""
    del config, files
    path = links.path_of(page.file.src_uri)
    if (_ROOT / path).exists() and path.startswith("docs/"):
        markdown = links.lead_to_pages(sources.include(markdown, _ROOT), path, page.file.src_uri)
    return blocks.name_languages(markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Formulas."""
    del page, config, files
    return formulas.draw(html)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """The page, which loads nothing from elsewhere, so that it can be read without a network."""
    del config
    if found := _OUTSIDE.search(output):
        raise PluginError(f"{page.file.src_uri} loads something from elsewhere: {found[0]}")
    return output
