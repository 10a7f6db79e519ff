"""A dictionary of words in a file: a word of the source, a tab, and what it becomes."""

import logging
from pathlib import Path

from transduce.config import BadInputError
from transduce.data.lines import read_lines

_log = logging.getLogger(__name__)


def read_dictionary(path: Path) -> dict[str, str]:
    """The entries of a file, plain, ``.gz`` or ``.zst``, by the source's word; of several for a word, the first.

    Blank lines say nothing. An entry for several words can never be asked for: a warning names the first such line.

    Raises:
        BadInputError: The file cannot be read, or a line has not one tab between two texts (file and line are named).
    """
    entries: dict[str, str] = {}
    several: list[str] = []
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        source, *targets = (part.strip() for part in line.split("\t"))
        if len(targets) != 1 or not source or not targets[0]:
            raise BadInputError(
                f"{path} line {number}: is no entry of a dictionary: write a source word, one tab, and what it becomes"
            )
        if len(source.split()) > 1:
            several.append(f"{path} line {number}: {source!r}")
        else:
            entries.setdefault(source, targets[0])
    if several:
        more = f" (and {len(several) - 1:,} more)" if len(several) > 1 else ""
        _log.warning(f"{several[0]} is several words{more}: unknown words are looked up one by one, and never find it")
    return entries
