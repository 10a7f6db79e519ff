"""What a run is: frozen, validated data; published configurations; run files in TOML. Knows no torch.

Names are loaded when first used: the help of the command line needs few, and all of them take a third of a second.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from transduce.config.architectures import ModelConfig, with_vocabularies
    from transduce.config.convolutional import ConvolutionalConfig
    from transduce.config.corpora import Corpus, DataConfig
    from transduce.config.errors import BadInputError, StoppedError, TransduceError
    from transduce.config.generation import GenerationChanges, GenerationConfig, LengthPenaltyKind, Stopping
    from transduce.config.inherit import Inherited
    from transduce.config.metrics import METRICS, Metric, MetricKey
    from transduce.config.model import NormPosition, TransformerConfig
    from transduce.config.presets import PRESETS, PUBLISHED, preset
    from transduce.config.recurrent import RecurrentConfig
    from transduce.config.run import Parallel, Precision, RunConfig, TrainConfig, TrainingPrecision
    from transduce.config.systems import REFERENCE_SIZE, SYSTEMS, System
    from transduce.config.table2 import TABLE2, Table2Row
    from transduce.config.table3 import TABLE3, VARIATIONS, Table3Row, scale_preset, scale_steps
    from transduce.config.tokenizer import SideConfig, SpecialIds, TokenizerConfig, VocabularyConfig
    from transduce.config.toml import read_run, write_run

__all__ = [
    "METRICS",
    "PRESETS",
    "PUBLISHED",
    "REFERENCE_SIZE",
    "SYSTEMS",
    "TABLE2",
    "TABLE3",
    "VARIATIONS",
    "BadInputError",
    "ConvolutionalConfig",
    "Corpus",
    "DataConfig",
    "GenerationChanges",
    "GenerationConfig",
    "Inherited",
    "LengthPenaltyKind",
    "Metric",
    "MetricKey",
    "ModelConfig",
    "NormPosition",
    "Parallel",
    "Precision",
    "RecurrentConfig",
    "RunConfig",
    "SideConfig",
    "SpecialIds",
    "StoppedError",
    "Stopping",
    "System",
    "Table2Row",
    "Table3Row",
    "TokenizerConfig",
    "TrainConfig",
    "TrainingPrecision",
    "TransduceError",
    "TransformerConfig",
    "VocabularyConfig",
    "preset",
    "read_run",
    "scale_preset",
    "scale_steps",
    "with_vocabularies",
    "write_run",
]

# By file.
_NAMES: Final = {
    "architectures": ("ModelConfig", "with_vocabularies"),
    "convolutional": ("ConvolutionalConfig",),
    "corpora": ("Corpus", "DataConfig"),
    "errors": ("BadInputError", "StoppedError", "TransduceError"),
    "generation": ("GenerationChanges", "GenerationConfig", "LengthPenaltyKind", "Stopping"),
    "inherit": ("Inherited",),
    "metrics": ("METRICS", "Metric", "MetricKey"),
    "model": ("NormPosition", "TransformerConfig"),
    "presets": ("PRESETS", "PUBLISHED", "preset"),
    "recurrent": ("RecurrentConfig",),
    "run": ("Parallel", "Precision", "RunConfig", "TrainConfig", "TrainingPrecision"),
    "systems": ("REFERENCE_SIZE", "SYSTEMS", "System"),
    "table2": ("TABLE2", "Table2Row"),
    "table3": ("TABLE3", "VARIATIONS", "Table3Row", "scale_preset", "scale_steps"),
    "tokenizer": ("SideConfig", "SpecialIds", "TokenizerConfig", "VocabularyConfig"),
    "toml": ("read_run", "write_run"),
}
_HOME: Final = {name: file for file, names in _NAMES.items() for name in names}

if not TYPE_CHECKING:  # a type checker would take any name for one of these

    def __getattr__(name: str) -> Any:  # noqa: ANN401 - see the block above
        """Load a name, or a file, on its first use (PEP 562)."""
        if name in _NAMES:
            return import_module(f"{__name__}.{name}")
        if name in _HOME:
            return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
