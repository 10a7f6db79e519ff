"""Published configurations as data: each preset is what it changes of ``base``."""

from collections.abc import Mapping
from types import MappingProxyType

from transduce.config.model import ModelConfig

# Each row names its source; a reader can diff it from `base` with `transduce inspect NAME --json`.
_CHANGES: dict[str, dict[str, object]] = {
    # Vaswani et al. 2017, Table 3.
    "base": {},
    "big": {"d_model": 1024, "d_ff": 4096, "heads": 16, "dropout": 0.3},
    # The size that published Multi30k results use (4 layers, 128/256, 4 heads).
    "tiny": {"encoder_layers": 4, "decoder_layers": 4, "d_model": 128, "d_ff": 256, "heads": 4},
}


def preset(name: str, changes: Mapping[str, object] = MappingProxyType({})) -> ModelConfig:
    """The preset of that name with further changes; widths of heads that neither names follow ``d_model / heads``.

    Raises:
        KeyError: There is no such preset.
        pydantic.ValidationError: The changes do not fit.
    """
    return ModelConfig.model_validate({**_CHANGES[name], **changes})


PRESETS: Mapping[str, ModelConfig] = MappingProxyType({name: preset(name) for name in _CHANGES})
