"""The errors a user meets: each says what is wrong, where, and what to do about it."""


class TransduceError(Exception):
    """Something failed that the user can act on; the command line prints it in one line and exits with 1."""


class BadInputError(TransduceError):
    """The input, the run file or an option is wrong; the command line exits with 2."""
