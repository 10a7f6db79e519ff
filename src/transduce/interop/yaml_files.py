"""Settings in YAML, read as plain values: nothing in them makes an object."""

from pathlib import Path
from typing import Any, Final

from transduce.config import BadInputError, TransduceError
from transduce.config.files import read_text

_MOST_BYTES: Final = 2**20


def read_yaml_file(path: Path) -> dict[str, Any]:
    """A file of settings by name.

    Raises:
        BadInputError: It is missing, a link out of its folder, too large, or no such file.
        TransduceError: PyYAML is not installed.
    """
    return read_yaml(read_text(path, _MOST_BYTES, "file of the model"), str(path))


def read_yaml(text: str, place: str) -> dict[str, Any]:
    """A mapping of YAML, of plain values alone.

    Raises:
        BadInputError: It is none.
        TransduceError: PyYAML is not installed.
    """
    try:
        import yaml  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise TransduceError("settings in YAML need PyYAML: pip install 'transduce[interop]'") from error
    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadInputError(f"{place}: not readable YAML: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(found, dict):
        raise BadInputError(f"{place}: settings by name belong here")
    return found
