"""Why a request has no answer: one class for each status that a client may have to tell apart."""

from dataclasses import dataclass
from typing import final


@dataclass
class Refusal(Exception):  # noqa: N818 - the server's answer, not its failure
    """A request's answer where there is no other: what is wrong with it, and what to do.

    ``retry_after`` is in seconds: the same request may be granted then.
    """

    message: str
    status: int
    retry_after: int | None = None

    def __str__(self) -> str:
        return self.message


@final
class BadRequest(Refusal):
    """It cannot be answered as it stands."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 400)


@final
class Forbidden(Refusal):
    """It has no key, or a wrong one."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 403)


@final
class NotFound(Refusal):
    """There is nothing at its address."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 404)


@final
class TooLarge(Refusal):
    """It is over a limit."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 413)


@final
class TooMany(Refusal):
    """There is more to do than can be done; later there may not be."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message, 429, retry_after)


@final
class Failed(Refusal):
    """The server's own failure."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 500)


@final
class Unavailable(Refusal):
    """The model is not there now, and will be."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message, 503, retry_after)


@final
class TooSlow(Refusal):
    """Its time is up."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 504)
