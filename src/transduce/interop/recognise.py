"""Which format a model is in, as its files say."""

from pathlib import Path
from typing import Final, Literal, get_args

from transduce.bundle.elsewhere import BEST, CONFIG, advise, find_other_format, is_for_onnx
from transduce.config import BadInputError
from transduce.interop.json_files import read_json

Format = Literal["marianmt", "marian", "ctranslate2", "fairseq", "opennmt", "eole", "joeynmt", "sockeye", "torch"]
_OURS: Final = "has a model of ours already, which every verb takes as it is"
FORMATS: Final[tuple[Format, ...]] = get_args(Format)


def recognise(path: Path) -> Format:
    """The format of a folder, or of a file.

    Raises:
        BadInputError: It is none that can be read; what it is, where that is known, is said.
    """
    if not path.exists():
        raise BadInputError(f"{path}: no such model")
    if path.is_file():
        return _recognise_file(path)
    if is_for_onnx(path):
        raise BadInputError(f"{path}: is {find_other_format(path)}")
    if (path / "model.bin").is_file():
        return "ctranslate2"
    if (path / "config.json").is_file():
        config = read_json(path / "config.json")
        if config.get("model_type") == "marian":
            return "marianmt"
        if "model_type" in config:
            raise BadInputError(
                f"{path}: a model of transformers of kind {config['model_type']!r}: of these, only 'marian' can be read"
            )
        if "architecture" in config:
            raise BadInputError(f"{path}: {_OURS}")
        if isinstance(config.get("model"), dict):
            return "eole"
    if (path / "config.yaml").is_file() and any(path.glob("*.ckpt")):
        return "joeynmt"
    if (path / "config").is_file() and any(path.glob("vocab.src.*.json")):
        return "sockeye"
    if any(path.glob("dict.*.txt")):
        raise BadInputError(
            f"{path}: a folder of fairseq: name the checkpoint in it, such as {path}/checkpoint_best.pt"
        )
    raise BadInputError(f"{path}: {_OURS if (path / BEST / CONFIG).is_file() else _none(path)}")


def _recognise_file(path: Path) -> Format:
    match path.suffix:
        case ".npz":
            return "marian"
        case ".toml":
            return "torch"
        case ".pt":
            # OpenNMT-py's checkpoints hold their vocabularies.
            return "fairseq" if any(path.parent.glob("dict.*.txt")) else "opennmt"
        case _:
            raise BadInputError(f"{path}: {_none(path)}")


def _none(path: Path) -> str:
    if path.is_dir() and (advice := advise(path)):
        return f"is no model itself{advice}"
    return f"no model of a format that can be told from its files ({', '.join(FORMATS)}): name it with --from"
