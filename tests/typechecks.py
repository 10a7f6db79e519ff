"""Shapes of tensors, checked as the tests run: the first call of a function in a test, the 8th, the 64th and so on.

Only functions with shapes in their signatures: mypy reads all the rest.
"""

import os
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import partial, wraps
from typing import Any, Final, get_args

import jaxtyping

# To check a call takes longer than most calls: with the first four, the 8th, the 16th and so on, tests of training take
# a fifth longer, and a search of some seconds would take a minute with all of them.
_CHECKED: Final = frozenset(8**power for power in range(9))
ALL: Final = os.environ.get("TYPECHECKED_CALLS") == "all"

_begun: Final = [0]  # so many tests


def install(packages: list[str]) -> None:
    """Check the functions of these packages as they are imported from now on."""
    jaxtyped = jaxtyping.jaxtyped

    def check_sparingly(decorated: Any, *, typechecker: Callable[..., Any]) -> Any:
        check = partial(check_sparingly, typechecker=typechecker)
        if isinstance(decorated, classmethod | staticmethod):
            return type(decorated)(check(decorated.__func__))
        if isinstance(decorated, property):
            parts = (decorated.fget, decorated.fset, decorated.fdel)
            return property(*(None if each is None else check(each) for each in parts))
        if isinstance(decorated, type):
            if is_dataclass(decorated) and "__init__" in vars(decorated):
                type.__setattr__(decorated, "__init__", check(vars(decorated)["__init__"]))
            return decorated
        if not any(map(_has_shapes, decorated.__annotations__.values())):
            return decorated
        return _spare(decorated, jaxtyped(decorated, typechecker=typechecker))

    def decorate(*, typechecker: Callable[..., Any]) -> Callable[[Any], Any]:
        return partial(check_sparingly, typechecker=typechecker)

    # The hook writes this name before every function and class.
    jaxtyping.jaxtyped = decorate  # type: ignore[assignment]
    jaxtyping.install_import_hook(packages, "beartype.beartype")


def begin() -> None:
    """Check the calls of another test."""
    _begun[0] += 1


def _has_shapes(annotation: Any) -> bool:
    """Whether a shape stands somewhere in an annotation."""
    if isinstance(annotation, str):
        return "[" in annotation
    if isinstance(annotation, list | tuple):
        return any(map(_has_shapes, annotation))
    if isinstance(annotation, type) and issubclass(annotation, jaxtyping.AbstractArray):
        return True
    return any(map(_has_shapes, get_args(annotation)))


def _spare(plain: Callable[..., Any], checked: Callable[..., Any]) -> Callable[..., Any]:
    """The checked function for some of its calls in a test; else the plain one, with little overhead."""
    test = calls = 0
    if ALL:
        return checked

    @wraps(plain)
    def spared(*args: Any, **kwargs: Any) -> Any:
        nonlocal test, calls
        if test != _begun[0]:
            test, calls = _begun[0], 0
        calls += 1
        return (checked if calls in _CHECKED else plain)(*args, **kwargs)

    return spared
