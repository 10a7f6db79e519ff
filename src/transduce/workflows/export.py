"""A trained model for other runtimes."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal, assert_never

from transduce.bundle import Bundle, load_bundle, load_shortlist, save_bundle, save_shortlist, weights_file
from transduce.config import BadInputError
from transduce.config.disk import new_directory
from transduce.config.files import check_vacant
from transduce.data import read_lines
from transduce.interop import (
    SENTENCES,
    Certificate,
    Reference,
    Scorer,
    certify,
    export_ctranslate2,
    export_marian,
    export_marianmt,
    export_onnx,
    open_ctranslate2,
    open_marian,
    open_marianmt,
    open_onnx,
    open_safetensors,
    open_written_marian,
    sha256,
    why_no_marian,
)
from transduce.models import Transformer
from transduce.workflows.model_card import CardOptions, make_card

_log = logging.getLogger(__name__)

Runtime = Literal["ctranslate2", "marian", "marianmt", "onnx", "safetensors"]
_NOTHING_SAID: Final = CardOptions()


def export_model(
    model: Path,
    to: Runtime,
    out: Path,
    sentences: Path | None = None,
    card: CardOptions = _NOTHING_SAID,
    *,
    prove: bool = True,
) -> Certificate | None:
    """Write a model or run directory in the form of another runtime, with the proof that it computes the same there.

    The proof, ``certificate.json``, compares both on the lines of ``sentences``, or on built-in ones; without ``prove``
    there is none. ``safetensors`` is our own model directory with a ``card``, README.md, to hand on.

    Raises:
        BadInputError: ``model`` is no model directory, the runtime has no such model, something stands at ``out``, or
            what a card says is given where there is none.
        TransduceError: The runtime's library is not installed, or it computes otherwise; then nothing is written.
    """
    check_vacant(out)
    if to != "safetensors" and card != _NOTHING_SAID:
        raise BadInputError(f"--licence and --scores are for a model's card, and --to {to} writes none: leave them out")
    bundle = load_bundle(model)
    lines = SENTENCES if sentences is None else [*read_lines(sentences)]

    @contextmanager
    def export_again(shorter: Transformer) -> Iterator[Reference | Scorer]:
        with TemporaryDirectory() as place:
            yield _export(replace(bundle, model=shorter), to, Path(place))()

    with new_directory(out) as folder:
        open_exported = _export(bundle, to, folder)
        if to == "safetensors":
            _describe(model, bundle, folder, card)
        if not prove:
            return None
        certificate = certify(bundle, open_exported(), lines, weights=[weights_file(model)], export=export_again)
        certificate.write(folder)
    return certificate


def _export(bundle: Bundle, to: Runtime, folder: Path) -> Callable[[], Reference | Scorer]:
    """Write the model to a folder; what opens it there, which may want a library that writing does not."""
    match to:
        case "ctranslate2":
            export_ctranslate2(bundle, folder)
            return partial(open_ctranslate2, folder)
        case "marian":
            export_marian(bundle, folder)
            return partial(_open_marian, folder)
        case "marianmt":
            export_marianmt(bundle, folder)
            return partial(open_marianmt, folder)
        case "onnx":
            export_onnx(bundle, folder)
            return partial(open_onnx, folder, bundle.tokenizers)
        case "safetensors":
            save_bundle(bundle, folder)
            return partial(open_safetensors, folder)
        case _:
            assert_never(to)


def _open_marian(folder: Path) -> Reference | Scorer:
    """In Marian, or where that cannot be, as our own reader reads it."""
    path = folder / "model.npz"
    if (why := why_no_marian(path)) is None:
        return open_marian(path)
    _log.warning(f"compared with what our own reader finds in the folder, not with Marian: {why}")
    return open_written_marian(folder)


def _describe(model: Path, bundle: Bundle, folder: Path, options: CardOptions) -> None:
    """What else belongs to a model that is handed on: its shortlist, where it has one, and its card."""
    if (weights_file(model).parent / "shortlist.safetensors").is_file():
        save_shortlist(load_shortlist(model, bundle.config), folder)
    card = make_card(model, bundle, sha256(weights_file(folder)), options)
    (folder / "README.md").write_text(card.markdown(), encoding="utf-8")
