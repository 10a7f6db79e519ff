"""The reference pages, made of the settings' sections, the command's verbs and the rooms' public names."""

import pkgutil
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, Union, cast, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typer.core import TyperGroup

import transduce
from transduce.cli.main import app
from transduce.config.architectures import SECTIONS
from transduce.config.corpora import Corpus, DataConfig
from transduce.config.generation import GenerationConfig
from transduce.config.run import TrainConfig
from transduce.config.section import facts
from transduce.config.tokenizer import VocabularyConfig

_TABLES: Final[Mapping[str, type[BaseModel]]] = {
    "[data]": DataConfig,
    "A corpus of [data]": Corpus,
    "[tokenizer]": VocabularyConfig,
    **{f'[model] with architecture = "{name}"': section for name, section in SECTIONS.items()},
    "[train]": TrainConfig,
    "[generation]": GenerationConfig,
}
_RESUME: Final = {
    "safe": "safe: the weights of a step stay what they would have been",
    "allowed": "allowed: another training from here on",
    "refused": "refused: the weights or the order of the data would be of no use",
}


def pages() -> dict[str, str]:
    """The pages by their names on the site."""
    return {
        "reference/settings.md": _settings_page(),
        "reference/verbs.md": _verbs_page(),
        **{f"reference/python/{room}.md": _room_page(room) for room in rooms()},
        "reference/python/index.md": _python_page(),
    }


def rooms() -> list[str]:
    """The rooms that have public names."""
    found = (module.name for module in pkgutil.iter_modules(transduce.__path__) if module.ispkg)
    return sorted(room for room in found if _public(room))


def _public(room: str) -> list[str]:
    # Read, not imported: nothing here is to need torch.
    source = Path(transduce.__path__[0], room, "__init__.py").read_text(encoding="utf-8")
    listed = re.search(r"^__all__ = \[(.*?)\]", source, flags=re.M | re.S)
    return re.findall(r'"(\w+)"', listed[1]) if listed else []


def _python_page() -> str:
    lines = "\n".join(f"- [transduce.{room}]({room}.md)" for room in rooms())
    training = "::: transduce.workflows.trained\n    options:\n      members:\n        - train\n        - Trained"
    return (
        "# Python\n\nWhat is public stands in the `__init__` of its room; [architecture](../../architecture.md) tells"
        " the rooms apart. `import transduce` has what most programs need: `train`, `load`, `Translator`,"
        " `Translation`, and the errors `BadInputError`, `StoppedError` and `TransduceError`."
        f"\n\n{lines}\n\n{training}\n"
    )


def _room_page(room: str) -> str:
    members = "".join(f"        - {name}\n" for name in _public(room))
    return f"# transduce.{room}\n\n::: transduce.{room}\n    options:\n      members:\n{members}"


def _settings_page() -> str:
    parts = [
        "# Settings\n\nThe tables of a run file, and the keys of `config.json` and `generation_config.json`."
        " Every one can be given as `--set TABLE.KEY=VALUE`. *Resume*: what `train --resume` makes of another.\n\n"
        + "\n".join(f"- {text}" for text in _RESUME.values())
    ]
    for title, section in _TABLES.items():
        about = (section.__doc__ or "").strip().partition("\n\n")[0].replace("\n", " ")
        rows = [_setting_row(name, field) for name, field in section.model_fields.items()]
        head = "| setting | type | default | meaning | resume |\n|---|---|---|---|---|\n"
        parts.append(f"## {title}\n\n{' '.join(about.split())}\n\n{head}" + "\n".join(rows))
    return "\n\n".join(parts) + "\n"


def _setting_row(name: str, field: FieldInfo) -> str:
    setting = facts(field)
    meaning = [_escape(field.description or "")]
    if setting and setting.read_with:
        other, values = setting.read_with
        meaning.append(f"Read with `{other}` = {' or '.join(f'`{_toml(value)}`' for value in values)}.")
    if setting and setting.formerly:
        meaning.append(f"Formerly {', '.join(f'`{old}`' for old in setting.formerly)}.")
    default = "" if field.is_required() else _default(field)
    cells = (
        f"`{name}`",
        _type(field.annotation, field.metadata).replace("|", "\\|"),
        default.replace("|", "\\|"),
        " ".join(meaning),
        setting.resume if setting else "",
    )
    return "| " + " | ".join(" ".join(cell.split()) for cell in cells) + " |"


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is PydanticUndefined or isinstance(value, BaseModel):
        return "its table's"
    return "none" if value is None else f"`{_toml(value)}`"


def _toml(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case list() | tuple():
            return f"[{', '.join(_toml(each) for each in value)}]"
        case _:
            return str(value)


def _type(annotation: object, metadata: Iterable[object] = ()) -> str:
    """A setting's type as a reader of TOML would say it, with its bounds."""
    bounds = [
        f"{sign}\N{NO-BREAK SPACE}{getattr(each, key):g}"
        for each in metadata
        for key, sign in _BOUNDS.items()
        if hasattr(each, key)
    ]
    return _type_name(annotation) + (f", {', '.join(bounds)}" if bounds else "")


_BOUNDS: Final = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
_NAMES: Final[Mapping[object, str]] = {bool: "boolean", int: "integer", float: "number", str: "text", Path: "path"}


def _type_name(annotation: object) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    match origin or annotation:
        case _ if origin is Literal:
            name = ", ".join(f"`{_toml(value)}`" for value in arguments)
        case _ if origin is Union or origin is UnionType:
            name = " or ".join(dict.fromkeys(_type_name(each) for each in arguments if each is not type(None)))
        case _ if hasattr(annotation, "__metadata__"):
            name = _type_name(arguments[0])
        case type() as kind if issubclass(kind, list | tuple):
            each = _type_name(arguments[0])
            name = f"list of {each}s" if each.isalpha() else f"list of {each}"
        case type() as kind if issubclass(kind, BaseModel | Mapping):
            name = "table"
        case kind:
            name = _NAMES.get(kind, "text")
    return name


def _verbs_page() -> str:
    command = cast(TyperGroup, typer.main.get_command(app))
    parts = [
        "# Verbs\n\n`transduce VERB --help` prints the same. `--debug`, `--quiet` and `--verbose` may stand anywhere."
        " The exit status is 0 where all is done, 1 where something failed, 2 for wrong use or bad input."
    ]
    for name, verb in command.commands.items():
        about = "\n\n".join(" ".join(each.split()) for each in (verb.help or "").split("\n\n"))
        records = _records(verb, cast(Any, verb).context_class(verb, info_name=name))
        rows = [f"| `{spelling.replace('|', chr(92) + '|')}` | {_escape(text)} |" for spelling, text in records]
        parts.append(f"## {name}\n\n{_escape(about)}\n\n| option | meaning |\n|---|---|\n" + "\n".join(rows))
    return "\n\n".join(parts) + "\n"


def _records(verb: Any, context: Any) -> list[tuple[str, str]]:  # noqa: ANN401 - click's, or Typer's own copy of it
    """How each parameter is written, and what it means, as --help has them."""
    found = (parameter.get_help_record(context) for parameter in verb.get_params(context))
    return [(" ".join(name.split()), " ".join(text.split())) for name, text in filter(None, found)]


def _escape(text: str) -> str:
    """What Markdown would read as a sign of its own, as itself."""
    return re.sub(r"([|*_\[])", r"\\\1", text).replace("<", "&lt;")
