import pytest
from pydantic import ValidationError

from transduce.config import TransformerConfig
from transduce.config.section import show_value


def test_head_widths_follow_from_d_model_and_heads():
    config = TransformerConfig(d_model=42, heads=3)
    assert (config.d_k, config.d_v) == (14, 14)


def test_given_head_widths_stay():
    config = TransformerConfig(d_model=42, heads=3, d_k=11)
    assert (config.d_k, config.d_v) == (11, 14)


def test_head_widths_that_are_both_given_need_no_divisor():
    config = TransformerConfig(d_model=42, heads=5, d_k=7, d_v=13)
    assert (config.d_k, config.d_v) == (7, 13)


def test_heads_that_do_not_divide_are_refused_with_the_blank_that_they_leave():
    with pytest.raises(ValidationError, match=r"heads = 5 does not divide d_model = 42.*or give d_v"):
        TransformerConfig(d_model=42, heads=5, d_k=7)


def test_is_frozen():
    config = TransformerConfig()
    with pytest.raises(ValidationError, match="frozen"):
        config.d_model = 17


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("encoder_layers", 0),
        ("decoder_layers", 0),
        ("d_model", 0),
        ("d_ff", 0),
        ("heads", 0),
        ("heads", -8),
        ("heads", "many"),
        ("d_k", -1),
        ("d_v", -1),
        ("dropout", 1.0),
        ("dropout", -0.1),
        ("label_smoothing", 1.0),
        ("vocab_size", 0),
        ("source_vocab_size", 0),
        ("positions", "rotary"),
        ("compatibility", "cosine"),
        ("attention_window", 0),
        ("max_positions", 0),
        ("attention_dropout", 1.0),
        ("feed_forward", "gelu"),
        ("sinusoid_layout", "diagonal"),
        ("norm", "sandwich"),
        ("norm_epsilon", 0.0),
        ("norm_epsilon", float("inf")),
        ("attention_bias", "perhaps"),
        ("d_modl", 17),
    ],
)
def test_a_refused_value_names_its_field(field, value):
    with pytest.raises(ValidationError) as caught:
        TransformerConfig.model_validate({field: value})
    assert [error["loc"] for error in caught.value.errors()] == [(field,)]


def test_sinusoids_need_an_even_width():
    with pytest.raises(ValidationError, match="d_model = 21 is odd"):
        TransformerConfig(d_model=21, heads=3)
    assert TransformerConfig(d_model=21, heads=3, positions="none").d_k == 7


def test_the_closed_range_needs_two_wavelengths():
    with pytest.raises(ValidationError, match=r"sinusoid_range = 'closed' needs two wavelengths: d_model = 2 has one"):
        TransformerConfig(d_model=2, heads=1, sinusoid_range="closed")


def test_embedding_dropout_follows_dropout_where_it_is_left_out():
    assert TransformerConfig(dropout=0.3).embedding_dropout == 0.3
    assert TransformerConfig(dropout=0.3, embedding_dropout=0.2).embedding_dropout == 0.2


def test_files_from_before_there_were_other_activations_are_read():
    assert TransformerConfig.model_validate({"feed_forward": "relu"}) == TransformerConfig()
    assert TransformerConfig.model_validate({"feed_forward": "relu", "activation": "relu"}) == TransformerConfig()
    with pytest.raises(ValidationError, match="'mlp', 'gated', 'parameter_attention' or 'mixture_of_experts'"):
        TransformerConfig.model_validate({"feed_forward": "relu", "activation": "gelu"})


@pytest.mark.parametrize(
    ("idle", "other"),
    [
        ({"sinusoid_layout": "concatenated", "positions": "learned"}, "positions = 'sinusoidal'"),
        ({"sinusoid_range": "closed", "positions": "none"}, "positions = 'sinusoidal'"),
        ({"sinusoid_start": 2, "positions": "learned"}, "positions = 'sinusoidal'"),
        ({"max_positions": 7}, "positions = 'learned'"),
        ({"max_relative_distance": 7}, "positions = 'relative'"),
        ({"position_combination": "concatenate", "positions": "none"}, "positions = 'sinusoidal' or 'learned'"),
        ({"positions_at_every_layer": True, "positions": "relative"}, "positions = 'sinusoidal' or 'learned'"),
        ({"parameter_heads": 3}, "feed_forward = 'parameter_attention'"),
        ({"parameter_d_k": 3}, "feed_forward = 'parameter_attention'"),
        ({"parameter_d_v": 3}, "feed_forward = 'parameter_attention'"),
        ({"parameter_keys": 3}, "feed_forward = 'parameter_attention'"),
        (
            {"activation_dropout": 0.1, "feed_forward": "parameter_attention"},
            "feed_forward = 'mlp' or 'gated' or 'mixture_of_experts'",
        ),
        (
            {"activation": "gelu", "feed_forward": "parameter_attention"},
            "feed_forward = 'mlp' or 'gated' or 'mixture_of_experts'",
        ),
        (
            {"feed_forward_bias": False, "feed_forward": "parameter_attention"},
            "feed_forward = 'mlp' or 'gated' or 'mixture_of_experts'",
        ),
        (
            {
                **{"activation": "gelu", "feed_forward": "parameter_attention"},
                **{"decoder_self_attention": "average", "average_feed_forward": False},
            },
            "feed_forward = 'mlp' or 'gated' or 'mixture_of_experts'",
        ),
    ],
)
def test_a_setting_that_nothing_would_read_is_refused(idle, other):
    name, value = next(iter(idle.items()))
    with pytest.raises(ValidationError) as caught:
        TransformerConfig.model_validate(idle)
    assert f"{name} = {show_value(value)} is for {other}: leave it out" in str(caught.value)


def test_only_learned_positions_have_a_longest_sequence():
    assert TransformerConfig(positions="learned", max_positions=97).longest == 97
    assert TransformerConfig().longest is TransformerConfig(positions="relative").longest is None


def test_survives_its_own_json():
    config = TransformerConfig(d_model=42, heads=3, d_k=11, norm="pre", norm_epsilon=1e-5)
    assert TransformerConfig.model_validate_json(config.model_dump_json()) == config


def test_experts_of_all_layers_are_so_many_at_most():
    experts = {"feed_forward": "mixture_of_experts", "experts": 4000, "encoder_layers": 1}
    assert TransformerConfig.model_validate(experts | {"decoder_layers": 3}).least_tensors == 16_000
    with pytest.raises(
        ValidationError, match=r"experts = 4,000 in each of 5 layers are 20,000 networks: at most 16,384"
    ):
        TransformerConfig.model_validate(experts | {"decoder_layers": 4})
    assert TransformerConfig(encoder_layers=3, decoder_layers=4).least_tensors == 7
