"""Which format a model is in, as its files say."""

from pathlib import Path
from typing import Final, Literal, get_args

from transduce.config import BadInputError
from transduce.interop.json_files import read_json

Format = Literal["marianmt", "marian", "ctranslate2", "fairseq", "opennmt", "eole", "joeynmt", "sockeye", "torch"]
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
            raise BadInputError(f"{path}: is a model directory of ours already")
        if isinstance(config.get("model"), dict):
            return "eole"
    if (path / "config.yaml").is_file() and any(path.glob("*.ckpt")):
        return "joeynmt"
    if (path / "config").is_file() and any(path.glob("vocab.src.*.json")):
        return "sockeye"
    raise BadInputError(f"{path}: {_explain(path)}")


def _explain(folder: Path) -> str:
    """What a folder is that is no model, and what to do."""
    if any(folder.glob("dict.*.txt")):
        return f"a folder of fairseq: name the checkpoint in it, such as {folder}/checkpoint_best.pt"
    if models := sorted(folder.glob("*.npz")):
        return f"a folder of Marian: name the model in it, such as {models[0]}"
    if any(folder.glob("*.onnx")):
        return "graphs of ONNX, which no longer tell of a model's layers: import what they were made of"
    return _none()


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
            raise BadInputError(f"{path}: {_none()}")


def _none() -> str:
    return f"no model of a format that can be told from its files ({', '.join(FORMATS)}): name it with --from"
