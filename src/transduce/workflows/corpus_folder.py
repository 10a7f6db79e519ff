"""A folder of parallel text whose files say by their names what they hold: ``train.en.gz``, ``dev.de``."""

import re
from pathlib import Path
from typing import Final

from transduce.config import BadInputError, Corpus, DataConfig

_TRAIN: Final = ("train",)
_DEV: Final = ("dev", "val", "valid", "validation")
# Names of the two sides that say themselves which is the source; and English is, as in the paper's tasks.
_DIRECTIONS: Final = (("source", "target"), ("src", "trg"), ("src", "tgt"))
_SOURCE: Final = "en"


def find_corpora(folder: Path, source: str | None = None, target: str | None = None) -> DataConfig:
    """The training and dev text of a folder: ``train.LANGUAGE`` and ``dev.LANGUAGE``, plain, ``.gz`` or ``.zst``.

    Languages that are not given are those that the folder has both of, English being the source.

    Raises:
        BadInputError: The folder or a file of it is missing, or which file or language is meant is not clear.
    """
    if not folder.is_dir():
        raise BadInputError(f"{folder}: {'is a file, a folder belongs here' if folder.exists() else 'no such folder'}")
    train, dev = _by_language(folder, _TRAIN), _by_language(folder, _DEV)
    source, target = _direction(folder, train.keys() & dev.keys(), source, target)
    return DataConfig(
        root=str(folder.resolve()),
        train=(Corpus(source=train[source], target=train[target]),),
        dev=Corpus(source=dev[source], target=dev[target]),
    )


def _by_language(folder: Path, stems: tuple[str, ...]) -> dict[str, str]:
    """The names of the files with one of these stems, by what stands behind it."""
    pattern = re.compile(rf"(?:{'|'.join(stems)})\.([^.]+)(?:\.gz|\.zst)?")
    found: dict[str, str] = {}
    for name in sorted(path.name for path in folder.iterdir() if path.is_file()):
        if (match := pattern.fullmatch(name)) is None:
            continue
        if (other := found.setdefault(match[1], name)) != name:
            raise BadInputError(f"{folder}: has {other} and {name}: leave one of them there")
    if len(found) < 2:
        wanted = " or ".join(f"{stem}.LANGUAGE" for stem in stems)
        has = f"only {', '.join(found.values())}" if found else "no such file"
        raise BadInputError(f"{folder}: has {has} where two files {wanted} (plain, .gz or .zst) belong")
    return found


def _direction(folder: Path, languages: set[str], source: str | None, target: str | None) -> tuple[str, str]:
    known = f"{folder} has train and dev text in {', '.join(sorted(languages)) or 'no language'}"
    for option, given in (("--source-language", source), ("--target-language", target)):
        if given is not None and given not in languages:
            raise BadInputError(f"{option} {given}: {known}")
    if source is not None and source == target:
        raise BadInputError(f"--source-language {source}: is --target-language too: give two languages; {known}")
    fitting = [
        (left, right)
        for left in sorted(languages)
        for right in sorted(languages)
        if left != right and source in (None, left) and target in (None, right)
    ]
    evident = fitting if len(fitting) == 1 else [pair for pair in fitting if pair in _DIRECTIONS or pair[0] == _SOURCE]
    if len(evident) != 1:
        raise BadInputError(f"{known}: say which two with --source-language and --target-language")
    return evident[0]
