"""The architectures that there are: each has a settings section of its own, told apart by its field ``architecture``.

A further architecture adds its section to ``ModelConfig`` and ``SECTIONS``, and a line to ``models.build``. A section
has the fields ``architecture``, ``vocab_size``, ``source_vocab_size`` and ``label_smoothing``, and the properties
``longest``, ``least_tensors`` and ``summary``: the type checker finds one that has not.
"""

from collections.abc import Mapping
from typing import Final, cast

from pydantic import ValidationError
from pydantic_core import InitErrorDetails

from transduce.config.convolutional import ConvolutionalConfig
from transduce.config.errors import BadInputError
from transduce.config.model import TransformerConfig
from transduce.config.recurrent import RecurrentConfig

ModelConfig = TransformerConfig | ConvolutionalConfig | RecurrentConfig

SECTIONS: Final[Mapping[str, type[ModelConfig]]] = {
    "transformer": TransformerConfig,
    "convolutional": ConvolutionalConfig,
    "recurrent": RecurrentConfig,
}
_DEFAULT: Final = "transformer"  # files older than the field do not say it


def model_section(values: object) -> type[ModelConfig]:
    """The section that a table of model settings is of.

    Raises:
        pydantic.ValidationError: There is no such architecture.
    """
    name = values.get("architecture", _DEFAULT) if isinstance(values, dict) else _DEFAULT
    if isinstance(name, str) and name in SECTIONS:
        return SECTIONS[name]
    expected = " or ".join(map(repr, SECTIONS))
    error = InitErrorDetails(type="literal_error", loc=("architecture",), input=name, ctx={"expected": expected})
    raise ValidationError.from_exception_data("model", [error])


def read_model(values: object) -> ModelConfig:
    """A table of model settings as a section; a section stays as it is.

    Raises:
        pydantic.ValidationError: There is no such architecture, or keys or values are wrong.
    """
    if isinstance(values, tuple(SECTIONS.values())):
        return cast(ModelConfig, values)
    return model_section(values).model_validate(values)


def with_vocabularies(config: ModelConfig, sizes: Mapping[str, int | None]) -> ModelConfig:
    """The same model for vocabularies of these sizes, ``vocab_size`` and, where the source has its own, its.

    Raises:
        BadInputError: It cannot have them: one matrix cannot embed the symbols of two vocabularies.
    """
    try:
        return read_model({**config.model_dump(mode="json"), **sizes})
    except ValidationError as error:
        raise BadInputError(
            *(f"model: {each['msg'].removeprefix('Value error, ')}" for each in error.errors())
        ) from None
