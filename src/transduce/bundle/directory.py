"""The model directory: configuration, weights, tokenizer and generation settings, written whole and read safely."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar, final

from pydantic import ValidationError

from transduce.bundle.elsewhere import BEST, CONFIG, RUN_FILE, WEIGHTS, advise, find_other_format
from transduce.bundle.weights import check_weights, count_tensors, load_weights, save_tensors
from transduce.config import BadInputError, GenerationConfig, ModelConfig
from transduce.config.architectures import model_section
from transduce.config.disk import flush_folder, name_beside, name_errors, replace_directory
from transduce.config.files import ANEW, check_name, check_place, check_size, check_vacant
from transduce.config.section import Section
from transduce.config.values import shorten, what_is_wrong
from transduce.models import TrainableModel, build_unfilled, build_without_storage
from transduce.text import TokenizerPair

GENERATION: Final = "generation_config.json"
_MOST_BYTES: Final = 2**20  # of a file of settings

T = TypeVar("T", bound=Section)


@final
@dataclass(frozen=True)
class Bundle:
    """A model with all that it takes to run it."""

    model: TrainableModel
    tokenizers: TokenizerPair
    generation: GenerationConfig

    @property
    def config(self) -> ModelConfig:
        """What the model is."""
        return self.model.config


def save_bundle(bundle: Bundle, path: str | os.PathLike[str]) -> None:
    """Write a model directory. It replaces an older one, with all that lies in it, only when it is complete.

    Raises:
        BadInputError: Something else stands there: a file, the current folder, or a folder that is no model directory.
        OSError: The disk does not take it; the error names ``path``, and an older one stays.
    """
    path = Path(path)
    if path.is_file():
        raise BadInputError(f"{path}: is a file, a model directory cannot take its place")
    # In a run directory all is ours, and what a crash has left is found, or goes; elsewhere others have names too.
    own = path.name == BEST and (path.parent / RUN_FILE).is_file()
    if not own and (not (path / CONFIG).is_file() or find_other_format(path)):
        check_vacant(path)  # it would take the place of all that is there
    unfinished = path.with_name(f"{path.name}.unfinished") if own else name_beside(path, "unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        with name_errors(path, unfinished):
            unfinished.mkdir(parents=True)
            (unfinished / CONFIG).write_text(bundle.config.model_dump_json(indent=2) + "\n", encoding="utf-8")
            (unfinished / GENERATION).write_text(bundle.generation.model_dump_json(indent=2) + "\n", encoding="utf-8")
            bundle.tokenizers.save(unfinished)
            save_tensors(dict(bundle.model.state_dict()), unfinished / WEIGHTS)
            flush_folder(unfinished)
            replace_directory(unfinished, path, None if own else name_beside(path, "older"))
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)  # it may be what fills the disk
        raise


@final
@dataclass(frozen=True)
class StoredBundle:
    """A model directory of which all was read but the weights."""

    directory: Path
    config: ModelConfig
    tokenizers: TokenizerPair
    generation: GenerationConfig

    @property
    def weights(self) -> Path:
        """The file that has them."""
        return self.directory / WEIGHTS

    def build_without_storage(self) -> TrainableModel:
        """The model that the settings ask for, with shapes and no values.

        Each layer takes memory and time all the same, and a few bytes of settings may ask for thousands: it is not
        built before the weights are seen to have as many.

        Raises:
            BadInputError: The weights are missing or damaged, or fewer than a model of these settings has.
        """
        stored, least = count_tensors(self.weights), self.config.least_tensors
        if stored < least:
            raise BadInputError(
                f"{self.weights}: weights of another model: {stored:,} tensors, and {CONFIG} asks for a model of "
                f"{least:,} at least"
            )
        return build_without_storage(self.config)

    def read(self) -> Bundle:
        """The whole; no memory is taken for a model before the weights are seen to be of its size.

        Raises:
            BadInputError: The weights are missing, damaged, or of another model.
        """
        check_weights(self.build_without_storage().state_dict(), self.weights)
        model = build_unfilled(self.config)
        load_weights(model, self.weights)
        return Bundle(model.eval(), self.tokenizers, self.generation)


def open_bundle(path: str | os.PathLike[str]) -> StoredBundle:
    """Look into a model directory, or the ``best`` of a run directory.

    It may be a stranger's: nothing in it is run, and no link out of it is followed.

    Raises:
        BadInputError: A file is missing, damaged, or does not fit the others; it is named.
    """
    directory = find_model(Path(path))
    for file in directory.iterdir():
        check_place(file)
    config, generation = _read_settings(directory)
    tokenizers = TokenizerPair.load(directory)
    _check_sizes(tokenizers, config, directory)
    return StoredBundle(directory, config, tokenizers, generation)


def load_bundle(path: str | os.PathLike[str]) -> Bundle:
    """Read a model directory, or the ``best`` of a run directory, as ``open_bundle`` and ``StoredBundle.read`` say."""
    return open_bundle(path).read()


def weights_file(path: Path) -> Path:
    """Where the weights of ``load_bundle``'s model are.

    Raises:
        BadInputError: ``path`` is no model or run directory.
    """
    return find_model(path) / WEIGHTS


def load_settings(path: Path) -> tuple[ModelConfig, GenerationConfig]:
    """What the model of ``load_bundle`` is and how it writes, without its weights.

    Raises:
        BadInputError: As there.
    """
    directory = find_model(path)
    for file in (directory / CONFIG, directory / GENERATION):
        check_place(file)
    return _read_settings(directory)


def _check_sizes(tokenizers: TokenizerPair, config: ModelConfig, directory: Path) -> None:
    # A model may embed both sides by matrices of their own, whatever the vocabularies hold.
    sizes = tokenizers.sizes(shared=config.source_vocab_size != tokenizers.source.vocab_size)
    for name, size in ({"source_vocab_size": None} | sizes).items():
        wanted = getattr(config, name)
        if size != wanted:
            side = "source's tokenizer" if name == "source_vocab_size" else "tokenizer"
            counts = (f"{count:,} symbols" if count else "none of its own" for count in (size, wanted))
            raise BadInputError(
                f"{directory}: the {side} has {next(counts)} but the model {next(counts)}: they and {CONFIG} are not "
                f"of the same model"
            )


def find_model(path: Path) -> Path:
    """The model directory that a path means: itself, or the ``best`` of a run directory.

    Raises:
        BadInputError: It is neither, or its name is no UTF-8.
    """
    check_name(path, "rename the folder")
    if (path / CONFIG).is_file():
        return path
    # The older one stands alone for a moment while a newer one takes its place.
    for best in (path / BEST, path / f"{BEST}.older"):
        if (best / CONFIG).is_file():
            return best
    if not path.exists():
        raise BadInputError(f"{path}: no such model directory")
    if path.is_file():
        raise BadInputError(f"{path}: is a file, a model directory or a run directory belongs here{advise(path)}")
    raise BadInputError(
        f"{path}: neither a model directory ({CONFIG} is missing) nor a run that has a {BEST} model yet{advise(path)}"
    )


def _read_settings(directory: Path) -> tuple[ModelConfig, GenerationConfig]:
    config = _read_section(directory / CONFIG, model_section)
    return config, _read_section(directory / GENERATION, lambda _: GenerationConfig)


def _read_section(path: Path, choose: Callable[[object], type[T]]) -> T:
    """A file as the section that ``choose`` finds its values to be of."""
    check_size(path, _MOST_BYTES)
    section: type[Section] = Section
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        section = chosen = choose(values)
        return chosen.model_validate(values)
    except FileNotFoundError as error:
        raise BadInputError(f"{path}: no such file in the model directory: {ANEW}") from error
    except ValidationError as error:
        if path.name == CONFIG and (other := find_other_format(path.parent)):
            raise BadInputError(f"{path.parent}: is {other}") from error
        first = error.errors()[0]
        # A stranger's key may hold line ends, or what terminals take for commands.
        key = ".".join(part if (part := str(each)).isprintable() else repr(part) for each in first["loc"])
        place = f"{path}: {key} = {shorten(first['input'])}" if key else str(path)
        raise BadInputError(f"{place}: {what_is_wrong(first, section)}") from error
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{path}: not readable JSON ({error}): the file is damaged: {ANEW}") from error
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}") from error
