"""What a run is: frozen, validated data; published configurations; run files in TOML. Knows no torch."""

from transduce.config.architectures import ModelConfig
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
    "write_run",
]
