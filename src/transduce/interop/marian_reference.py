"""Marian as what an import or an export is compared with: its scores of known targets, and its translations."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from transduce.interop.marian_npz import find_vocabularies, read_search
from transduce.interop.marian_options import CONFIG, has_old_gelu, norms, read_options, trains_positions
from transduce.interop.marian_runtime import MarianTranslator, has_marian, marian_version, run_marian
from transduce.interop.marian_vocabulary import read_marian_sides
from transduce.interop.npz import read_npz
from transduce.interop.reference import Ids, Pair, Scorer
from transduce.interop.renumbering import Renumbering
from transduce.models import Transformer
from transduce.text.tokenizer import END, UNKNOWN

_DIGITS: Final = 5e-6  # half of the last digit that it prints
_SIDES: Final = ("source", "target")
_SCORES: Final = "WordScores="
_END, _UNKNOWN = 2, 3  # ours


def why_no_marian(model: Path) -> str | None:
    """Why a model cannot be compared with Marian here; None where it can. ``read_marian`` has looked at it before."""
    if not has_marian():
        return "pymarian is not installed, pip install 'transduce[marian]'"
    options, stored = _read(model)
    if "Wpos" in stored and trains_positions(options):
        return f"its positions are trained, which Marian {marian_version()} does not run (versions until 1.11 do)"
    if has_old_gelu(options):
        return f"it was trained with another GELU than Marian {marian_version()} has"
    return None


def open_marian(model: Path, vocabularies: tuple[Path, Path] | None = None, codes: Path | None = None) -> Scorer:
    """A model in Marian, which ``read_marian`` has looked at.

    Raises:
        BadInputError: A file is missing or damaged.
        TransduceError: ``pymarian`` or PyYAML is not installed.
    """
    places = find_vocabularies(model, read_search(model)) if vocabularies is None else vocabularies
    return _Marian(model, places, codes)


def cut_marian(
    model: Path, vocabularies: tuple[Path, Path] | None = None, codes: Path | None = None
) -> Callable[[Transformer], AbstractContextManager[Scorer]]:
    """What opens the same file with as many layers as a model of ours has."""
    places = find_vocabularies(model, read_search(model)) if vocabularies is None else vocabularies

    @contextmanager
    def cut(shorter: Transformer) -> Iterator[Scorer]:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "model.npz"
            _shorten(model, path, {"encoder": len(shorter.encoder), "decoder": len(shorter.decoder)})
            yield _Marian(path, places, codes)

    return cut


def _read(model: Path) -> tuple[Any, dict[str, "np.ndarray[Any, Any]"]]:
    stored = read_npz(model)
    return read_options(stored.pop(CONFIG).tobytes(), model), stored


def _shorten(model: Path, path: Path, layers: Mapping[str, int]) -> None:
    """The same model with its first layers alone."""
    options, stored = _read(model)
    values = dict(options.sections[0][1]) | {"enc-depth": layers["encoder"], "dec-depth": layers["decoder"]}
    if tied := values.get("transformer-tied-layers"):
        values["transformer-tied-layers"] = tied[: layers["decoder"]]
    arrays: dict[str, Any] = {**stored, CONFIG: np.frombuffer(json.dumps(values).encode() + b"\0", np.int8)}
    np.savez(path, **arrays)


@final
class _Marian:
    """It computes in float32, on the processor.

    Known targets are given by ids, spelled by a vocabulary of their numbers. Text is given as it is where Marian cuts
    it itself, by a SentencePiece model, and else by ids.
    """

    name = "Marian"
    resolution = _DIGITS

    def __init__(self, model: Path, vocabularies: tuple[Path, Path], codes: Path | None) -> None:
        self.versions = {"pymarian": marian_version()}
        self.weights = [model]
        options = _read(model)[0]
        pre = options.given("type") == "transformer" and norms(options)[0] == "pre"
        self.search_differs = (
            "Marian's search reads keys and values of a pre-norm decoder without their norm, unlike its training and "
            "its scores"
            if pre
            else None
        )
        self._sides = read_marian_sides(vocabularies, codes)
        self._cuts = all(path.suffix == ".spm" for path in vocabularies)
        self.has = self._sides.target.owners
        # Marian takes paths without spaces, and ends with this object.
        self._place = TemporaryDirectory()
        self._folder = Path(self._place.name)
        (self._folder / "model.npz").symlink_to(model.resolve())
        for side, path, numbers in zip(_SIDES, vocabularies, (self._sides.source, self._sides.target), strict=True):
            (self._folder / f"{side}.spm").symlink_to(path.resolve())
            names = "".join(f"{_spell(numbers, index)}: {index}\n" for index in range(numbers.size))
            (self._folder / f"{side}.yml").write_text(names, encoding="utf-8")
        self._translator: MarianTranslator | None = None

    def log_probabilities(self, pairs: Sequence[Pair]) -> list[Float[Tensor, " positions"]]:
        """As ``Scorer`` says."""
        numbers = self._sides.source, self._sides.target
        for side, each, several in zip(_SIDES, numbers, zip(*pairs, strict=True), strict=True):
            lines = "".join(" ".join(_spell_all(each, ids)) + "\n" for ids in several)
            (self._folder / side).write_text(lines, encoding="utf-8")
        files = ["--train-sets", *_SIDES, "--vocabs", *(f"{side}.yml" for side in _SIDES)]
        printed = run_marian(
            ["score", "--model", "model.npz", *files, "--word-scores", *_threads(), "--mini-batch", "4"], self._folder
        )
        return [
            torch.tensor([float(each) for each in line.partition(_SCORES)[2].split()]) for line in printed.splitlines()
        ]

    def translate(self, lines: Sequence[str], beam: int, longest: int) -> list[str]:
        """As ``Library`` says; as a hypothesis ends, its search goes on with a narrower beam."""
        if self._translator is None:
            vocabularies = [f"{side}.{'spm' if self._cuts else 'yml'}" for side in _SIDES]
            batches = ["--mini-batch", "16", "--maxi-batch", "100", "--maxi-batch-sort", "src"]
            options = ["--models", "model.npz", "--vocabs", *vocabularies, "--normalize", "0", *batches, *_threads()]
            self._translator = MarianTranslator(options, self._folder)
        sources = self._sides.tokenizers.source.encode(lines)
        spelled = list(lines) if self._cuts else [" ".join(_spell_all(self._sides.source, ids)) for ids in sources]
        rows: dict[int, list[int]] = {}
        for row, ids in enumerate(sources):
            rows.setdefault(len(ids) + 1, []).append(row)
        outputs = [""] * len(lines)
        # Its limit is a multiple of the source's length.
        for width, group in rows.items():
            settings = {"max_length_factor": longest / width, "beam_size": beam}
            written = self._translator.translate([spelled[row] for row in group], **settings)
            for row, output in zip(group, written, strict=True):
                outputs[row] = output
        return outputs if self._cuts else self._read_out(outputs)

    def _read_out(self, outputs: Sequence[str]) -> list[str]:
        """The text of what it writes by ids."""
        numbers = self._sides.target
        ours = {_spell(numbers, row): index for index, row in enumerate(numbers.rows) if numbers.owners[index]}
        rows = [[ours[name] for name in output.split()] for output in outputs]
        return self._sides.tokenizers.target.decode(rows)

    def layers(self, source: Ids, target: Ids) -> Mapping[str, Float[Tensor, "positions model"]]:
        """It shows none."""
        return {}


def _threads() -> list[str]:
    return ["--cpu-threads", str(torch.get_num_threads())]


def _spell_all(numbers: Renumbering, ids: Ids) -> list[str]:
    return [_spell(numbers, numbers.rows[index]) for index in ids]


def _spell(numbers: Renumbering, row: int) -> str:
    """One of its symbols by its number; the end and the unknown one have the names that it knows them by."""
    return {numbers.rows[_END]: END, numbers.rows[_UNKNOWN]: UNKNOWN}.get(row, f"w{row}")
