"""Sequence transduction with attention: the Transformer of "Attention Is All You Need", from text to a running model.

>>> import transduce
>>> transduce.train("multi30k.toml")
>>> translator = transduce.load("runs/multi30k")
>>> translator.translate(["A dog runs."])[0].text

Names are loaded when first used, so that ``import transduce`` costs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from transduce.version import __version__

if TYPE_CHECKING:
    from transduce import bundle, config, data, evaluation, inference, models, search, text, training, viewing
    from transduce.config import BadInputError, StoppedError, TransduceError
    from transduce.inference import Translation, Translator, load
    from transduce.models import Transformer
    from transduce.workflows.trained import Trained, train

__all__ = [
    "BadInputError",
    "StoppedError",
    "Trained",
    "TransduceError",
    "Transformer",
    "Translation",
    "Translator",
    "__version__",
    "bundle",
    "config",
    "data",
    "evaluation",
    "inference",
    "load",
    "models",
    "search",
    "text",
    "train",
    "training",
    "viewing",
]

_HOME = {
    "BadInputError": "transduce.config",
    "StoppedError": "transduce.config",
    "Trained": "transduce.workflows.trained",
    "TransduceError": "transduce.config",
    "Transformer": "transduce.models",
    "Translation": "transduce.inference",
    "Translator": "transduce.inference",
    "load": "transduce.inference",
    "train": "transduce.workflows.trained",
}

_ROOMS = {"bundle", "config", "data", "evaluation", "inference", "models", "search", "text", "training", "viewing"}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - what a lazy name holds is known to the TYPE_CHECKING block above
    """Load a public name from its room on first use (PEP 562)."""
    if name in _ROOMS:  # `transduce.config.PRESETS` works without an import of its own
        return import_module(f"transduce.{name}")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
