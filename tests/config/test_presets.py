import pytest
from pydantic import ValidationError

from transduce.config import PRESETS, preset


def test_base_is_the_base_model_of_the_paper():
    # Vaswani et al. 2017, Table 3, row "base"; sections 3.1, 3.2.2, 3.5 and 5.4.
    assert PRESETS["base"].model_dump() == {
        "encoder_layers": 6,
        "decoder_layers": 6,
        "d_model": 512,
        "d_ff": 2048,
        "heads": 8,
        "d_k": 64,
        "d_v": 64,
        "dropout": 0.1,
        "label_smoothing": 0.1,
        "vocab_size": 37_000,
        "source_vocab_size": None,
        "positions": "sinusoidal",
        "sinusoid_layout": "interleaved",
        "norm": "post",
        "norm_epsilon": 1e-6,
        "attention_bias": False,
    }


def differences(name):
    base = PRESETS["base"].model_dump()
    return {field: value for field, value in PRESETS[name].model_dump().items() if value != base[field]}


def test_big_differs_from_base_as_in_table_3():
    # d_k and d_v are 64 in both rows: twice the width for twice the heads.
    assert differences("big") == {"d_model": 1024, "d_ff": 4096, "heads": 16, "dropout": 0.3}


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
