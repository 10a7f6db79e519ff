"""The options in a checkpoint of fairseq: ``args`` until 2020, since then ``cfg``, of omegaconf or plain dictionaries.

Of omegaconf's nodes, nothing is made: what was stored of them is looked through one level after the other.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from transduce.config import BadInputError
from transduce.interop.checkpoints import Allowed, opened, stand_ins
from transduce.interop.options import Options


def _make_dictionary(*_: object) -> dict[object, object]:
    """In the place of a dictionary with defaults."""
    return {}


# Beside the weights it keeps its options, and how far the training was.
ALLOWED: Final[Allowed] = {
    **stand_ins(
        "argparse.Namespace",
        "numpy.core.multiarray.scalar",
        "numpy._core.multiarray.scalar",
        "numpy.dtype",
        *(
            f"fairseq.{module}.{name}"
            for module in ("meters", "logging.meters")
            for name in ("AverageMeter", "StopwatchMeter", "TimeMeter")
        ),
        "omegaconf.base.ContainerMetadata",
        "omegaconf.base.Metadata",
        "omegaconf.dictconfig.DictConfig",
        "omegaconf.listconfig.ListConfig",
        *(f"omegaconf.nodes.{kind}Node" for kind in ("Any", "Boolean", "Enum", "Float", "Integer", "String")),
        # The types that its nodes name.
        *(f"builtins.{name}" for name in ("bool", "dict", "float", "int", "list", "str")),
        *(f"typing.{name}" for name in ("Any", "Dict", "List", "Optional", "Union")),
    ),
    "collections.defaultdict": _make_dictionary,
}
# In its newer versions, the options of a model and what they leave to others.
_SECTIONS: Final = ("model", "task", "criterion")


def read_options(stored: Mapping[str, object], path: Path) -> Options:
    """The options of a checkpoint; those in a section of the model's, as ``encoder``, are called ``encoder_layers``.

    Raises:
        BadInputError: There are none.
    """
    sections = [("args.", _flatten(stored.get("args")))]
    configuration = opened(stored.get("cfg"))
    if isinstance(configuration, Mapping):
        sections += [(f"cfg.{name}.", _flatten(configuration.get(name))) for name in _SECTIONS]
    given = tuple((name, values) for name, values in sections if values)
    if not given:
        raise BadInputError(f"{path}: no checkpoint of fairseq: it has neither 'args' nor 'cfg'")
    return Options(path, given)


def _flatten(section: object) -> dict[str, Any]:
    values = opened(section)
    flat: dict[str, Any] = {}
    for name, stored in values.items() if isinstance(values, Mapping) else ():
        value = opened(stored)
        if isinstance(value, Mapping):
            flat |= {f"{name}_{inner}": opened(each) for inner, each in value.items()}
        else:
            flat[str(name)] = value
    return flat
