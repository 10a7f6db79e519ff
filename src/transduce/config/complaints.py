"""All that is wrong with a run's keys and values: for each, its place, its cause, and what to write instead."""

import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from difflib import get_close_matches
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from transduce.config import architectures
from transduce.config.architectures import ModelConfig, model_section
from transduce.config.keys import Location, Table, enter, section_at
from transduce.config.model import VOCABULARY_SIZES, TransformerConfig
from transduce.config.origin import Origin
from transduce.config.presets import PRESETS
from transduce.config.run import RunConfig
from transduce.config.values import find_field, find_section, shorten, what_is_wrong

# What other toolkits call it.
_OTHER_WORDS: Final = {
    **dict.fromkeys(
        ("epochs", "max_epochs", "num_epochs", "num_train_epochs"),
        "train.max_steps (doctor says how many epochs they are)",
    ),
    **dict.fromkeys(("lr", "learn_rate"), "train.learning_rate"),
    **dict.fromkeys(("hidden_size", "embed_dim", "embedding_size", "dim_emb", "width"), "model.d_model"),
    **dict.fromkeys(("ffn_dim", "ffn_size", "intermediate_size", "dim_feedforward"), "model.d_ff"),
    **dict.fromkeys(("depth", "enc_depth"), "model.encoder_layers"),
    "dec_depth": "model.decoder_layers",
    "patience": "train.early_stop",
}


def find_complaints(origin: Origin) -> list[str]:
    """A line for each mistake, in the file's order."""
    return [*_check_preset(origin), *(_explain(error, origin) for error in _find_errors(origin))]


def _check_preset(origin: Origin) -> Iterator[str]:
    """What is wrong with a model section before it is one."""
    section = origin.table.get("model")
    if not isinstance(section, dict):
        return
    for name in sorted(VOCABULARY_SIZES & section.keys()):
        place = origin.place(("model", name))
        yield f"{place} follows from the tokenizer: set tokenizer.vocab_size instead"
    if (other := _other_architecture(origin)) is not None:
        named = f"{origin.place(('model', 'preset'))} = {origin.preset!r}"
        own = section["architecture"]
        yield f"{named}: is of architecture = {other!r}, and {own!r} stands beside it: leave one of them out"
    if origin.preset is None:
        wrong = section["preset"]
        nearest = get_close_matches(str(wrong), PRESETS, n=1)
        advice = f" (did you mean {nearest[0]!r}?)" if nearest else ""
        place = origin.place(("model", "preset"))
        yield f"{place} = {shorten(wrong)} is unknown: choose {', '.join(PRESETS)}{advice}"


def _other_architecture(origin: Origin) -> str | None:
    """The architecture of the preset, where the model is said to have another one."""
    section = origin.table.get("model")
    if not isinstance(section, dict) or origin.preset is None or "preset" not in section:
        return None
    own, of_preset = section.get("architecture"), PRESETS[origin.preset].architecture
    return of_preset if own in [*architectures.SECTIONS] and own != of_preset else None


def _find_errors(origin: Origin) -> list[ErrorDetails]:
    """All that is wrong with a run's keys and values, in the file's order."""
    table = origin.expanded
    errors, unsure = _validate(table), set[str]()
    for each in errors:
        location = _as_written(each["loc"], table)
        if each["type"] == "extra_forbidden":
            unsure.add(_nearest_key(location, _model_of(table)) or "")
        if location and each["type"] != "missing":
            unsure.add(location[-1])
            _remove(table := deepcopy(table), location)
    # A section's own checks come behind those of its fields: they are heard without what is wrong already, unless they
    # speak of just that.
    known = {(each["loc"], each["msg"]) for each in errors}
    errors += [
        each
        for each in _validate(table)
        if each["type"] == "value_error"
        and (each["loc"], each["msg"]) not in known
        and unsure.isdisjoint(re.findall(r"\w+", each["msg"].replace("-", "_")))
    ]
    if _other_architecture(origin) is not None:  # all else of the model is of one or of the other
        errors = [each for each in errors if each["loc"][:1] != ("model",)]
    if origin.preset is None:  # what a model's fields have to do with each other, nobody knows
        errors = [each for each in errors if each["loc"] not in {(), ("model",)}]
    # That a key is missing follows from its misspelling.
    errors = [each for each in errors if each["type"] != "missing" or each["loc"][-1] not in unsure]
    return sorted(errors, key=lambda each: origin.line(_as_written(each["loc"], origin.table)))


def _validate(table: Table) -> list[ErrorDetails]:
    try:
        RunConfig.model_validate(table)
    except ValidationError as error:
        return error.errors()
    return []


