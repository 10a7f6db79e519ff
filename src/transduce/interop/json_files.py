"""JSON files of other libraries, which may be a stranger's."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from transduce.config import BadInputError
from transduce.config.files import read_text

_MOST_BYTES: Final = 2**27


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file.

    Raises:
        BadInputError: It is missing, too large, a link out of its folder, or no object.
    """
    stored = read_json_value(path)
    if not isinstance(stored, dict):
        raise BadInputError(f"{path}: a JSON object belongs here")
    return stored


def read_json_value(path: Path) -> Any:  # noqa: ANN401 - whatever JSON holds
    """What a file holds.

    Raises:
        BadInputError: It is missing, too large, a link out of its folder, or no JSON.
    """
    text = read_text(path, _MOST_BYTES, "file of the model")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{path}: not readable JSON: {error}") from error


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file of settings."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
