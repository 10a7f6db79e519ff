"""JSON files of other libraries, which may be a stranger's."""

import json
from pathlib import Path
from typing import Any, Final

from transduce.config import BadInputError
from transduce.config.files import check_place, check_size

_MOST_BYTES: Final = 2**27


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file.

    Raises:
        BadInputError: It is missing, too large, a link out of its folder, or no object.
    """
    check_place(path)
    check_size(path, _MOST_BYTES)
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BadInputError(f"{path}: no such file") from error
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{path}: not readable JSON: {error}") from error
    if not isinstance(stored, dict):
        raise BadInputError(f"{path}: a JSON object belongs here")
    return stored
