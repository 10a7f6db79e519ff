"""A model's card: what it is, what it was made of and how good it is, as the README.md of its folder."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, final

UNKNOWN: Final = "Unknown: the folder that this was exported from does not say it."


@final
@dataclass(frozen=True)
class ShownScore:
    """A score as a card shows it; without a ``signature``, none was kept."""

    metric: str
    value: str
    test_set: str
    signature: str = ""


@final
@dataclass(frozen=True)
class ModelCard:
    """What is known of a model, as plain data; what is not known is left out, and the card says so.

    ``licence`` is an identifier such as ``apache-2.0``; ``translates`` is false where outputs are no text, but trees.
    ``corpora`` are (part, name, what was kept of it); ``facts``, ``recipe`` and ``weights`` are shown as tables.
    """

    name: str
    summary: str
    translates: bool = True
    licence: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    corpora: Sequence[tuple[str, str, str]] = ()
    recipe: Mapping[str, str] = field(default_factory=dict)
    scores: Sequence[ShownScore] = ()

    def markdown(self) -> str:
        """The file, with the head that model hubs read."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield from ("---", f"license: {self.licence or 'unknown'}", "library_name: transduce")
        yield from ("pipeline_tag: translation",) if self.translates else ()
        yield from ("---", "", f"# {_plain(self.name)}", "", f"{_plain(self.summary)}.", "", "## Use", "")
        yield from ("With `transduce` installed, as its own page says:", "")
        yield from ("    transduce translate FOLDER < sentences.txt", "")
        yield from ("or in Python", "", "    import transduce")
        yield from ('    transduce.load("FOLDER").translate("...").text', "")
        yield from ("## Model", "", *_table(("", ""), self.facts.items()))
        yield from ("", "## Data", "", *_table(("part", "corpus", "kept"), self.corpora))
        yield from ("", "## Recipe", "", *_table(("setting", "value"), self.recipe.items()))
        rows = [(each.metric, each.value, each.test_set, each.signature or "none was kept") for each in self.scores]
        yield from ("", "## Scores", "", *_table(("metric", "value", "of", "signature"), rows))
        yield from ("", "## Licence", "", self.licence or f"{UNKNOWN} Those of the corpora may have a say in it.")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    lines = list(rows)
    if not lines:
        yield UNKNOWN
        return
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in lines:
        yield f"| {' | '.join(map(_plain, row))} |"


def _plain(text: str) -> str:
    """Text that a name out of a file may be, on one line and without markup."""
    shown = "".join(each if each.isprintable() else " " for each in text)
    for mark in "\\`*_[]<>|":
        shown = shown.replace(mark, f"\\{mark}")
    return shown
