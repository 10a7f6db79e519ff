"""The systems that are compared as in the paper's Table 2: each an architecture whose size is still to be chosen."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

from transduce.config.architectures import ModelConfig, read_model
from transduce.config.corpora import DataConfig
from transduce.config.presets import PUBLISHED, Changes

# As many as a side of a training pair may have symbols.
POSITIONS: Final = DataConfig.model_fields["max_length"].default


@final
@dataclass(frozen=True)
class System:
    """A system of the comparison.

    ``section`` is the [model] section of each size, a whole number from 1 on: the larger, the more parameters.
    ``stands_for`` is the system of Table 2 whose architecture it has; ``peak_rate`` the highest learning rate.
    """

    name: str
    meaning: str
    section: Callable[[int], Changes]
    peak_rate: float
    stands_for: str | None = None

    def model(self, size: int, positions: int = POSITIONS) -> ModelConfig:
        """Its configuration of a size; of so many positions, where it learns them: nothing would train more of them."""
        section = self.section(size)
        return read_model({**section, "max_positions": positions} if "max_positions" in section else section)


# All others are made as large as this one is at size 32: ``tiny``, with the norm in front as in the quick recipe.
REFERENCE_SIZE: Final = 32


def _transformer(size: int, **changes: object) -> Changes:
    return {**PUBLISHED["tiny"].model, "d_model": 4 * size, "d_ff": 8 * size, "norm": "pre", **changes}


def _convs2s(size: int) -> Changes:
    widths = {"embedding_width": size, "output_width": size, "shared_embedding": True, "tied_projection": True}
    layers = {"encoder_convolutions": [[size, 3, 4]], "decoder_convolutions": [[size, 3, 3]]}
    return {"architecture": "convolutional", "network": "convs2s", **widths, **layers, "max_positions": POSITIONS}


def _bytenet(size: int) -> Changes:
    blocks = {"channels": size, "encoder_blocks": 5, "decoder_blocks": 5}  # dilations 1 to 16 once
    embeddings = {"shared_embedding": True, "tied_projection": True}
    return {"architecture": "convolutional", "network": "bytenet", **blocks, **embeddings}


def _recurrent(size: int, **changes: object) -> Changes:
    layers = {"encoder_layers": 4, "decoder_layers": 4, "directions": "first", "residual_from": 3, "readout": "state"}
    return {"architecture": "recurrent", "embedding_size": size, "hidden_size": size, **layers, **changes}


def _deep_att(size: int) -> Changes:
    layers = {"encoder_layers": 4, "decoder_layers": 3, "fast_forward": True, "directions": "interleaved"}
    attention = {"attention": "bahdanau", "attention_size": size, "readout": "tanh"}
    return _recurrent(size, **layers, residual_from=None, **attention)


_UNIFORM: Final[Changes] = {
    "decoder_self_attention": "average",
    "average_feed_forward": False,
    "average_gate": False,
}


def _mixture(size: int) -> Changes:
    layers = {"encoder_layers": 3, "decoder_layers": 2, "attention": "gnmt", "attention_size": size}
    losses = {"importance_loss": 0.01, "load_loss": 0.01}  # the paper's, in translation
    return _recurrent(size, **layers, feed_forward="mixture_of_experts", d_ff=2 * size, **losses)


SYSTEMS: Final = (
    System(
        "transformer",
        "4 + 4 layers, 4 heads, norm in front of the sub-layers",
        _transformer,
        0.0063,
        "Transformer (base model)",
    ),
    System(
        "bytenet",
        "5 + 5 residual blocks of kernels of 3, dilations 1 to 16 (Kalchbrenner et al. 2017), one vocabulary of pieces",
        _bytenet,
        0.003,
        "ByteNet",
    ),
    System(
        "deep-att",
        "fast-forward connections, two times 4 layers of LSTM that read from the left and from the right by turns, 3 "
        "layers that write, additive attention by the lowest of these (Zhou et al. 2016)",
        _deep_att,
        0.004,
        "Deep-Att + PosUnk",
    ),
    System(
        "gnmt",
        "4 + 4 layers of LSTM, the first of which reads both ways, residual connections from the third on, additive "
        "attention by the bottom layer of the decoder (Wu et al. 2016), trained by likelihood alone",
        lambda size: _recurrent(size, attention="gnmt", attention_size=size),
        0.004,
        "GNMT + RL",
    ),
    System(
        "no-attention",
        "the same without attention: the source as one vector (Cho et al. 2014)",
        lambda size: _recurrent(size, attention="none"),
        0.004,
    ),
    System(
        "convs2s",
        "4 + 3 gated convolutions of kernels of 3, attention in every decoder layer (Gehring et al. 2017)",
        _convs2s,
        0.006,
        "ConvS2S",
    ),
    System(
        "moe",
        "3 + 2 layers of LSTM, GNMT's attention, and in each stack a mixture of 8 experts below the top layer, two for "
        "each symbol (Shazeer et al. 2017)",
        _mixture,
        0.004,
        "MoE",
    ),
    System(
        "single-head",
        "the Transformer with one head as wide as the four",
        lambda size: _transformer(size, heads=1),
        0.0063,
    ),
    System(
        "average-attention",
        "the Transformer whose decoder's self-attention is the mean of the past, then a feed-forward network and gates "
        "(Zhang et al. 2018)",
        lambda size: _transformer(32, d_ff=size, decoder_self_attention="average"),
        0.0063,
    ),
    System(
        "uniform-attention",
        "the same without that network and without gates: the decoder's self-attention has uniform weights over the "
        "past, and no parameters",
        lambda size: _transformer(32, d_ff=size, **_UNIFORM),
        0.0063,
    ),
)
