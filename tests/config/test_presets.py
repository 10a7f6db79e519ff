import pytest
from pydantic import ValidationError

from transduce.config import PRESETS, PUBLISHED, preset


def test_base_is_the_base_model_of_the_paper():
    # Vaswani et al. 2017, Table 3, row "base"; sections 3.1, 3.2, 3.3, 3.4, 3.5 and 5.4.
    assert PRESETS["base"].model_dump() == {
        "architecture": "transformer",
        "encoder_layers": 6,
        "decoder_layers": 6,
        "d_model": 512,
        "d_ff": 2048,
        "heads": 8,
        "d_k": 64,
        "d_v": 64,
        "dropout": 0.1,
        "embedding_dropout": 0.1,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "label_smoothing": 0.1,
        "vocab_size": 37_000,
        "source_vocab_size": None,
        "tied_projection": True,
        "source_end": True,
        "output_bias": False,
        "embedding_norm": False,
        "scale_embedding": True,
        "positions": "sinusoidal",
        "position_combination": "add",
        "positions_at_every_layer": False,
        "sinusoid_layout": "interleaved",
        "sinusoid_range": "open",
        "sinusoid_start": 0,
        "max_positions": 1024,
        "max_relative_distance": 16,
        "compatibility": "scaled_dot_product",
        "attention_window": None,
        "attention_bias": False,
        "feed_forward": "mlp",
        "activation": "relu",
        "feed_forward_bias": True,
        "parameter_heads": 8,
        "parameter_d_k": 64,
        "parameter_d_v": 64,
        "parameter_keys": 1536,
        "decoder_self_attention": "multi_head",
        "average_feed_forward": True,
        "average_gate": True,
        "experts": 8,
        "experts_per_token": 2,
        "expert_noise": True,
        "importance_loss": 0.1,
        "load_loss": 0.1,
        "expert_balance": "batch",
        "norm": "post",
        "final_norm": False,
        "norm_epsilon": 1e-6,
        "residual": True,
        "initializer": "glorot_uniform",
    }


def differences(name):
    base = PRESETS["base"].model_dump()
    return {field: value for field, value in PRESETS[name].model_dump().items() if value != base[field]}


SOURCES = ("Vaswani et al. 2017", "tensor2tensor", "Gehring et al. 2017", "Kalchbrenner et al. 2017")
RECURRENT_SOURCES = ("Bahdanau et al. 2015", "Wu et al. 2016", "Zhou et al. 2016", "Shazeer et al. 2017")
BIG = {"d_model": 1024, "d_ff": 4096, "heads": 16}
T2T = {"sinusoid_layout": "concatenated", "sinusoid_range": "closed", "initializer": "unit_scaling"}
T2T_V2 = T2T | {"norm": "pre", "final_norm": True, "attention_dropout": 0.1, "activation_dropout": 0.1}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # d_k and d_v are 64 in both rows: twice the width for twice the heads.
        ("big", BIG | {"dropout": 0.3, "embedding_dropout": 0.3}),
        ("table3-a-h1", {"heads": 1, "d_k": 512, "d_v": 512}),
        ("table3-a-h4", {"heads": 4, "d_k": 128, "d_v": 128}),
        ("table3-a-h16", {"heads": 16, "d_k": 32, "d_v": 32}),
        ("table3-a-h32", {"heads": 32, "d_k": 16, "d_v": 16}),
        ("table3-b-dk16", {"d_k": 16}),
        ("table3-b-dk32", {"d_k": 32}),
        ("table3-c-n2", {"encoder_layers": 2, "decoder_layers": 2}),
        ("table3-c-n4", {"encoder_layers": 4, "decoder_layers": 4}),
        ("table3-c-n8", {"encoder_layers": 8, "decoder_layers": 8}),
        ("table3-c-d256", {"d_model": 256, "d_k": 32, "d_v": 32}),
        ("table3-c-d1024", {"d_model": 1024, "d_k": 128, "d_v": 128}),
        ("table3-c-ff1024", {"d_ff": 1024}),
        ("table3-c-ff4096", {"d_ff": 4096}),
        ("table3-d-drop0.0", {"dropout": 0.0, "embedding_dropout": 0.0}),
        ("table3-d-drop0.2", {"dropout": 0.2, "embedding_dropout": 0.2}),
        ("table3-d-ls0.0", {"label_smoothing": 0.0}),
        ("table3-d-ls0.2", {"label_smoothing": 0.2}),
        ("table3-e", {"positions": "learned"}),
        ("aop1", {"feed_forward": "parameter_attention"}),
        ("aop2", {"feed_forward": "parameter_attention", "parameter_heads": 16, "parameter_keys": 512}),
        ("base-enfr", {"vocab_size": 32_000, "source_vocab_size": 32_000}),
        ("big-enfr", BIG | {"vocab_size": 32_000, "source_vocab_size": 32_000}),
        (
            "parsing",
            {
                "encoder_layers": 4,
                "decoder_layers": 4,
                "d_model": 1024,
                "d_k": 128,
                "d_v": 128,
                "vocab_size": 16_000,
            },
        ),
        ("t2t-base-v1", T2T),
        ("t2t-base-v2", T2T_V2),
        ("t2t-base-v3", T2T_V2),
        (
            "t2t-parsing",
            T2T_V2
            | {
                "d_model": 1024,
                "d_k": 128,
                "d_v": 128,
                "dropout": 0.2,
                "embedding_dropout": 0.2,
                "attention_dropout": 0.2,
                "vocab_size": 16_000,
                "source_vocab_size": 16_000,
                "tied_projection": False,
            },
        ),
    ],
)
def test_a_preset_differs_from_base_as_published(name, expected):
    assert differences(name) == expected


