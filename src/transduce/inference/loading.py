"""From model directories to a Translator."""

import logging
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path

import torch

from transduce.bundle import (
    Bundle,
    PrepackedBundle,
    StoredBundle,
    load_prepacked,
    load_shortlist,
    open_bundle,
    read_prepacked,
)
from transduce.config import BadInputError, Precision
from transduce.inference.arguments import check_flag, read_device, read_precision
from transduce.inference.engine import choose_device
from transduce.inference.translator import Translator
from transduce.kernels import has_native, resolve_format, run_safely
from transduce.models import kernels_compute

_log = logging.getLogger(__name__)


def load(
    path: str | PathLike[str] | Sequence[str | PathLike[str]],
    precision: Precision = "auto",
    device: str | torch.device | None = None,
    *,
    shortlist: bool = False,
    cache: bool = False,
) -> Translator:
    """Load a model or run directory, or several as an ensemble.

    With ``shortlist``, outputs are written with what the first one's shortlist allows (``transduce shortlist``). With
    ``cache``, the weights are kept as the processor reads them, in the model directory's folder ``cache``; at the next
    start they are mapped, and all processes that do so share them. Outputs are the same, bit for bit.

    Raises:
        BadInputError: An argument is wrong, the device is not here, a path is no model directory, a file in it is
            missing or damaged, or two models differ in a vocabulary.
    """
    precision, place = read_precision(precision), choose_device(read_device(device))
    check_flag("shortlist", shortlist)
    check_flag("cache", cache)
    paths = _read_paths(path)
    stored = run_safely(lambda: [open_bundle(each) for each in paths])
    for other, bundle in zip(paths[1:], stored[1:], strict=True):
        for side in ("source", "target"):
            one, another = (getattr(each.tokenizers, side).to_json() for each in (stored[0], bundle))
            if one != another:
                raise BadInputError(
                    f"{other}: has another {side} vocabulary than {paths[0]}: an ensemble shares both vocabularies"
                )
    lists = load_shortlist(paths[0], stored[0].config) if shortlist else None
    bundles = run_safely(lambda: _read(stored, precision, place, cache=cache))
    return Translator(bundles, precision, place, lists, consume=True, name=", ".join(map(str, paths)))


def _read(
    stored: Sequence[StoredBundle], precision: Precision, device: torch.device, *, cache: bool
) -> Sequence[Bundle] | Sequence[PrepackedBundle]:
    """The models: prepacked as their files are read, where the kernels compute all of them."""
    if has_native(torch.empty(0, device=device)) and all(kernels_compute(each.config) for each in stored):
        format_ = resolve_format(precision, native=True, device=device)
        return [load_prepacked(each, format_) if cache else read_prepacked(each, format_) for each in stored]
    if cache:
        _log.warning("nothing is kept in a cache: this model is not run by the C++ kernels, whose weights that has")
    return [each.read() for each in stored]


def _read_paths(path: object) -> list[Path]:
    given = [path] if isinstance(path, str | PathLike) else list(path) if isinstance(path, Iterable) else [path]
    paths = [Path(each) for each in given if isinstance(each, str | PathLike)]
    if len(paths) < len(given):
        raise BadInputError(f"path {path!r}: give a model or run directory, or several in a list")
    if not paths:
        raise BadInputError("no model was given: name a model or run directory")
    return paths
