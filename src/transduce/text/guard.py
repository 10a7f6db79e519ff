"""The ``tokenizers`` library fails in ways of its own: a bare Exception, or a panic of its Rust code."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from transduce.config import BadInputError

# Its class has no public name, and is no Exception.
_PANIC: Final = "pyo3_runtime"


@contextmanager
def guarded(what: str) -> Iterator[None]:
    """Run what calls the library; what it raises comes out as one of our errors, which begins with ``what``.

    Raises:
        BadInputError: The library failed.
    """
    try:
        yield
    except BadInputError:
        raise
    except BaseException as error:
        if not (isinstance(error, Exception) or type(error).__module__ == _PANIC):
            raise
        raise BadInputError(f"{what}: {' '.join(str(error).split())}") from error
