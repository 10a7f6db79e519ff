"""What each attention head does over a corpus, as a page: maps of layers and heads, a table, the layers' means."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final

from transduce.config import BadInputError
from transduce.config.attention import AttentionKind
from transduce.config.disk import write_whole
from transduce.config.head_roles import COLOURS, MEASURES, ColourKey, HeadRole, MeasureKey, layer_means, measured
from transduce.viewing.page import framed, standalone

KIND_NAMES: Final[Mapping[AttentionKind, str]] = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "encoder-decoder attention",
}
_HEIGHT: Final = 1100  # of the page in a notebook


@final
class HeadRolesPage:
    """A page about the heads of one model; a notebook shows it where it is the value of a cell.

    ``notes`` stand below the title: what was measured, and how. ``colour`` is the measure that is shown first.
    """

    def __init__(
        self,
        roles: Sequence[HeadRole],
        title: str = "Attention heads",
        notes: Sequence[str] = (),
        colour: ColourKey = "distance",
    ) -> None:
        check_colour(roles, colour)
        self._roles, self._title, self._notes, self._colour = roles, title, notes, colour

    def data(self) -> dict[str, Any]:
        """What the page is made of, as JSON has it."""
        found = measured(self._roles)
        return {
            "title": self._title,
            "notes": list(self._notes),
            "kinds": {kind: KIND_NAMES[kind] for kind in dict.fromkeys(role.head.kind for role in self._roles)},
            "measures": [_describe(key) for key in found],
            "heads": [{**role.head._asdict(), "values": {key: role.of(key) for key in found}} for role in self._roles],
            "layers": [
                {"kind": each.kind, "layer": each.layer, "values": dict(each.means)}
                for each in layer_means(self._roles)
            ],
            "colour": self._colour,
        }

    def html(self) -> str:
        """The whole page; it asks for nothing from elsewhere."""
        return standalone("head_roles", self._title, self.data())

    def save(self, path: Path | str) -> None:
        """Write the page into a file, whole or not at all."""
        write_whole(Path(path), self.html())

    def _repr_html_(self) -> str:
        """What Jupyter shows."""
        return framed(self.html(), _HEIGHT)


def check_colour(roles: Sequence[HeadRole], colour: ColourKey) -> None:
    """Look whether a measure can be shown.

    Raises:
        BadInputError: No head has it.
    """
    found = measured(roles)
    if colour not in found:
        known = ", ".join(key for key in COLOURS if key in found)
        raise BadInputError(f"{colour}: no head has it here; there is {known or 'nothing'}")


def _describe(key: MeasureKey) -> dict[str, Any]:
    measure = MEASURES[key]
    return {
        "key": key,
        "name": measure.name,
        "unit": measure.unit,
        "decimals": measure.decimals,
        "meaning": measure.meaning,
        "colour": key in COLOURS,
    }
