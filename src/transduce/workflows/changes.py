"""Settings that differ from those that a training began with: which it can go on with, and which would corrupt it."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, assert_never, final

from pydantic import ValidationError

from transduce.config import BadInputError, RunConfig, TrainConfig, read_run
from transduce.config.model import VOCABULARY_SIZES
from transduce.config.section import Effect
from transduce.config.values import find_setting
from transduce.training import Progress
from transduce.workflows.run_directory import RunDirectory

_log = logging.getLogger(__name__)

_ARCHITECTURE: Final = "model.architecture"
_TEXT: Final = "data.text"  # in what a checkpoint knows: no key of a run file


@final
@dataclass(frozen=True)
class Change:
    """A key of the run file, and its values."""

    key: str
    before: Any
    after: Any
    effect: Effect

    def __str__(self) -> str:
        match self.effect:
            case "safe":
                says = "safe: what is learned stays the same"
            case "allowed":
                says = "allowed: from here on it is another training than the one that was begun"
            case "refused":
                says = "refused: what is learned so far would be of no use, or the order of the data another"
            case _:
                assert_never(self.effect)
        return f"{self.key}: was {self.before!r} and is {self.after!r} ({says})"


def find_changes(began: RunConfig, now: RunConfig) -> list[Change]:
    """Every key whose value differs, in the order of the run file."""
    before, after = _flatten(began), _flatten(now)
    if "auto" in (began.train.precision, now.train.precision):
        # What it meant, and whether it is the same, only the checkpoint knows.
        before["train.precision"] = after["train.precision"]
    different = [key for key in dict.fromkeys([*after, *before]) if before.get(key) != after.get(key)]
    return [Change(key, before.get(key), after.get(key), _effect(key, now)) for key in telling(different)]


def tell_changes(config: RunConfig, run: RunDirectory) -> None:
    """Say what differs from the settings that the training went on with the last time.

    Raises:
        BadInputError: It cannot go on with some of them.
    """
    try:
        began = read_run(run.config)
    except BadInputError as error:
        _log.warning(f"{error}: what has changed since the training began cannot be shown")
        return
    changes = find_changes(began, config)
    for change in changes:
        _log.info(str(change))
    refuse(run, (change for change in changes if change.effect == "refused"))


def refused_changes(config: RunConfig, run: RunDirectory) -> list[Change]:
    """Settings with which the training in ``run`` cannot go on."""
    try:
        began = read_run(run.config)
    except BadInputError:  # which `tell_changes` says
        return []
    return [change for change in find_changes(began, config) if change.effect == "refused"]


def refuse(run: RunDirectory, changes: Iterable[Change]) -> None:
    """Raise an error that names these changes, if there are any.

    Raises:
        BadInputError: There are some.
    """
    named = [f"{change.key} was {change.before!r} and is {change.after!r}" for change in changes]
    if named:
        raise BadInputError(
            f"{run.root}: cannot go on with other settings: {'; '.join(named)}: set them back (in the run file, or by "
            f"--set), go on with all that it began with (transduce train {run.config} --resume), or train anew with "
            f"another --out"
        )


def fix(progress: Progress, config: RunConfig, settings: TrainConfig, run: RunDirectory, text: str) -> Progress:
    """Write down what may not change from here on, and refuse what has changed since the training began.

    Weights of the same shapes may mean another model, and another seed or budget another order of the data. Unlike the
    run file, which people may edit, a checkpoint knows what it began with. An older version's checkpoint
    is read as its files are: settings that it does not know had their defaults, and former names and values count.
    ``text`` tells its preparation from others.

    Raises:
        BadInputError: Something of it has changed.
    """
    if progress.fixed.get(_TEXT, text) != text:
        raise BadInputError(
            f"{run.root}: its training began with another preparation, of other text or another tokenizer, than the "
            f"one that is there now: restore that one to go on, or train anew with another --out"
        )
    now = _flatten(config.model_copy(update={"train": settings}))
    fixed = {key: now[key] for key in now if key.startswith(("model.", "train.")) and _effect(key, config) == "refused"}
    # Of text and tokenizer, the prepared store knows the rest.
    fixed["data.train.weight"] = [corpus.weight for corpus in config.data.train]
    fixed["tokenizer.bpe_dropout"] = config.tokenizer.bpe_dropout
    if config.data.streaming:  # of which there is no store
        fixed |= {"data.streaming": True, "data.shuffle_window": config.data.shuffle_window}
    fixed[_TEXT] = text
    began = _read_again({_TEXT: text} | progress.fixed, config) if progress.fixed else fixed
    different = telling([key for key, value in fixed.items() if began.get(key) != value])
    refuse(run, (Change(key, began.get(key), fixed[key], "refused") for key in different))
    return progress.model_copy(update={"fixed": fixed})


def tell_circumstances(progress: Progress, now: dict[str, str]) -> Progress:
    """Say what differs of that which the last bits of all sums depend on, and write down what it is from here on."""
    # Older versions wrote no number of processes, as there was one.
    began = {"processes": "1"} | progress.circumstances if progress.circumstances else now
    different = [f"{key} was {began.get(key)} and is {value}" for key, value in now.items() if began.get(key) != value]
    if different:
        _log.warning(
            f"{'; '.join(different)}: sums may round differently, so that from here on the training is no longer bit "
            f"for bit what it would have been"
        )
    return progress.model_copy(update={"circumstances": now})


def telling(different: list[str]) -> list[str]:
    """Keys that differ and say something: with another architecture, all else of the model is another's, too."""
    if _ARCHITECTURE not in different:
        return different
    return [key for key in different if key == _ARCHITECTURE or not key.startswith("model.")]


def _effect(key: str, now: RunConfig) -> Effect:
    if key == "train.max_steps" and now.train.cooldown_steps:
        return "allowed"  # the end of the training is what the fall of the rate is measured from
    setting = find_setting(RunConfig, key.split("."))
    assert setting is not None, key
    return setting.resume


def _read_again(fixed: dict[str, Any], config: RunConfig) -> dict[str, Any]:
    """What a checkpoint knows of a training, as this version reads the settings."""
    read = dict(fixed)
    for name, section in (("model", type(config.model)), ("train", type(config.train))):
        known = {key.removeprefix(f"{name}."): value for key, value in fixed.items() if key.startswith(f"{name}.")}
        with suppress(ValidationError):  # of another kind of model: all of it differs
            read |= _leaves(name, section.model_validate(known).model_dump())
    return read


def _flatten(config: RunConfig) -> dict[str, Any]:
    return dict(_leaves("", config.model_dump(exclude={"model": set(VOCABULARY_SIZES)})))


def _with_lists(value: Any) -> Any:  # noqa: ANN401 - whatever a setting may be
    """Lists in place of tuples, as JSON gives them back."""
    return [_with_lists(each) for each in value] if isinstance(value, tuple | list) else value


def _leaves(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - whatever a setting may be
    """Settings by their dotted keys; of several tables, the first has the number 0, as with --set."""
    if isinstance(value, tuple) and value and isinstance(value[0], dict):
        value = {str(number): each for number, each in enumerate(value)}
    if not isinstance(value, dict):
        yield prefix, _with_lists(value)
        return
    for name, each in value.items():
        yield from _leaves(f"{prefix}.{name}" if prefix else name, each)