def _remove(table: Table, location: Location) -> None:
    """Take a key out of a table, if it is there."""
    *sections, key = location or ("",)
    inner: object = table
    for section in sections:
        inner = enter(inner, section)
    if isinstance(inner, dict):
        inner.pop(key, None)


def _explain(error: ErrorDetails, origin: Origin) -> str:
    """One line: where it stands, what is wrong, what would be right."""
    location = _as_written(error["loc"], origin.table)
    what = what_is_wrong(error, RunConfig)
    if error["type"] == "extra_forbidden":
        message = f"{origin.place(location)}: {what}{_nearest(location, _model_of(origin.expanded))}"
    elif isinstance(error["input"], dict):
        named = re.findall(r"([\w.]+) = ('[^']*'|[^\s:,;]+)", what)
        place = origin.place_of_all(location, dict.fromkeys(name for name, _ in named))
        remarks = filter(None, (origin.remark(location, *pair) for pair in dict.fromkeys(named)))
        message = f"{place}: {what}{f' ({said})' if (said := '; '.join(remarks)) else ''}"
    else:
        message = f"{origin.place(location)} = {shorten(error['input'])}: {what}"
    return " ".join(message.splitlines())  # a quoted key may hold line ends


def _as_written(location: Sequence[str | int], table: object) -> Location:
    """A location as the file has it: a corpus that stands alone has no number there."""
    if not location:
        return ()
    name, *rest = map(str, location)
    if name.isdecimal() and isinstance(table, dict) and name not in table:
        return _as_written(tuple(rest), table)
    return (name, *_as_written(tuple(rest), enter(table, name)))


def _model_of(table: Table) -> type[ModelConfig]:
    """The section whose settings a model has: of an architecture that there is not, the Transformer's."""
    try:
        return model_section(table.get("model"))
    except ValidationError:
        return TransformerConfig


def _nearest(location: Location, model: type[ModelConfig]) -> str:
    """What somebody meant who wrote an unknown key, where the model is such a one."""
    *sections, unknown = location
    word = _OTHER_WORDS.get(unknown)
    if word is not None and not _is_known(word, model):
        word = None
    others = [name for name, other in architectures.SECTIONS.items() if unknown in other.model_fields]
    if sections == ["model"] and others and word is None:
        own = next(name for name, each in architectures.SECTIONS.items() if each is model)
        return f": it is a setting of architecture = {' and '.join(map(repr, others))}, and this model's is {own!r}"
    if homes := [*_homes(unknown, sections, model)]:
        return f": it belongs into {' or '.join(homes)}"
    if (nearest := _nearest_key(location, model)) is not None:
        return f": did you mean {'.'.join([*sections, nearest])}?"
    if word is not None:
        return f": did you mean {word}?"
    if unknown in RunConfig.model_fields:
        return f": it is a section of its own, [{unknown}]"
    known = _fields(sections, model)
    return f": known are {', '.join(known)}" if known else ""


def _is_known(advice: str, model: type[ModelConfig]) -> bool:
    """Whether a setting that would be advised is one of the model's, or of another section."""
    section, _, key = advice.partition(".")
    return section != "model" or key in model.model_fields


def _homes(key: str, sections: Sequence[str], model: type[ModelConfig]) -> Iterator[str]:
    """The tables that know a key: those within such a section, or else the other sections."""
    inner = [name for name in _fields(sections, model) if sections and key in _fields((*sections, name), model)]
    yield from (".".join((*sections, name)) for name in inner)
    if not inner and len(sections) < 2:
        others = (name for name in RunConfig.model_fields if [name] != sections)
        yield from (f"[{name}]" for name in others if key in _own_fields(name, model))


def _own_fields(section: str, model: type[ModelConfig]) -> list[str]:
    # [tokenizer] and the corpora have tables called source and target, which say nothing of what they mean elsewhere
    return [name for name in _fields((section,), model) if find_section(_annotation((section, name))) is None]


def _annotation(location: Location) -> Any:  # noqa: ANN401 - types have no common type
    field = find_field(RunConfig, location)
    return None if field is None else field.annotation


def _nearest_key(location: Location, model: type[ModelConfig]) -> str | None:
    *sections, unknown = location
    return next(iter(get_close_matches(unknown, _fields(sections, model), n=1)), None)


def _fields(sections: Sequence[str], model: type[ModelConfig]) -> list[str]:
    """The keys that the section at such a place may have."""
    if [*sections] == ["model"]:
        return [*(name for name in model.model_fields if name not in VOCABULARY_SIZES), "preset"]
    section = section_at(sections)
    return [] if section is None else [*section.model_fields]
