"""Models prepacked straight from their file; and what was prepacked, kept beside a model for the next start.

The folder ``cache`` of a model directory holds a file for each number format and kind of kernels. It is mapped: nothing
is read before it is used, or copied, and all processes share it. A file's name and header say what it was made of and
for; the folder can be deleted at any time.

A kept file is trusted as the weights beside it are: its types and sizes are compared with the model's, its numbers are
not looked at. Whoever may write one may write the other.
"""

import hashlib
import json
import logging
import re
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast, final

from safetensors import SafetensorError, safe_open
from torch import Tensor

from transduce.bundle.directory import StoredBundle
from transduce.bundle.weights import check_weights, open_weights, save_aligned
from transduce.config import BadInputError, GenerationConfig, ModelConfig
from transduce.config.disk import flush, write_flushed
from transduce.config.files import check_place, check_size
from transduce.kernels import Format, kind_of_kernels
from transduce.models import Kept, NativeTransformer, Prepacking, Transformer
from transduce.text import TokenizerPair

CACHE: Final = "cache"
_KNOWN: Final = "weights.json"
# Counts up with every change of what is kept, and in which order.
_LAYOUT: Final = "2"
_MOST_BYTES: Final = 2**42
# A file system may tell the time of a change so coarsely: what changes again meanwhile would look unchanged.
_COARSE: Final = 2e9  # nanoseconds
_OLD: Final = 3600  # seconds, after which nobody writes to an unfinished file any more
_DIGITS: Final = 16  # of a sha256 in a file's name
_WRITABLE: Final = 0o222
_log = logging.getLogger(__name__)


@final
@dataclass(frozen=True)
class PrepackedBundle:
    """A model that the C++ kernels run, with all else that it takes."""

    model: NativeTransformer
    tokenizers: TokenizerPair
    generation: GenerationConfig

    @property
    def config(self) -> ModelConfig:
        """What the model is."""
        return self.model.config


def read_prepacked(stored: StoredBundle, format_: Format) -> PrepackedBundle:
    """Prepack a model that the kernels compute, matrix by matrix: the plain model is never in memory.

    Raises:
        BadInputError: The weights are missing, damaged, or of another model.
    """
    return _bundle(stored, _prepack(stored, format_)[0])


def load_prepacked(stored: StoredBundle, format_: Format) -> PrepackedBundle:
    """The same, by what was kept of an earlier time; where that is missing or does not fit, it is kept now.

    What cannot be kept is said in a warning.

    Raises:
        BadInputError: As in ``read_prepacked``, or something in the cache is a link out of it.
    """
    folder = stored.directory / CACHE
    check_place(folder)
    before = _Identity.of(stored.weights)
    try:
        sha256 = _find_sha256(stored.weights, before, folder / _KNOWN)
    except OSError:
        return read_prepacked(stored, format_)  # says what is wrong
    facts = {
        "layout": _LAYOUT,
        "weights": sha256,
        "model": hashlib.sha256(stored.config.model_dump_json().encode()).hexdigest(),
        "format": format_,
        "kernels": str(kind_of_kernels()),
    }
    path = folder / f"{sha256[:_DIGITS]}-{format_}-{facts['kernels']}.safetensors"
    if (found := _map(stored, format_, facts, path)) is not None:
        return _bundle(stored, found)
    model, tensors = _prepack(stored, format_)
    if _Identity.of(stored.weights) != before:
        _log.warning(f"{stored.weights}: has changed while it was read, so nothing of it is kept")
        return _bundle(stored, model)
    try:
        _keep(tensors, facts, path)
    except OSError as error:
        _log.warning(f"{folder}: prepacked weights cannot be kept there, so every start makes them: {error.strerror}")
        return _bundle(stored, model)
    return _bundle(stored, _map(stored, format_, facts, path) or model)


def _bundle(stored: StoredBundle, model: NativeTransformer) -> PrepackedBundle:
    return PrepackedBundle(model, stored.tokenizers, stored.generation)


