"""A trained model for other runtimes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, assert_never

from transduce.bundle import Bundle, load_bundle, weights_file
from transduce.config.disk import whole_directory
from transduce.config.files import check_vacant
from transduce.data import read_lines
from transduce.interop import (
    SENTENCES,
    Certificate,
    Reference,
    certify,
    export_ctranslate2,
    export_onnx,
    open_ctranslate2,
    open_onnx,
)
from transduce.models import Transformer

Runtime = Literal["ctranslate2", "onnx"]


def export_model(
    model: Path, to: Runtime, out: Path, sentences: Path | None = None, *, prove: bool = True
) -> Certificate | None:
    """Write a model or run directory in the form of another runtime, with the proof that it computes the same there.

    The proof, ``certificate.json``, compares both on the lines of ``sentences``, or on built-in ones; without ``prove``
    there is none.

    Raises:
        BadInputError: ``model`` is no model directory, the runtime has no such model, or something stands at ``out``.
        TransduceError: The runtime's library is not installed, or it computes otherwise; then nothing is written.
    """
    check_vacant(out)
    bundle = load_bundle(model)
    lines = SENTENCES if sentences is None else [*read_lines(sentences)]

    @contextmanager
    def export_again(shorter: Transformer) -> Iterator[Reference]:
        with TemporaryDirectory() as place:
            yield _export(replace(bundle, model=shorter), to, Path(place))

    with whole_directory(out) as folder:
        reference = _export(bundle, to, folder)
        if not prove:
            return None
        certificate = certify(bundle, reference, lines, weights=[weights_file(model)], export=export_again)
        certificate.write(folder)
    return certificate


def _export(bundle: Bundle, to: Runtime, folder: Path) -> Reference:
    """Write the model to a folder, and open it there."""
    match to:
        case "ctranslate2":
            export_ctranslate2(bundle, folder)
            return open_ctranslate2(folder)
        case "onnx":
            export_onnx(bundle, folder)
            return open_onnx(folder, bundle.tokenizers)
        case _:
            assert_never(to)
