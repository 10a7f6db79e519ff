"""The search for an output as a page to explore: its tree round by round, and what might have come next."""

from pathlib import Path
from typing import Any, Final, Protocol, final

from transduce.config.disk import write_whole
from transduce.viewing.page import framed, standalone

_HEIGHT: Final = 760  # of the page in a notebook


class HasSearch(Protocol):
    """The hypotheses of a search, as ``Translator.trace_search`` gives them."""

    def to_dict(self) -> dict[str, Any]:
        """``source``, ``text``, ``beam_size`` and ``nodes``, each with the fields of ``search.SearchNode``."""
        ...


@final
class SearchPage:
    """A page with the tree of a search; a notebook shows it where it is the value of a cell."""

    def __init__(self, search: HasSearch, title: str = "Search") -> None:
        self._search = search
        self._title = title

    def data(self) -> dict[str, Any]:
        """What the page is made of, as JSON has it."""
        return self._search.to_dict()

    def html(self) -> str:
        """The whole page; it asks for nothing from elsewhere."""
        return standalone("search", self._title, self.data())

    def save(self, path: Path | str) -> None:
        """Write the page into a file, whole or not at all."""
        write_whole(Path(path), self.html())

    def _repr_html_(self) -> str:
        """What Jupyter shows."""
        return framed(self.html(), _HEIGHT)
