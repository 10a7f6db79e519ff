"""Shapes and types, checked as the tests run: of so many calls in each test, as loops make the same ones again."""

import os
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import jaxtyping
from beartype import beartype

# To check a call takes longer than most calls: without an end, a search of some seconds would take a minute.
_MOST: Final = int(os.environ.get("TYPECHECKED_CALLS", "1500"))

_left = _MOST


def begin() -> None:
    """Check the calls of another test."""
    global _left  # noqa: PLW0603 - jaxtyping takes a checker by its name, which can have no other state
    _left = _MOST
    jaxtyping.config.update("jaxtyping_disable", False)


def check(function: Callable[..., Any]) -> Callable[..., Any]:
    """``beartype``, which leaves off for the rest of a test that has made its calls."""
    checked = beartype(function)

    @wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        global _left  # noqa: PLW0603 - likewise
        _left -= 1
        if _left <= 0:
            jaxtyping.config.update("jaxtyping_disable", True)
        return checked(*args, **kwargs)

    return counted
