"""How figures look: white, legible at their full size, in colours that colour-blind readers tell apart."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

FOLDER: Final = Path(__file__).parents[1] / "docs" / "figures"

# Okabe and Ito (2008), without its yellow, which is too pale for lines on white.
COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES: Final = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))
SIGNED: Final = "PuOr_r"
AMOUNT: Final = "Blues"

_PIXELS_AN_INCH: Final = 100
_STYLE: Final[dict[Any, Any]] = {
    "font.size": 13,
    "axes.titlesize": 14,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "lines.linewidth": 2.2,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
}


@contextmanager
def figure(name: str, width: int, height: int, folder: Path = FOLDER) -> Iterator[Figure]:
    """A figure of so many pixels, written to ``NAME.png`` in docs/figures, or in a ``folder``, at the block's end."""
    with mpl.rc_context(_STYLE):
        drawn = Figure((width / _PIXELS_AN_INCH, height / _PIXELS_AN_INCH), _PIXELS_AN_INCH, layout="constrained")
        yield drawn
        folder.mkdir(parents=True, exist_ok=True)
        # Without the version of who drew it, the same figure is the same file.
        drawn.savefig(folder / f"{name}.png", metadata={"Software": None})


def style(number: int) -> dict[str, Any]:
    """Colour and dashes of the line of that number."""
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": DASHES[number % len(DASHES)]}


def label(axes: Axes, title: str, x: str, y: str) -> None:
    """What a panel shows, and what its axes count, with units."""
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
