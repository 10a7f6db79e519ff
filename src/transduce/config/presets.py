"""Published configurations as data: what each changes of the base model, or of another architecture's defaults."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, final

from transduce.config.architectures import ModelConfig, read_model

Changes = Mapping[str, Any]


@final
@dataclass(frozen=True)
class Published:
    """A published configuration.

    ``meaning`` names its source and what its values mean; ``model`` is what it changes of the base model, or of the
    defaults of the ``architecture`` that it names; ``regime`` what it changes of the run file's other sections.
    """

    meaning: str
    model: Changes = field(default_factory=dict)
    regime: Mapping[str, Changes] = field(default_factory=dict)


def _table3(row: str, **model: object) -> Published:
    return Published(f"Vaswani et al. 2017, Table 3, {row}", model)


# Table 3 gives the big model 300,000 steps; section 6.1 averages 20 of its checkpoints, for the test sets alone: of
# Table 3, section 6.2 says that nothing is averaged.
_BIG: Final[Changes] = {"d_model": 1024, "d_ff": 4096, "heads": 16}
_BIG_TRAIN: Final[Changes] = {"max_steps": 300_000, "average_last": 20, "keep_checkpoints": 20}

# Section 5.1 has "a 32000 word-piece vocabulary" for English to French. One for each side, with its own embedding, is a
# common reading; one for both, which the matrix shared in section 3.4 speaks for, is in recipes/wmt14-en-fr-*.toml.
_ENFR: Final[Changes] = {"vocab_size": 32_000, "source_vocab_size": 32_000}
_WORD_PIECES: Final[Changes] = {"kind": "wordpiece", "vocab_size": 32_000, "source": {}, "target": {}}

# What tensor2tensor's models have in common and the paper's formulas have not.
_T2T: Final[Changes] = {"sinusoid_layout": "concatenated", "sinusoid_range": "closed", "initializer": "unit_scaling"}
_T2T_V2: Final[Changes] = {**_T2T, "norm": "pre", "attention_dropout": 0.1, "activation_dropout": 0.1}
_T2T_V2_TRAIN: Final[Changes] = {"learning_rate_factor": 2.0, "warmup_steps": 8000}
_T2T_V3_TRAIN: Final[Changes] = {**_T2T_V2_TRAIN, "adam_beta2": 0.997}

# Channels, kernel width, layers.
_CONVS2S: Final = ((512, 3, 9), (1024, 3, 4), (2048, 1, 2))

PUBLISHED: Final[Mapping[str, Published]] = MappingProxyType(
    {
        "base": _table3("row base"),
        "big": Published(
            "Vaswani et al. 2017, Table 3, row big; the mean of 20 checkpoints is section 6.1's, for the test sets",
            {**_BIG, "dropout": 0.3},
            {"train": _BIG_TRAIN},
        ),
        "tiny": Published(
            "the size of published Multi30k results: 4 layers of 128/256, 4 heads",
            {"encoder_layers": 4, "decoder_layers": 4, "d_model": 128, "d_ff": 256, "heads": 4},
        ),
        "table3-a-h1": _table3("row (A), 1 head at the same cost", heads=1),
        "table3-a-h4": _table3("row (A), 4 heads at the same cost", heads=4),
        "table3-a-h16": _table3("row (A), 16 heads at the same cost", heads=16),
        "table3-a-h32": _table3("row (A), 32 heads at the same cost", heads=32),
        "table3-b-dk16": _table3("row (B), keys of width 16", d_k=16),
        "table3-b-dk32": _table3("row (B), keys of width 32", d_k=32),
        "table3-c-n2": _table3("row (C), 2 layers", encoder_layers=2, decoder_layers=2),
        "table3-c-n4": _table3("row (C), 4 layers", encoder_layers=4, decoder_layers=4),
        "table3-c-n8": _table3("row (C), 8 layers", encoder_layers=8, decoder_layers=8),
        "table3-c-d256": _table3("row (C), d_model 256, heads of width 32", d_model=256),
        "table3-c-d1024": _table3("row (C), d_model 1024, heads of width 128", d_model=1024),
        "table3-c-ff1024": _table3("row (C), d_ff 1024", d_ff=1024),
        "table3-c-ff4096": _table3("row (C), d_ff 4096", d_ff=4096),
        "table3-d-drop0.0": _table3("row (D), no dropout", dropout=0.0),
        "table3-d-drop0.2": _table3("row (D), dropout 0.2", dropout=0.2),
        "table3-d-ls0.0": _table3("row (D), no label smoothing", label_smoothing=0.0),
        "table3-d-ls0.2": _table3("row (D), label smoothing 0.2", label_smoothing=0.2),
        "table3-e": _table3("row (E), learned positions instead of sinusoids", positions="learned"),
        "aop1": Published(
            "Vaswani et al. 2017, supplementary section on attention over parameters, AOP_1: 8 heads of 1,536 keys",
            {"feed_forward": "parameter_attention"},
        ),
        "aop2": Published(
            "Vaswani et al. 2017, supplementary section on attention over parameters, AOP_2: 16 heads of 512 keys "
            "(its table; its text says 8 heads, which would not have as many parameters as the base model)",
            {"feed_forward": "parameter_attention", "parameter_heads": 16, "parameter_keys": 512},
        ),
        "base-enfr": Published(
            "Vaswani et al. 2017, section 5.1: English to French, 32,000 word pieces; a vocabulary for each side is "
            "a reading of it",
            _ENFR,
            {"tokenizer": _WORD_PIECES},
        ),
        "big-enfr": Published(
            "Vaswani et al. 2017, section 6.1: English to French, dropout 0.1 in place of 0.3; its vocabularies are "
            "base-enfr's",
            {**_BIG, **_ENFR, "dropout": 0.1},
            {"tokenizer": _WORD_PIECES, "train": _BIG_TRAIN},
        ),
        "parsing": Published(
            "Vaswani et al. 2017, section 6.3, Wall Street Journal only: 4 layers of d_model 1024, 16,000 symbols; "
            "beam 21, alpha 0.3, outputs of at most 300 symbols more than the input",
            {"encoder_layers": 4, "decoder_layers": 4, "d_model": 1024, "vocab_size": 16_000},
            {
                "tokenizer": {"vocab_size": 16_000},
                "generation": {"beam_size": 21, "length_penalty": 0.3, "max_extra_length": 300},
            },
        ),
        "parsing-semi": Published(
            "Vaswani et al. 2017, section 6.3, semi-supervised: as parsing with 32,000 symbols, for about 17 million "
            "sentences whose trees other parsers have written",
            {"encoder_layers": 4, "decoder_layers": 4, "d_model": 1024, "vocab_size": 32_000},
            {
                "tokenizer": {"vocab_size": 32_000},
                "generation": {"beam_size": 21, "length_penalty": 0.3, "max_extra_length": 300},
            },
        ),
        "parsing-small": Published(
            "small treebanks, of some ten thousand trees, written with words and kept tags: found on dev of GUM "
            "(docs/notebook/parsing.md)",
            {
                **{"encoder_layers": 4, "decoder_layers": 3, "d_model": 256, "d_ff": 1024, "heads": 8},
                **{"norm": "pre", "dropout": 0.25, "vocab_size": 4000},
            },
            {
                "tokenizer": {"vocab_size": 4000},
                "train": {
                    **{"batch_tokens": 1500, "learning_rate": 0.0015, "warmup_steps": 600},
                    **{"max_steps": 17_000, "cooldown_steps": 6000},
                },
                "generation": {"beam_size": 4, "max_extra_length": 1000},
            },
        ),
        "t2t-base-v1": Published(
            "tensor2tensor, transformer_base_v1, the published version in its code: norm after the sum "
            "(layer_postprocess_sequence 'dan'), dropout 0.1 on sub-layers and embeddings alone "
            "(layer_prepostprocess_dropout), warm-up 4,000, learning_rate 0.1, which is a factor of 1 (the schedule "
            "multiplies it with 5,000 and, for Adam, 0.002); all sines before all cosines, the longest wave "
            "10000 2 pi (timing signal), weights uniform up to sqrt(3 / inputs) (uniform_unit_scaling)",
            _T2T,
        ),
        "t2t-base-v2": Published(
            "tensor2tensor, transformer_base_v2: v1 with the norm in front (layer_preprocess_sequence 'n'), "
            "attention_dropout 0.1, relu_dropout 0.1, warm-up 8,000, learning_rate 0.2, which is a factor of 2",
            _T2T_V2,
            {"train": _T2T_V2_TRAIN},
        ),
        "t2t-base-v3": Published(
            "tensor2tensor, transformer_base_v3: v2 with optimizer_adam_beta2 0.997; learning_rate_constant 2.0 is "
            "v2's rate in the words of a newer schedule",
            _T2T_V2,
            {"train": _T2T_V3_TRAIN},
        ),
        "t2t-parsing": Published(
            "tensor2tensor, transformer_parsing_base: v3 with hidden_size 1024, attention_dropout 0.2, "
            "layer_prepostprocess_dropout 0.2, max_length 512, warm-up 16,000, learning_rate 0.05, which is a factor "
            "of 0.5 (the newer schedule no longer reads it), no embedding shared; six layers where the paper has four",
            {
                **_T2T_V2,
                "d_model": 1024,
                "dropout": 0.2,
                "attention_dropout": 0.2,
                "vocab_size": 16_000,
                "source_vocab_size": 16_000,
                "tied_projection": False,
            },
            {
                "data": {"max_length": 512},
                "tokenizer": {"vocab_size": 16_000, "source": {}, "target": {}},
                "train": {**_T2T_V3_TRAIN, "learning_rate_factor": 0.5, "warmup_steps": 16_000},
            },
        ),
        "convs2s": Published(
            "Gehring et al. 2017, WMT'14 English-German: fairseq's fconv_wmt_en_de, 15 + 15 layers, embeddings of 768, "
            "hidden states of 512 before the output, 40,000 BPE symbols, no label smoothing",
            {
                **{"architecture": "convolutional", "network": "convs2s", "vocab_size": 40_000, "label_smoothing": 0.0},
                **{"embedding_width": 768, "output_width": 512},
                **{"encoder_convolutions": _CONVS2S, "decoder_convolutions": _CONVS2S},
            },
            {"tokenizer": {"vocab_size": 40_000}},
        ),
        "bytenet": Published(
            "Kalchbrenner et al. 2017, character-level WMT'14 English-German: 30 + 30 residual blocks, d 800, "
            "dilations 1 to 16, |t^| = 1.2 |s|, no label smoothing. Chosen here: pairs of up to 1,000 characters a "
            "side",
            {
                **{"architecture": "convolutional", "network": "bytenet", "label_smoothing": 0.0},
                **{"vocab_size": 500, "source_vocab_size": 500},
            },
            {
                "data": {"max_length": 1000},
                "tokenizer": {"kind": "characters", "vocab_size": 500, "source": {}, "target": {}},
                "generation": {"max_extra_length": 1000},
            },
        ),
        "rnnsearch": Published(
            "Bahdanau et al. 2015, RNNsearch: an encoder of both directions and a decoder of 1,000 GRU units each, "
            "embeddings of 620, an attention of 1,000 units, a maxout layer of 500 behind it, 30,000 words a side; "
            "trained without dropout and label smoothing. Its decoder begins from the last state of the direction that "
            "reads backwards, and its maxout layer reads the state before the step; here from those of both, and the "
            "step's own. The candidate of its GRU is tanh(W x + U (r * h)); here it is PyTorch's, tanh(W x + b + r * "
            "(U h + b')). Its embeddings are read as they are; here times sqrt(620)",
            {
                **{"architecture": "recurrent", "cell": "gru", "embedding_size": 620, "hidden_size": 1000},
                **{"attention_size": 1000, "readout": "maxout", "readout_size": 500, "tied_projection": False},
                **{"dropout": 0.0, "label_smoothing": 0.0, "vocab_size": 30_000, "source_vocab_size": 30_000},
            },
            {"tokenizer": {"kind": "words", "vocab_size": 30_000, "source": {}, "target": {}}},
        ),
        "gnmt": Published(
            "Wu et al. 2016, GNMT: 8 + 8 layers of 1,024 LSTM units, the encoder's first of both directions, residual "
            "connections from the third on, 32,000 word pieces, dropout 0.2 (English to French; 0.3 to German); "
            "trained without label smoothing. Its bottom layer's state of the step before asks, and its decoder begins "
            "from zeros; here the step's own state asks, and it begins from the encoder's last. Its embeddings are "
            "read as they are; here times sqrt(1024)",
            {
                **{"architecture": "recurrent", "encoder_layers": 8, "decoder_layers": 8, "embedding_size": 1024},
                **{"hidden_size": 1024, "directions": "first", "residual_from": 3, "attention": "gnmt"},
                **{"attention_size": 1024, "readout": "state", "tied_projection": False, "label_smoothing": 0.0},
                "vocab_size": 32_000,
            },
            {"tokenizer": {"kind": "wordpiece", "vocab_size": 32_000}},
        ),
        "deep-att": Published(
            "Zhou et al. 2016, Deep-Att, WMT'14 English-French: fast-forward connections, an interleaved encoder of "
            "two times 9 layers, a decoder of 7, embeddings of 256, 512 LSTM units, dropout 0.1, attention as "
            "Bahdanau et al.'s, no label smoothing. Chosen here: an attention of 512 units, a readout of 512 that sees "
            "what the top layer hands on, and 30,000 words a side. "
            "Its attention reads the encoder's outputs, with all of f, through a map to a quarter, 1,280 numbers; here "
            "it sees half of f, 3,072 numbers. Its embeddings are read as they are; here times sqrt(256)",
            {
                **{"architecture": "recurrent", "encoder_layers": 9, "decoder_layers": 7, "embedding_size": 256},
                **{"hidden_size": 512, "directions": "interleaved", "fast_forward": True, "attention_size": 512},
                **{"readout_size": 512, "tied_projection": False, "dropout": 0.1, "label_smoothing": 0.0},
                **{"vocab_size": 30_000, "source_vocab_size": 30_000},
            },
            {"tokenizer": {"kind": "words", "vocab_size": 30_000, "source": {}, "target": {}}},
        ),
        "moe": Published(
            "Shazeer et al. 2017, appendix E, MoE-32: GNMT with 3 + 2 layers of width 512 and, in each stack, 32 "
            "experts of 2,048 units below the top layer, 4 for each symbol, w_importance and w_load 0.01, dropout "
            "0.4, 32,000 word pieces. Its cells have 2,048 units, projected to 512, where these have 512; its gate "
            "for a single pair of languages is balanced strictly (appendix F), where this one is its section 2.1's; "
            "residual connections around recurrent layers begin at the third here, where all of its have one; its "
            "attention multiplies two tanh (appendix G), where this one is GNMT's, of one tanh of a sum; its "
            "embeddings are read as they are, here times sqrt(512)",
            {
                **{"architecture": "recurrent", "encoder_layers": 3, "decoder_layers": 2, "embedding_size": 512},
                **{"hidden_size": 512, "directions": "first", "residual_from": 3, "attention": "gnmt"},
                **{"readout": "state", "tied_projection": False, "dropout": 0.4, "label_smoothing": 0.0},
                **{"feed_forward": "mixture_of_experts", "d_ff": 2048, "experts": 32, "experts_per_token": 4},
                **{"importance_loss": 0.01, "load_loss": 0.01, "vocab_size": 32_000},
            },
            {"tokenizer": {"kind": "wordpiece", "vocab_size": 32_000}},
        ),
    }
)


def preset(name: str, changes: Changes = MappingProxyType({})) -> ModelConfig:
    """The preset of that name with further changes; widths of heads that neither names follow ``d_model / heads``.

    Raises:
        KeyError: There is no such preset.
        pydantic.ValidationError: The changes do not fit.
    """
    return read_model({**PUBLISHED[name].model, **changes})


PRESETS: Final[Mapping[str, ModelConfig]] = MappingProxyType({name: preset(name) for name in PUBLISHED})
