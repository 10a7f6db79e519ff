"""Checkpoints that ``torch.save`` wrote, read without running anything that is in them.

A pickle is a program. It is first looked through without being run: it may ask for tensors, plain containers, and the
few names that a format needs; whatever else it asks for is refused by name. Only then ``torch.load`` reads it, with
``weights_only``, mapped into memory, so that no more of a file is read than is used.
"""

import pickle
import pickletools
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import IO, Any, Final, final

import torch
from torch import Tensor
from torch.serialization import safe_globals

from transduce.config import BadInputError
from transduce.config.files import check_size

_MOST_BYTES: Final = 2**42
_MOST_PICKLED: Final = 2**28  # of the part that names and places tensors
# What starts a file that torch wrote before it wrote zip archives.
_OLD_MAGIC: Final = 0x1950A86A20F9469CFC6C
_MOST_NODES: Final = 3  # one in another: a node of omegaconf that holds a namespace
_OLD_PICKLES: Final = 5  # magic number, version, system, content, order of the storages

# What tensors and plain containers are made of. torch would allow more, and some of it takes memory for the asking.
_PLAIN: Final = frozenset(
    {
        "_codecs.encode",
        "builtins.set",
        "collections.OrderedDict",
        "torch.Size",
        "torch._utils._rebuild_parameter",
        "torch._utils._rebuild_tensor_v2",
        "torch.device",
        "torch.nn.parameter.Parameter",
        "torch.storage.UntypedStorage",
    }
)
_STORAGES: Final = frozenset(
    f"torch.{kind}Storage"
    for kind in ("BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short")
)
# Of weights. What else a tensor may be of is a count, a mask, or quantized, of which no scale is known.
_NUMBERS: Final = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# As Python 2 called what Python 3 has, in pickles that it could read, which torch's are.
_RENAMED: Final = {"__builtin__.long": "builtins.int", "__builtin__.unicode": "builtins.str"}
_RENAMED_MODULES: Final = {"__builtin__": "builtins"}


@final
class StandIn:
    """An object of a class that is not at hand, or had better not be: what was stored of it, and no behaviour."""

    def __init__(self, *arguments: object, **named: object) -> None:
        self.arguments, self.named = arguments, named

    def __setstate__(self, state: object) -> None:
        if isinstance(state, dict):
            self.__dict__.update({key: value for key, value in state.items() if isinstance(key, str)})
        else:
            self.__dict__["state"] = state


Allowed = Mapping[str, Callable[..., object]]


def stand_ins(*names: str) -> dict[str, Callable[..., object]]:
    """Let the classes of these names pass, as things without behaviour."""
    return dict.fromkeys(names, StandIn)


def opened(stored: object) -> object:
    """What a stand-in holds, as far as it is known: a namespace its options, one of omegaconf's nodes its content.

    A list's members are opened too. What they hold in turn is not: a stranger's may have no end.
    """
    held = _held(stored)
    return [_held(each) for each in held] if isinstance(held, list) else held


def _held(stored: object) -> object:
    for _ in range(_MOST_NODES):
        if not isinstance(stored, StandIn):
            break
        held = vars(stored)
        stored = held.get("_val", held.get("_content", held))
    return stored


def load_checkpoint(path: Path, allowed: Allowed | None = None) -> Any:  # noqa: ANN401 - whatever was saved
    """What ``torch.save`` wrote, its tensors on the CPU.

    Args:
        path: The file.
        allowed: Besides tensors and plain containers, the names that may occur, and what is made in their places.

    Raises:
        BadInputError: It is missing, damaged, or no such file; or it asks for another name, which is said.
    """
    allowed = allowed or {}
    check_size(path, _MOST_BYTES)
    try:
        zipped = _look_through(path, allowed)
    except FileNotFoundError as error:
        raise BadInputError(f"{path}: no such checkpoint") from error
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror or error}") from error
    names = [(make, name) for name, make in allowed.items()]
    try:
        with safe_globals(names):  # type: ignore[arg-type] # the pairs that it also takes
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipped or None)
    except Exception as error:
        # torch's own errors run over many lines, and advise to trust the file.
        raise BadInputError(f"{path}: damaged checkpoint: {str(error).splitlines()[0][:200]}") from error