def _prepack(stored: StoredBundle, format_: Format) -> tuple[NativeTransformer, dict[str, Tensor]]:
    """The model, and what it is made of."""
    model = _shape_of(stored)
    check_weights(model.state_dict(), stored.weights)
    parameters = dict(model.named_parameters())
    names = {id(parameter): name for name, parameter in parameters.items()}  # while all of them live
    with open_weights(stored.weights) as weights:
        source = Prepacking(format_, lambda parameter, place: weights.fill(place, names[id(parameter)]))
        made = NativeTransformer(model, format_, source)
    return made, source.tensors()


def _shape_of(stored: StoredBundle) -> Transformer:
    return cast(Transformer, stored.build_without_storage())


def _map(stored: StoredBundle, format_: Format, facts: dict[str, str], path: Path) -> NativeTransformer | None:
    """The model of a kept file, if there is one that fits: else a warning says why not."""
    check_place(path)
    try:
        source = Kept(_read(path, facts), format_)
        model = NativeTransformer(_shape_of(stored), format_, source)
        source.check_end()
    except FileNotFoundError:
        return None
    except (BadInputError, SafetensorError, OSError, ValueError) as error:
        _log.warning(f"{path}: these prepacked weights do not fit, and are made anew: {error}")
        return None
    return model


def _read(path: Path, facts: dict[str, str]) -> dict[str, Tensor]:
    check_size(path, _MOST_BYTES)
    with safe_open(path, framework="pt") as file:
        if file.metadata() != facts:
            raise ValueError("they are of something else")
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping


def _keep(tensors: dict[str, Tensor], facts: dict[str, str], path: Path) -> None:
    """Write a file that is whole or not there; what was kept of other weights goes.

    Raises:
        OSError: It cannot be written.
    """
    path.parent.mkdir(exist_ok=True)

    def write(unfinished: Path) -> None:
        save_aligned(tensors, facts, unfinished)
        # Processes map it: a copy that is made over it, where it lies, would end them by a signal.
        unfinished.chmod(unfinished.stat().st_mode & ~_WRITABLE)

    _write(path, write)
    for other in path.parent.iterdir():
        outdated = other.suffix == ".safetensors" and not other.name.startswith(f"{facts['weights'][:_DIGITS]}-")
        with suppress(OSError):  # others may do the same, and on some systems what is mapped cannot go
            if outdated or (other.suffix == ".unfinished" and other.stat().st_mtime < time.time() - _OLD):
                other.unlink()
    _log.info(f"{path}: prepacked weights, kept for the next start: {path.stat().st_size / 1e6:,.0f} MB")


def _write(path: Path, write: Callable[[Path], None]) -> None:
    """Have a file written under a name that no other process uses, whatever it runs in, and give it its own."""
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(8)}.unfinished")
    try:
        write(unfinished)
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
    flush(path.parent)


@final
@dataclass(frozen=True)
class _Identity:
    """What tells that a file is the one that it was, as Git's index does: to read it all takes longer than to map."""

    size: int
    modified: int  # nanoseconds, as is ``changed``, which nobody can set
    changed: int
    number: int

    @classmethod
    def of(cls, path: Path) -> "_Identity | None":
        """A file's; None where there is none to be looked at."""
        try:
            status = path.stat()
        except OSError:
            return None
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)

    @property
    def is_settled(self) -> bool:
        """Whether a later change would show."""
        return time.time_ns() - max(self.modified, self.changed) > _COARSE


def _find_sha256(weights: Path, identity: _Identity | None, known: Path) -> str:
    """The weights' sha256: what was written down for this very file, or computed, and written down where that can be.

    Raises:
        OSError: They cannot be read.
    """
    settled = identity is not None and identity.is_settled  # before it is read
    if identity is not None and (found := _read_known(identity, known)) is not None:
        return found
    with weights.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if settled and _Identity.of(weights) == identity:
        text = json.dumps({**vars(identity), "sha256": sha256}) + "\n"
        with suppress(OSError):  # the next start computes it again
            known.parent.mkdir(exist_ok=True)
            _write(known, lambda unfinished: write_flushed(unfinished, text))
    return sha256


def _read_known(identity: _Identity, known: Path) -> str | None:
    check_place(known)
    try:
        check_size(known, 4096)
        values: Any = json.loads(known.read_text(encoding="utf-8"))
        sha256 = values.pop("sha256")
        return sha256 if values == vars(identity) and re.fullmatch("[0-9a-f]{64}", sha256) else None
    except (BadInputError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
