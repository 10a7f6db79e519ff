"""A trained model for other runtimes."""

from pathlib import Path
from typing import Literal, assert_never

from transduce.bundle import load_bundle
from transduce.interop import export_ctranslate2

Runtime = Literal["ctranslate2"]


def export_model(model: Path, to: Runtime, out: Path) -> None:
    """Write a model or run directory in the form of another runtime.

    Raises:
        BadInputError: ``model`` is no model directory, the runtime has no such model, or something stands at ``out``.
        TransduceError: The runtime's library is not installed.
    """
    bundle = load_bundle(model)
    match to:
        case "ctranslate2":
            export_ctranslate2(bundle, out)
        case _:
            assert_never(to)
