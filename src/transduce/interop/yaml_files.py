"""Settings in YAML, read as plain values: nothing in them makes an object."""

from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from transduce.config import BadInputError, TransduceError
from transduce.config.files import read_text

_MOST_BYTES: Final = 2**20
_MERGE: Final = "tag:yaml.org,2002:merge"
_MOST_MERGED: Final = 100_000  # settings
_TUPLE: Final = "tag:yaml.org,2002:python/tuple"


def read_yaml_file(path: Path, objects: Collection[str] = ()) -> dict[str, Any]:
    """A file of settings by name; see ``read_yaml`` for ``objects``.

    Raises:
        BadInputError: It is missing, a link out of its folder, too large, or no such file.
        TransduceError: PyYAML is not installed.
    """
    return read_yaml(read_text(path, _MOST_BYTES, "file of the model"), str(path), objects)


def read_yaml(text: str, place: str, objects: Collection[str] = ()) -> dict[str, Any]:
    """A mapping of YAML, of plain values alone.

    ``objects`` are tags of objects (``!Name``) that may occur, and are read as settings by name; with them, tuples are
    read as lists.

    Raises:
        BadInputError: It is none.
        TransduceError: PyYAML is not installed.
    """
    try:
        import yaml  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise TransduceError("settings in YAML need PyYAML: pip install 'transduce[interop]'") from error
    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            _make_plain(node, frozenset(objects))
            found = None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    # A scalar that is tagged as of a type that it is not is any of the latter.
    except (yaml.YAMLError, ValueError, RecursionError, IndexError, KeyError, AttributeError) as error:
        raise BadInputError(f"{place}: not readable YAML: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(found, dict):
        raise BadInputError(f"{place}: settings by name belong here")
    return found


def _make_plain(root: Any, objects: Collection[str]) -> None:  # noqa: ANN401 - a node of PyYAML
    """Give objects of these tags the tag of what they are made of; no other tag becomes one that is known.

    Raises:
        ValueError: Mappings that merge others would become too large.
        RecursionError: One merges itself.
    """
    plain = {"mapping": "tag:yaml.org,2002:map", "sequence": "tag:yaml.org,2002:seq"}
    seen, waiting, merged = set(), [root], dict[int, int]()
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen:  # a node may have several places, itself among them
            continue
        seen.add(id(node))
        if (node.id == "mapping" and node.tag in objects) or (node.id == "sequence" and objects and node.tag == _TUPLE):
            node.tag = plain[node.id]
        if node.id == "mapping":
            _count_settings(node, merged)
            waiting += [each for pair in node.value for each in pair]
        elif node.id == "sequence":
            waiting += node.value


def _count_settings(node: Any, known: dict[int, int]) -> int:  # noqa: ANN401
    """How many settings a mapping has with those that it merges (``<<``), of which a few lines can make any number."""
    if node.id == "sequence":  # of mappings to merge
        return sum(_count_settings(each, known) for each in node.value)
    if node.id == "scalar":
        return 1
    if id(node) not in known:
        number = sum(_count_settings(value, known) if key.tag == _MERGE else 1 for key, value in node.value)
        if number > _MOST_MERGED:
            raise ValueError(f"more than {_MOST_MERGED:,} settings by merging (<<)")
        known[id(node)] = number
    return known[id(node)]