@pytest.mark.parametrize(
    ("name", "regime"),
    [
        ("base", {}),
        ("big", {"train": {"max_steps": 300_000, "average_last": 20, "keep_checkpoints": 20}}),
        ("t2t-base-v1", {}),
        ("t2t-base-v2", {"train": {"learning_rate_factor": 2.0, "warmup_steps": 8000}}),
        ("t2t-base-v3", {"train": {"learning_rate_factor": 2.0, "warmup_steps": 8000, "adam_beta2": 0.997}}),
    ],
)
def test_a_preset_brings_its_regime(name, regime):
    assert PUBLISHED[name].regime == regime


@pytest.mark.parametrize("name", ["convs2s", "bytenet"])
def test_a_preset_of_another_architecture_differs_from_its_own_defaults(name):
    config = PRESETS[name]
    assert config.architecture == "convolutional"
    assert config.network == name
    changed = {field for field, value in config.model_dump().items() if value != type(config)().model_dump()[field]}
    sizes = {"embedding_width", "encoder_convolutions", "decoder_convolutions", "vocab_size"}
    own = sizes if name == "convs2s" else {"network", "vocab_size", "source_vocab_size"}
    assert changed == own | {"label_smoothing"}


def test_a_recurrent_preset_has_its_published_sizes():
    rnnsearch, gnmt = PRESETS["rnnsearch"], PRESETS["gnmt"]
    assert rnnsearch.summary == "1 + 1 layers of GRU, hidden 1,000"
    assert (rnnsearch.readout_size, rnnsearch.memory_size, rnnsearch.embedding_dropout) == (500, 2000, 0)
    assert gnmt.summary == "8 + 8 layers of LSTM, hidden 1,024"
    assert (gnmt.readout_size, gnmt.memory_size, gnmt.readout_dropout) == (1024, 1024, 0)
    deep_att, moe = PRESETS["deep-att"], PRESETS["moe"]
    assert deep_att.summary == "9 + 7 layers of LSTM, hidden 512"
    # Of both stacks, the top layer's state and what its connection hands on.
    assert (deep_att.readout_size, deep_att.memory_size, deep_att.embedding_dropout) == (512, 6 * 512, 0.1)
    assert moe.summary == "3 + 2 layers of LSTM, hidden 512, 32 experts of 2,048"
    places = [number for number in (1, 2, 3) if moe.has_experts_below(number, 3)]
    assert (places, moe.has_experts_below(2, 2)) == ([3], True)


def test_all_presets_say_where_they_are_from():
    assert all(
        published.meaning.startswith(SOURCES + RECURRENT_SOURCES) or name in {"tiny", "parsing-small"}
        for name, published in PUBLISHED.items()
    )


def test_tiny_differs_from_base():
    assert differences("tiny") == {
        "encoder_layers": 4,
        "decoder_layers": 4,
        "d_model": 128,
        "d_ff": 256,
        "heads": 4,
        "d_k": 32,
        "d_v": 32,
    }


def test_changes_of_a_preset_derive_the_head_widths_again():
    config = preset("tiny", {"d_model": 192, "heads": 3})
    assert (config.d_k, config.d_v, config.d_ff) == (64, 64, 256)


def test_changes_that_do_not_fit_are_refused():
    with pytest.raises(ValidationError, match="heads = 7 does not divide d_model = 128"):
        preset("tiny", {"heads": 7})


def test_presets_cannot_be_replaced():
    with pytest.raises(TypeError):
        PRESETS["base"] = PRESETS["big"]


def test_there_is_no_such_preset():
    with pytest.raises(KeyError, match="huge"):
        preset("huge")