def tensors_of(stored: object, path: Path) -> dict[str, Tensor]:
    """A part of a checkpoint as tensors by name.

    Raises:
        BadInputError: It is none, a tensor pretends to be larger than what is stored of it, or it has no floating-point
            numbers.
    """
    if not isinstance(stored, Mapping) or not stored:
        raise BadInputError(f"{path}: no weights by name where they belong: it is no such checkpoint")
    found = {}
    for name, value in stored.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise BadInputError(f"{path}: {name!r} among the weights is no tensor: it is no such checkpoint")
        if value.numel() * value.element_size() > value.untyped_storage().nbytes():
            raise BadInputError(f"{path}: {name} has shape {tuple(value.shape)}, of which less is stored: damaged")
        found[name] = value.detach()
    check_numbers(found, path)
    return found


def check_numbers(weights: Mapping[str, Tensor], path: Path) -> None:
    """Refuse weights that would become others as soon as they are computed with.

    Raises:
        BadInputError: One is of integers, truth values, complex numbers or a format of eight bits.
    """
    for name, tensor in weights.items():
        if tensor.dtype not in _NUMBERS:
            *others, last = (str(each).removeprefix("torch.") for each in _NUMBERS)
            raise BadInputError(
                f"{path}: {name} is of {str(tensor.dtype).removeprefix('torch.')}: only weights of "
                f"{', '.join(others)} or {last} can be read; of a quantized model, give the one that it was made of"
            )


def _look_through(path: Path, allowed: Allowed) -> bool:
    """Refuse what asks for too much; whether it is a zip archive."""
    size = path.stat().st_size
    if not zipfile.is_zipfile(path):
        with path.open("rb") as stream:
            _check_old(stream, path, size, allowed)
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
                raise BadInputError(f"{path}: a compressed archive, which torch.save never writes")
            if sum(entry.file_size for entry in entries) > size:
                raise BadInputError(f"{path}: damaged checkpoint: its parts are larger than the file")
            pickled = [entry for entry in entries if Path(entry.filename).name == "data.pkl"]
            if len(pickled) != 1 or pickled[0].file_size > _MOST_PICKLED:
                raise BadInputError(f"{path}: no checkpoint of torch.save: it has no data.pkl that can be read")
            content = archive.read(pickled[0])
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        raise BadInputError(f"{path}: damaged checkpoint: {error}") from error
    _check_names(_operations(BytesIO(content), path), path, allowed)
    return True


def _check_old(stream: IO[bytes], path: Path, size: int, allowed: Allowed) -> None:
    """A file from before the zip archives: pickles, and behind them the storages, made before they are read."""
    for number in range(_OLD_PICKLES):
        operations = list(_operations(stream, path))
        if number == 0 and not any(value == _OLD_MAGIC for _, value in operations):
            raise BadInputError(f"{path}: no checkpoint of torch.save")
        _check_names(operations, path, allowed)
        # Among the numbers of the content are the storages' lengths; no honest one is as large.
        sizes = [value for name, value in operations if name in ("BININT", "LONG1") and isinstance(value, int)]
        if number and max(sizes, default=0) > max(size, 2**31):
            raise BadInputError(
                f"{path}: damaged checkpoint: it asks for {max(sizes):,} numbers and has {size:,} bytes"
            )


def _operations(stream: IO[bytes], path: Path) -> Iterator[tuple[str, object]]:
    """The operations of a pickle, by name, with their arguments; none is done."""
    try:
        for operation, argument, _ in pickletools.genops(stream):
            yield operation.name, argument
    except (ValueError, EOFError, IndexError, UnicodeDecodeError, pickle.UnpicklingError) as error:
        raise BadInputError(f"{path}: damaged checkpoint, or none: {str(error)[:200]}") from error


def _check_names(operations: Iterable[tuple[str, object]], path: Path, allowed: Allowed) -> None:
    """Refuse names that are not known, each way that a pickle may say them."""
    for operation, argument in operations:
        match operation:
            case "GLOBAL":
                full = _full_name(str(argument))
                if full not in _PLAIN and full not in _STORAGES and full not in allowed and not _is_type(full):
                    raise BadInputError(
                        f"{path}: asks for {full}, which a model's weights have no need of: refused. If you trust it, "
                        f"save its weights alone, without what is beside them"
                    )
            case "STACK_GLOBAL" | "INST" | "OBJ" | "EXT1" | "EXT2" | "EXT4" | "NEWOBJ_EX":
                raise BadInputError(f"{path}: a pickle with {operation}, which torch.save never writes: refused")
            case _:
                pass


def _full_name(argument: str) -> str:
    module, _, name = argument.partition(" ")
    return _RENAMED.get(f"{module}.{name}") or f"{_RENAMED_MODULES.get(module, module)}.{name}"


def _is_type(name: str) -> bool:
    """Whether it is one of torch's number formats."""
    module, _, kind = name.rpartition(".")
    return module == "torch" and isinstance(getattr(torch, kind, None), torch.dtype)
