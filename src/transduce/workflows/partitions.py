"""Folders of partitions: what their files are called, which of them stand, and what settings they were made with."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal, final

from transduce.bundle import find_model
from transduce.config import BadInputError
from transduce.data.places import (
    FoundFile,
    compression,
    find_files,
    is_address,
    is_hidden,
    join,
    list_names,
    open_raw,
    unpacked_name,
    whole_file,
)

Format = Literal["text", "jsonl", "parquet"]
RECORD: Final = "_transduce.json"
_FORMATS: Final[dict[str, Format]] = {".jsonl": "jsonl", ".parquet": "parquet"}
_NO_LINES: Final = (".json", ".safetensors", ".toml")  # what models, runs and their settings are made of
_LONGEST_VALUE: Final = 100  # characters, that the record has as they are


@final
@dataclass(frozen=True)
class Partition:
    """A file to read, the one to write, and the latter's name below the folder."""

    source: str
    target: str
    name: str


@final
@dataclass(frozen=True)
class Plan:
    """What is to be done, how many partitions stand already, and the folder."""

    partitions: tuple[Partition, ...]
    standing: int
    output: str


def format_of(place: str) -> Format:
    """By what the name ends in, compression aside; what no name says is text."""
    return _FORMATS.get(PurePosixPath(unpacked_name(place)).suffix, "text")


def _result_name(name: str, text_as: Literal["text", "jsonl"]) -> str:
    """The name of a partition's result: its own, or of text that becomes objects, one that says so."""
    if text_as == "text" or format_of(name) != "text":
        return name
    return f"{unpacked_name(name).removesuffix('.txt')}.jsonl{compression(name)}"


def make_plan(input_: str, output: str, text_as: Literal["text", "jsonl"], settings: Mapping[str, Any]) -> Plan:
    """Find the partitions, look at what stands in the output folder, and record what it is made with.

    The output folder may lie in the input folder: what is in it is no partition.

    Args:
        input_: A file, a folder or a pattern, here or on an object store.
        output: The folder, in which each result has its partition's name.
        text_as: What text becomes; tables stay tables, and objects objects.
        settings: All that results follow from.

    Raises:
        BadInputError: Nothing matches outside the output folder, two results would have one name, the output folder
            holds something else, or the input folder files that are no text.
    """
    if input_ == "-":
        raise BadInputError("--input: a cluster reads files: give a folder, or a pattern such as 'DIR/*.parquet'")
    if output == "-":
        raise BadInputError("--output: partitions go to a folder: give --output DIR")
    partitions: dict[str, Partition] = {}
    sizes: dict[str, int] = {}
    files = find_files(input_)
    _check_kinds(input_, files)
    for file in files:
        name = _result_name(file.name, text_as)
        target = join(output, name)
        if _resolved(target) == _resolved(file.place):
            raise BadInputError(f"{target}: is the input too: give --output another folder")
        if _lies_in(file.place, output):
            continue
        if name in partitions:
            raise BadInputError(
                f"{partitions[name].source} and {file.place}: both would be written to {target}: rename one of them"
            )
        partitions[name], sizes[name] = Partition(file.place, target, name), file.size
    if not partitions:
        raise BadInputError(f"{output}: all that --input {input_} means lies in it: give --output another folder")
    known = {**settings, **({} if text_as == "text" else {"format": text_as})}
    standing = _check_folder(output, partitions, sizes, {key: _brief(value) for key, value in known.items()})
    left = tuple(partition for name, partition in partitions.items() if name not in standing)
    return Plan(left, len(standing), output)


def _check_kinds(input_: str, files: Sequence[FoundFile]) -> None:
    """Of a folder everything is read: what lies there by chance must not be. Whoever gives a pattern means it."""
    if any(each in input_ for each in "*?["):
        return
    others = [file.name for file in files if file.place != input_ and file.name.endswith(_NO_LINES)]
    if others:
        more = f", and {len(others) - 1:,} more" if len(others) > 1 else ""
        good = next((Path(each.name).suffix for each in files if each.name not in others), "") or ".txt"
        raise BadInputError(
            f"{input_}: holds files that are neither text nor .jsonl nor .parquet ({others[0]}{more}): give a pattern "
            f"that means the partitions alone, such as '{input_.rstrip('/')}/*{good}'"
        )


def _resolved(place: str) -> str:
    return place if is_address(place) else str(Path(place).resolve())


def _lies_in(place: str, folder: str) -> bool:
    """Whether a file is in a folder, or in one of its folders."""
    if is_address(place) or is_address(folder):
        return place.startswith(join(folder, "").partition("?")[0])
    return Path(place).resolve().is_relative_to(Path(folder).resolve())


def _brief(value: object) -> str:
    """A setting as the record has it: a long one, such as a dictionary, by its digest."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= _LONGEST_VALUE else f"sha256 {hashlib.sha256(text.encode()).hexdigest()}"


def _check_folder(
    output: str, partitions: Mapping[str, Partition], sizes: dict[str, int], settings: dict[str, str]
) -> set[str]:
    """The partitions that stand, made of the same files with the same settings; what is new is recorded first."""
    names, place = list_names(output), join(output, RECORD)
    present = {name for name in names if not is_hidden(name)}
    before: dict[str, Any] = {"settings": settings, "bytes_read": {}}
    if RECORD in names:
        before = _read_record(place)
    elif present:
        raise BadInputError(
            f"{output}: holds {len(present):,} files ({min(present)}), and no record of what they are: "
            f"give --output an empty folder"
        )
    keys = sorted(key for key in {*before["settings"], *settings} if before["settings"].get(key) != settings.get(key))
    if keys:
        changes = "; ".join(f"{key} was {before['settings'].get(key)}, and is {settings.get(key)}" for key in keys)
        raise BadInputError(
            f"{output}: holds partitions made with other settings ({changes}): give the same ones, or another --output"
        )
    standing = present & partitions.keys()
    for name in sorted(standing):
        if before["bytes_read"].get(name) != sizes[name]:
            raise BadInputError(
                f"{partitions[name].target}: {partitions[name].source} had another size when this was made: delete it "
                f"to have it made anew, or give another --output"
            )
    if not sizes.items() <= before["bytes_read"].items():
        with whole_file(place) as stream:
            stream.write(
                json.dumps({"settings": settings, "bytes_read": before["bytes_read"] | sizes}, indent=1).encode()
            )
    return standing


def _read_record(place: str) -> dict[str, Any]:
    try:
        with open_raw(place) as stream:
            record = json.loads(stream.read())
        return {part: dict(record[part]) for part in ("settings", "bytes_read")}
    except (ValueError, KeyError, TypeError) as error:
        raise BadInputError(f"{place}: a damaged record of a folder ({error!r}): give another --output") from error


def digest_models(paths: Iterable[Path]) -> list[str]:
    """What models compute with, wherever they lie: of each, a digest of its files.

    Raises:
        BadInputError: A path is no model.
    """
    digests = []
    for path in paths:
        digest = hashlib.sha256()
        for file in sorted(find_model(path).iterdir()):
            if file.suffix in {".json", ".safetensors"}:
                with file.open("rb") as stream:
                    digest.update(f"{file.name} {hashlib.file_digest(stream, 'sha256').hexdigest()}\n".encode())
        digests.append(digest.hexdigest())
    return digests
