"""From model directories to a Translator."""

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path

import torch

from transduce.bundle import load_bundle, load_shortlist
from transduce.config import BadInputError, Precision
from transduce.inference.arguments import check_flag, read_device, read_precision
from transduce.inference.translator import Translator
from transduce.kernels import run_safely


def load(
    path: str | PathLike[str] | Sequence[str | PathLike[str]],
    precision: Precision = "auto",
    device: str | torch.device | None = None,
    *,
    shortlist: bool = False,
) -> Translator:
    """Load a model or run directory, or several as an ensemble.

    With ``shortlist``, outputs are written with what the first one's shortlist allows (``transduce shortlist``).

    Raises:
        BadInputError: An argument is wrong, the device is not here, a path is no model directory, a file in it is
            missing or damaged, or two models differ in a vocabulary.
    """
    precision, place = read_precision(precision), read_device(device)
    check_flag("shortlist", shortlist)
    paths = _read_paths(path)
    bundles = run_safely(lambda: [load_bundle(each) for each in paths])
    for other, bundle in zip(paths[1:], bundles[1:], strict=True):
        for side in ("source", "target"):
            one, another = (getattr(each.tokenizers, side).to_json() for each in (bundles[0], bundle))
            if one != another:
                raise BadInputError(
                    f"{other}: has another {side} vocabulary than {paths[0]}: an ensemble shares both vocabularies"
                )
    lists = load_shortlist(paths[0], bundles[0].config) if shortlist else None
    return Translator(bundles, precision, place, lists, consume=True, name=", ".join(map(str, paths)))


def _read_paths(path: object) -> list[Path]:
    given = [path] if isinstance(path, str | PathLike) else list(path) if isinstance(path, Iterable) else [path]
    paths = [Path(each) for each in given if isinstance(each, str | PathLike)]
    if len(paths) < len(given):
        raise BadInputError(f"path {path!r}: give a model or run directory, or several in a list")
    if not paths:
        raise BadInputError("no model was given: name a model or run directory")
    return paths
