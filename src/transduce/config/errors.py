"""The errors a user meets: each says what is wrong, where, and what to do about it."""


class TransduceError(Exception):
    """Something failed that the user can act on; the command line prints a line and exits with ``status``.

    Each argument is one thing that is wrong, and a line of its own.
    """

    status: int = 1

    def __str__(self) -> str:
        """One line for each thing that is wrong."""
        return "\n".join(map(str, self.args))


class BadInputError(TransduceError):
    """The input, the run file or an option is wrong."""

    status = 2


class StoppedError(TransduceError):
    """A signal ended the work; the status is 128 and its number, as shells have it."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.status = 128 + number
