"""Lines that failed while the others went on: counted as they come, and named at the end."""

from dataclasses import dataclass, field
from typing import Final, final

from transduce.config import TransduceError

_MOST_NAMED: Final = 10


@final
@dataclass
class Failures:
    """How many lines there were, and what is said of those that failed: no more than can be named."""

    lines: int = 0
    failed: int = 0
    named: list[str] = field(default_factory=list)

    def count(self, error: str | None) -> None:
        """The next line, and why it failed if it did; nothing where that has been said already."""
        self.lines += 1
        if error is not None:
            self.failed += 1
            if len(self.named) < _MOST_NAMED:
                self.named.append(f"line {self.lines:,}" + (error and f": {error}"))

    def check(self, what: str, instead: str) -> None:
        """At the end, where all that could be done is done.

        Raises:
            TransduceError: Lines failed; they are named.
        """
        if not self.failed:
            return
        more = f"; and {self.failed - len(self.named):,} more" if self.failed > len(self.named) else ""
        raise TransduceError(
            f"{self.failed:,} of {self.lines:,} lines {what} ({instead}): {'; '.join(self.named)}{more}"
        )
