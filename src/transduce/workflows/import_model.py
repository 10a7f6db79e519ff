"""Another library's model as one of ours."""

import logging
from importlib.util import find_spec
from pathlib import Path
from typing import assert_never

from transduce.bundle import Bundle, save_bundle, weights_file
from transduce.config import BadInputError
from transduce.config.disk import new_directory
from transduce.config.files import check_vacant
from transduce.data import read_lines
from transduce.interop import (
    SENTENCES,
    Certificate,
    Export,
    Format,
    Reference,
    Scorer,
    certify,
    cut_marian,
    open_ctranslate2,
    open_marian,
    open_marianmt,
    open_plain,
    open_torch_nn,
    read_ctranslate2,
    read_eole,
    read_fairseq,
    read_joeynmt,
    read_marian,
    read_marianmt,
    read_opennmt,
    read_sockeye,
    read_torch_nn,
    recognise,
    why_no_marian,
)

_log = logging.getLogger(__name__)


def import_model(
    path: Path,
    out: Path,
    format_: Format | None = None,
    sentences: Path | None = None,
    codes: Path | None = None,
    *,
    prove: bool = True,
) -> Certificate | None:
    """Write a model directory with what another library's folder or file holds.

    ``certificate.json`` in it says that both compute the same, compared on the lines of ``sentences`` or on built-in
    ones: with that library itself where it runs here, else with its weights in PyTorch's functions. Without ``prove``
    there is none.

    Words are cut by ``codes``, BPE codes or a SentencePiece model, where they are not by the model's own files.

    Raises:
        BadInputError: ``path`` is no such model, or a damaged one, or one that ours cannot say, which is named; or
            something stands at ``out``. Then nothing is written.
        TransduceError: The library computes otherwise, or an extra is not installed; then nothing is written.
    """
    check_vacant(out)
    found = recognise(path) if format_ is None else format_
    bundle = _read(path, found, codes)
    lines = SENTENCES if sentences is None else [*read_lines(sentences)]
    with new_directory(out) as folder:
        save_bundle(bundle, folder)
        if not prove:
            return None
        opened = _open(path, found, codes)
        if isinstance(opened, str):
            _log.warning(f"nothing here proves that both compute the same, and there is no certificate: {opened}")
            return None
        reference, cut = opened
        certificate = certify(bundle, reference, lines, weights=[weights_file(folder)], export=cut)
        certificate.write(folder)
    return certificate


def _read(path: Path, format_: Format, codes: Path | None) -> Bundle:
    """The model; ``codes`` say how words are cut where its own files do not, or say it otherwise."""
    match format_:
        case "marianmt":
            if codes is not None:
                raise BadInputError(f"--codes {codes}: a MarianMT folder cuts words by its own models: leave it out")
            bundle = read_marianmt(path)
        case "marian":
            bundle = read_marian(path, codes=codes)
        case "ctranslate2":
            bundle = read_ctranslate2(path, codes)
        case "fairseq":
            bundle = read_fairseq(path, codes)
        case "opennmt":
            bundle = read_opennmt(path, codes)
        case "eole":
            bundle = read_eole(path, codes)
        case "joeynmt":
            bundle = read_joeynmt(path, codes)
        case "sockeye":
            bundle = read_sockeye(path, codes)
        case "torch":
            bundle = read_torch_nn(path, codes)
        case _:
            assert_never(format_)
    return bundle


def _open(path: Path, format_: Format, codes: Path | None) -> tuple[Reference | Scorer, Export | None] | str:
    """What the model is compared with, and what opens it with fewer layers, where that is how layers are told apart.

    Or why it is not compared.
    """
    missing = {"marianmt": "transformers", "ctranslate2": "ctranslate2"}.get(format_)
    if missing is not None and find_spec(missing) is None:
        return f"{missing} is not installed, pip install 'transduce[interop]'"
    if format_ == "marian":
        why = why_no_marian(path)
        return (open_marian(path, codes=codes), cut_marian(path, codes=codes)) if why is None else why
    reference: Reference
    match format_:
        case "marianmt":
            reference = open_marianmt(path)
        case "ctranslate2":
            reference = open_ctranslate2(path, codes)
        case "torch":
            reference = open_torch_nn(path, codes)
        case "fairseq" | "opennmt" | "eole" | "joeynmt" | "sockeye":
            reference = open_plain(path, format_, codes)
        case _:
            assert_never(format_)
    return reference, None
