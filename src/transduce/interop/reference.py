"""What a model is compared with: the same model in another library."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from transduce.config import TransduceError

_MOST_SAID: Final = 500  # letters of another library's error
Ids = list[int]
Pair = tuple[Ids, Ids]  # a source and a target, without begin and end symbols


class Library(Protocol):
    """The same model in another library. Ids are numbered as ours are, and come without begin and end symbols."""

    @property
    def name(self) -> str:
        """What people call it, such as ``CTranslate2``."""
        ...

    @property
    def versions(self) -> Mapping[str, str]:
        """The libraries that compute it."""
        ...

    @property
    def weights(self) -> Sequence[Path]:
        """The files that hold its weights."""
        ...

    def translate(self, lines: Sequence[str], beam: int, longest: int) -> list[str]:
        """Its translations by beam search, without a length penalty, until no open hypothesis can win any more.

        Of at most ``longest`` symbols, the end counted, and without unknown symbols.
        """
        ...

    def layers(self, source: Ids, target: Ids) -> Mapping[str, Float[Tensor, "positions model"]]:
        """Outputs of layers for a pair, by the names of ``layer_outputs``: of all, of some, or of none."""
        ...


class Reference(Library, Protocol):
    """One that shows logits."""

    def logits(self, source: Ids, target: Ids) -> Float[Tensor, "positions vocabulary"]:
        """Those of each symbol of a known target, and of the end behind it: (target + 1, vocabulary).

        In the number format in which it computes, float32 or float64: ours are computed in the same. NaN in the whole
        column of a symbol: it has no such symbol.
        """
        ...


@runtime_checkable
class Scorer(Library, Protocol):
    """One that shows how probable the symbols of known targets are, and no logits."""

    @property
    def resolution(self) -> float:
        """How far what it shows is rounded."""
        ...

    @property
    def has(self) -> Sequence[bool]:
        """Which of our target symbols it has too."""
        ...

    @property
    def search_differs(self) -> str | None:
        """Why its own search computes otherwise than it scores, and translations say nothing; None if not."""
        ...

    def log_probabilities(self, pairs: Sequence[Pair]) -> list[Float[Tensor, " positions"]]:
        """Those of each symbol of known targets, and of the end behind it, in float32."""
        ...


@contextmanager
def library_errors(name: str, *files: Path) -> Iterator[None]:
    """Around what another library does with the model of these files: its errors, whatever they are, as one of ours.

    Raises:
        TransduceError: It names the first of the files, and says what the library says.
    """
    try:
        yield
    except TransduceError:
        raise
    except Exception as error:
        # Libraries' errors may run over many lines.
        said = " ".join(str(error).split())[:_MOST_SAID] or type(error).__name__
        place = f"{files[0]}: " if files else ""
        raise TransduceError(
            f"{place}{name} cannot compute this model: {said} (--no-prove writes it all the same)"
        ) from error
