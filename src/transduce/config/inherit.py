"""What a run file leaves to the model that its training begins with (``train --init``)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

from pydantic import ValidationError

from transduce.config.architectures import ModelConfig
from transduce.config.errors import BadInputError
from transduce.config.model import VOCABULARY_SIZES
from transduce.config.section import regularization

Table = dict[str, Any]

# A [tokenizer] section with none of these says nothing about which tokenizer it is.
_CHOOSES: Final = frozenset({"kind", "vocab_size", "path", "learn_from", "source", "target"})


@final
@dataclass(frozen=True)
class Inherited:
    """The settings of a finished model, for whatever a run file does not say.

    ``name`` is what errors call the model; ``tokenizer`` and ``generation`` are sections of a run file, and empty where
    the run file's own counts.
    """

    name: str
    model: ModelConfig
    tokenizer: Mapping[str, Any]
    generation: Mapping[str, Any]


def inherit(table: Table, inherited: Inherited, place: Callable[[tuple[str, ...]], str]) -> Table:
    """A run's table with what it leaves out; ``place`` says where a key stands.

    Key by key of the model: only regularization may be another. A preset says all of a model, and is left as it is.
    Generation settings come whole, or not at all.

    Raises:
        BadInputError: The table says otherwise of the architecture, which the weights are of.
    """
    table = dict(table)
    model, tokenizer = table.get("model", {}), table.get("tokenizer", {})
    if isinstance(model, dict) and "preset" not in model:
        table["model"] = _join(model, inherited, place)
    if isinstance(tokenizer, dict) and not _CHOOSES & tokenizer.keys() and inherited.tokenizer:
        table["tokenizer"] = {**inherited.tokenizer, **tokenizer}
    if "generation" not in table and inherited.generation:
        table["generation"] = dict(inherited.generation)
    return table


def _join(section: Table, inherited: Inherited, place: Callable[[tuple[str, ...]], str]) -> Table:
    theirs = inherited.model.model_dump(mode="json", exclude=set(VOCABULARY_SIZES))  # lists, as TOML has them
    changeable = regularization(type(inherited.model))
    for key, value in section.items():
        free = key in changeable or key not in theirs
        if not free and not _means_the_same(key, value, theirs, inherited.model):
            raise BadInputError(
                f"{place(('model', key))} = {value!r}, but {inherited.name}, which the training begins with, has "
                f"{theirs[key]!r}: leave it out, or begin with another model"
            )
    if "dropout" in section:
        for name in ("embedding_dropout", "readout_dropout"):  # as in any run file, they follow it where left out
            theirs.pop(name, None)
    return {**theirs, **section}


def _means_the_same(key: str, value: object, theirs: Table, model: ModelConfig) -> bool:
    """Whether the model has this value: 0 may stand for what follows from others, a former value for today's."""
    try:
        said = type(model).model_validate({**theirs, key: value})
    except ValidationError:
        return False
    same: bool = getattr(said, key) == getattr(model, key)
    return same
