"""A model directory's shortlist: what may be written for each symbol of a source; not every model has one."""

from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from transduce.bundle.directory import find_model
from transduce.bundle.weights import read_tensors, save_tensors
from transduce.config import BadInputError, ModelConfig
from transduce.config.disk import flush
from transduce.config.files import check_place
from transduce.models import Shortlist

SHORTLIST: Final = "shortlist.safetensors"
_TRANSLATIONS, _FREQUENT = "translations", "frequent"


def save_shortlist(shortlist: Shortlist, path: Path) -> Path:
    """Write the shortlist of a model directory, or of a run's ``best``, whole or not at all; return the file.

    Raises:
        BadInputError: There is no model.
    """
    file = find_model(path) / SHORTLIST
    unfinished = file.with_name(f"{file.name}.unfinished")
    save_tensors({_TRANSLATIONS: shortlist.translations.int(), _FREQUENT: shortlist.frequent.int()}, unfinished)
    unfinished.replace(file)
    flush(file.parent)
    return file


def load_shortlist(path: Path, config: ModelConfig) -> Shortlist:
    """The shortlist of a model of that configuration, which is in this directory, or in the ``best`` of this run.

    Raises:
        BadInputError: There is none, it is damaged, or it is another model's.
    """
    file = find_model(path) / SHORTLIST
    if not file.exists():
        raise BadInputError(f"{file}: no such file: make it with transduce shortlist RUN, or translate without")
    check_place(file)
    # A copy: one that is written over in place would change what a translator writes, or end it by a signal.
    tensors = {name: tensor.clone() for name, tensor in read_tensors(file).items()}
    vocabulary, sources = config.vocab_size, config.source_vocab_size or config.vocab_size
    _check(tensors, _TRANSLATIONS, (sources, None), -1, vocabulary, file)
    _check(tensors, _FREQUENT, (None,), 0, vocabulary, file)
    return Shortlist(tensors[_TRANSLATIONS], tensors[_FREQUENT], vocabulary)


def _check(
    tensors: dict[str, Tensor], name: str, sizes: tuple[int | None, ...], least: int, vocabulary: int, file: Path
) -> None:
    remedy = "make it again with transduce shortlist RUN"
    if name not in tensors:
        raise BadInputError(f"{file}: {name} is missing: {remedy}")
    tensor = tensors[name]
    if tensor.dtype != torch.int32:
        raise BadInputError(f"{file}: {name} is of type {tensor.dtype}, not of 32-bit integers: {remedy}")
    fits = len(tensor.shape) == len(sizes) and all(
        wanted is None or found == wanted for found, wanted in zip(tensor.shape, sizes, strict=True)
    )
    if not fits:
        shape = ", ".join("any" if each is None else f"{each:,}" for each in sizes)
        raise BadInputError(
            f"{file}: {name} has shape {tuple(tensor.shape)} but the model's vocabulary asks for ({shape}): {remedy}"
        )
    wrong = tensor[(tensor < least) | (tensor >= vocabulary)]
    if len(wrong):
        raise BadInputError(f"{file}: {name} has symbol {int(wrong[0])}, of a vocabulary of {vocabulary:,}: {remedy}")
