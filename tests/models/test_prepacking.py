"""A native model made of numbers that come from elsewhere is the one that would be made of the plain model."""

import copy

import pytest
import torch

from tests.models.test_native_transformer import TOLERANCE, VARIANTS, make, walk
from tests.sparing import one_each
from transduce.config import TransformerConfig
from transduce.models import Kept, NativeTransformer, Prepacking, build_without_storage, kernels_compute

# Every kind of number is in one of them: learned positions, norms beside and within stacks, biases, two vocabularies.
SOME = ["post", "two vocabularies", "mBART", "T5", "average"]


@pytest.fixture(autouse=True)
def _built(built): ...


def kept(plain, format_):
    source = Prepacking(format_)
    NativeTransformer(copy.deepcopy(plain), format_, source)
    return source.tensors()


def remade(config, format_, tensors):
    source = Kept(tensors, format_)
    model = NativeTransformer(build_without_storage(config), format_, source)
    source.check_end()
    return model


@torch.inference_mode()
@pytest.mark.parametrize(("variant", "format_"), [*one_each(SOME, TOLERANCE)])
def test_what_was_kept_is_the_same_model(variant, format_):
    plain = make(VARIANTS[variant])
    packed, again = (
        NativeTransformer(copy.deepcopy(plain), format_),
        remade(plain.config, format_, kept(plain, format_)),
    )
    for (logits, weights), (expected, others) in zip(walk(again, 20), walk(packed, 20), strict=True):
        assert logits.equal(expected)
        assert weights is others is None or weights.equal(others)
    for name, weight in packed._plain.state_dict().items():
        if weight.device.type != "meta":  # int8 has a matrix in the place of weights
            assert again._plain.state_dict()[name].equal(weight), name


@pytest.mark.parametrize(("variant", "format_"), [*one_each(SOME, TOLERANCE, 1)])
def test_weights_that_are_read_one_by_one_are_the_same_model(variant, format_):
    plain = make(VARIANTS[variant])
    without = build_without_storage(plain.config)
    parameters = dict(without.named_parameters())  # ids are those of living objects
    names = {id(parameter): name for name, parameter in parameters.items()}
    weights, asked = plain.state_dict(), []

    def fill(parameter, place):
        asked.append(names[id(parameter)])
        place.copy_(weights[asked[-1]])

    source = Prepacking(format_, fill)
    NativeTransformer(without, format_, source)
    expected = kept(plain, format_)
    assert source.tensors().keys() == expected.keys()
    assert all(tensor.equal(expected[name]) for name, tensor in source.tensors().items())
    assert sorted(asked) == sorted(weights)  # each once


def test_what_is_kept_begins_where_vectors_are_read_fastest():
    config = TransformerConfig(d_model=20, d_ff=28, heads=5, vocab_size=31, encoder_layers=1, decoder_layers=1)
    source = Prepacking("int8", lambda _, place: place.zero_())
    NativeTransformer(build_without_storage(config), "int8", source)
    assert all(tensor.data_ptr() % 64 == 0 for tensor in source.tensors().values())


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("scales", lambda _: None, "scales is missing"),
        ("panels", lambda panels: panels[:-1], "takes a contiguous"),
        ("panels", lambda panels: panels.float(), "takes a contiguous"),
        ("panels", lambda panels: panels.transpose(0, 1), "takes a contiguous"),
        ("sums", lambda sums: sums.long(), "takes a contiguous"),
        ("0", lambda positions: positions[:, 1:], "0 is torch.float32"),
        ("0", lambda positions: positions.half(), "0 is torch.float16"),
        ("left", lambda _: torch.ones(2), "left is one too many"),
    ],
)
def test_what_does_not_fit_the_model_is_refused(part, change, message):
    plain = make(VARIANTS["mBART"])  # whose learned positions come first
    tensors = kept(plain, "int8")
    name = next((name for name in tensors if name.endswith(part)), part)
    changed = {**tensors, name: change(tensors.get(name))}
    with pytest.raises(ValueError, match=message):
        remade(plain.config, "int8", {name: tensor for name, tensor in changed.items() if tensor is not None})


def test_what_was_kept_in_another_format_is_refused():
    plain = make(VARIANTS["post"])
    with pytest.raises(ValueError, match="takes a contiguous"):
        remade(plain.config, "int8", kept(plain, "bfloat16"))


def test_only_some_transformers_are_computed():
    assert kernels_compute(TransformerConfig(d_model=20, heads=5))
    assert kernels_compute(TransformerConfig(d_model=20, heads=5, decoder_self_attention="average"))
    assert not kernels_compute(TransformerConfig(d_model=20, heads=5, positions="relative"))


def test_a_gate_reads_two_vectors_at_once():
    # int8's sums hold 65,536 products.
    wide = {"d_model": 40_000, "decoder_self_attention": "average"}
    assert kernels_compute(TransformerConfig(**wide, average_gate=False))
    assert not kernels_compute(TransformerConfig(**wide))
