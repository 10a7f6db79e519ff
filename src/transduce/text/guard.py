"""What keeps the ``tokenizers`` library in bounds: failures of its own kind, files that make text grow without end."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, Final

from transduce.config import BadInputError
from transduce.config.files import ANEW, check_size

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


_MOST_BYTES: Final = 2**27
# A replacement may put its content before and after every character; honest ones put one character or none.
_MOST_GROWTH: Final = 2**16
# The search for a word's longest pieces takes a time that grows with the cube of this.
_LONGEST_WORD: Final = 1000


def read_checked(path: Path) -> str:
    """The file's text, once nothing in it takes boundless memory or time.

    Raises:
        BadInputError: It cannot be read, is no JSON object, or asks for too much.
    """
    check_size(path, _MOST_BYTES)
    try:
        text = path.read_text(encoding="utf-8")
        stored = json.loads(text)
    except FileNotFoundError as error:
        raise BadInputError(f"{path}: no such tokenizer file: {ANEW}") from error
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{path}: not a readable tokenizer ({error}): {ANEW}") from error
    if not isinstance(stored, dict):
        raise BadInputError(f"{path}: not a readable tokenizer: a JSON object belongs here")
    if flaw := _flaw(stored):
        raise BadInputError(f"{path}: {flaw}")
    return text


def _flaw(stored: dict[str, Any]) -> str | None:
    for part in ("normalizer", "decoder"):
        if prod(1 + len(content) for content in _replacements(stored.get(part))) > _MOST_GROWTH:
            return f"its {part} replaces so much that a text could grow without bounds"
    model = stored.get("model")
    longest = model.get("max_input_chars_per_word") if isinstance(model, dict) else None
    if isinstance(longest, int) and longest > _LONGEST_WORD:
        return f"max_input_chars_per_word = {longest} makes a long word take for ever: {_LONGEST_WORD} at most"
    return None


def _replacements(part: object) -> Iterator[str]:
    """What the replacing steps of a chain of steps put in, in whatever chains they stand."""
    if isinstance(part, list):
        for step in part:
            yield from _replacements(step)
    elif isinstance(part, dict):
        if isinstance(content := part.get("content"), str):
            yield content
        for inner in part.values():
            if isinstance(inner, list | dict):
                yield from _replacements(inner)
