import pytest

from transduce.bundle import Bundle, load_bundle, save_bundle
from transduce.config import BadInputError, GenerationConfig, preset
from transduce.models import build
from transduce.workflows.inspect import inspect_model

pytest_plugins = ["tiny_run"]


def _by_hand(layers, d_model, d_ff, vocabulary):
    """Section 3: attention without bias, feed-forward with, LayerNorm with gain and bias, one shared embedding."""
    attention, feed_forward, norm = 4 * d_model**2, 2 * d_model * d_ff + d_ff + d_model, 2 * d_model
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    return layers * (encoder + decoder) + vocabulary * d_model


@pytest.mark.parametrize(
    ("name", "sizes", "millions"),
    [
        ("base", (6, 512, 2048, 37_000), 63),  # Table 3 says 65 million
        ("big", (6, 1024, 4096, 37_000), 214),  # Table 3 says 213 million
        ("tiny", (4, 128, 256, 37_000), 6),
    ],
)
def test_parameters_by_hand(name, sizes, millions):
    parameters = inspect_model(name)["parameters"]
    assert parameters["total"] == _by_hand(*sizes)
    assert round(parameters["total"] / 1e6) == millions
    assert parameters["total"] == sum(count for part, count in parameters.items() if part != "total")


def test_memory_follows_from_parameters():
    facts = inspect_model("base")
    total = _by_hand(6, 512, 2048, 37_000)
    assert facts["memory"] == {
        "weights_float32_bytes": 4 * total,
        "weights_bfloat16_bytes": 2 * total,
        "training_state_bytes": 16 * total,
    }


def test_flops_by_hand():
    """Six for each weight and symbol (2 forward, 4 backward), and the products of the attentions."""
    length, d_model, d_ff, layers, vocabulary = 25, 512, 2048, 6, 37_000
    weights = layers * (3 * 4 * d_model**2 + 2 * 2 * d_model * d_ff) + vocabulary * d_model
    attention = layers * 3 * 2 * length * length * d_model  # Q K^T and its product with V, all heads together
    assert inspect_model("base", length)["flops"]["forward_and_backward"] == 6 * (weights * length + attention)


def test_forward_and_backward_and_the_parts_add_up():
    flops = inspect_model("tiny", 25)["flops"]
    assert flops["forward"] + flops["backward"] == flops["forward_and_backward"]
    for side in ("forward", "backward"):
        assert sum(part[side] for part in flops["parts"].values()) == flops[side]
    layers = [f"{stack} layer {number}" for stack in ("encoder", "decoder") for number in range(1, 5)]
    assert list(flops["parts"]) == ["embeddings", *layers, "projection"]


def test_no_more_tokens_are_counted_than_there_are_positions(trained_run, tmp_path):
    model = tmp_path / "model"
    tokenizers = load_bundle(trained_run).tokenizers
    config = preset("tiny", {"positions": "learned", "max_positions": 7, **tokenizers.sizes()})
    save_bundle(Bundle(build(config), tokenizers, GenerationConfig()), model)
    assert inspect_model(str(model), 25)["flops"]["source_tokens"] == 7


def test_a_preset_says_what_it_means_and_how_it_is_trained():
    facts = inspect_model("big")
    assert facts["meaning"].startswith(
        "Vaswani et al. 2017, Table 3, row big; the mean of 20 checkpoints is section 6.1's"
    )
    assert facts["regime"] == {"train.max_steps": 300_000, "train.average_last": 20, "train.keep_checkpoints": 20}


def test_a_run_directory_is_a_model(trained_run):
    facts = inspect_model(str(trained_run))
    vocabulary = facts["configuration"]["vocab_size"]
    assert facts.keys().isdisjoint({"meaning", "regime"})  # a preset's
    final_norms = 2 * 2 * 32  # pre-norm has one more behind each stack
    assert facts["parameters"]["total"] == _by_hand(1, 32, 64, vocabulary) + final_norms


def test_a_name_that_means_nothing_is_answered_with_the_presets(tmp_path):
    with pytest.raises(BadInputError, match=r"bse: neither .*presets are .*base.*tiny"):
        inspect_model(str(tmp_path / "bse"))
