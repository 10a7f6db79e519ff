"""NumPy's ``.npz`` archives, which may be a stranger's: arrays of numbers by name, and nothing else."""

import ast
import zipfile
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.lib import format as npy

from transduce.config import BadInputError
from transduce.config.files import check_size

_MOST_BYTES: Final = 2**42
_MOST_HEADER: Final = 10_000


def read_npz(path: Path) -> dict[str, "np.ndarray[Any, Any]"]:
    """The arrays of an ``.npz``, by name. None is a pickle, and none is larger than what is stored of it.

    Raises:
        BadInputError: It is missing, damaged, or asks for more than it holds.
    """
    check_size(path, _MOST_BYTES)
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            compressed = any(entry.compress_type != zipfile.ZIP_STORED for entry in entries)
            if compressed or sum(entry.file_size for entry in entries) > path.stat().st_size:
                raise BadInputError(f"{path}: damaged, or compressed, which no such model is")
            return {entry.filename.removesuffix(".npy"): _read_array(archive, entry, path) for entry in entries}
    except FileNotFoundError as error:
        raise BadInputError(f"{path}: no such model") from error
    except (OSError, EOFError, zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError) as error:
        raise BadInputError(f"{path}: no .npz, or a damaged one: {error}") from error


def _read_array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path) -> "np.ndarray[Any, Any]":
    content = archive.read(entry)
    try:
        return _parse_array(content)
    except (ValueError, TypeError, KeyError, SyntaxError, RecursionError, MemoryError) as error:
        raise BadInputError(f"{path}: {entry.filename} is damaged, or no array of numbers: {error}") from error


def _parse_array(content: bytes) -> "np.ndarray[Any, Any]":
    """By hand, as NumPy takes the memory that a header asks for before it sees what there is.

    Raises:
        ValueError: It is damaged.
    """
    # Magic bytes, a version, the header's length.
    start = 10 if content[6:7] == b"\x01" else 12
    length = int.from_bytes(content[8:start], "little")
    header = ast.literal_eval(content[start : start + min(length, _MOST_HEADER)].decode("latin-1"))
    kind = np.dtype(header["descr"])
    if content[:6] != npy.MAGIC_PREFIX or kind.hasobject or kind.names:
        raise ValueError("no array of numbers")
    array = np.frombuffer(content[start + length :], kind)
    return array.reshape(tuple(header["shape"]), order="F" if header["fortran_order"] else "C")
