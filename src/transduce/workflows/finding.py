"""What ``doctor`` says of one thing that it looked at."""

from dataclasses import dataclass
from typing import Literal, final


@final
@dataclass(frozen=True)
class Finding:
    """``ok``, ``warning`` (it will run, but perhaps not as meant) or ``problem`` (it will not run)."""

    kind: Literal["ok", "warning", "problem"]
    text: str
