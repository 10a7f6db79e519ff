"""Kernels get float32 on the CPU whatever torch makes new tensors of: another library may have set that."""

from contextlib import contextmanager

import pytest
import torch

from tests.random_bundle import random_bundle
from transduce.config import TransformerConfig
from transduce.inference import Translator
from transduce.models import Tokens, build


@contextmanager
def new_tensors(dtype=torch.float32, device="cpu"):
    torch.set_default_dtype(dtype)
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", [{"dtype": torch.float64}, {"dtype": torch.bfloat16}, {"device": "meta"}], ids=str)
def test_a_step_has_the_same_gradients(kind, precision, way):
    if way == "plain":
        pytest.skip("PyTorch's operations follow the default, as they are made to")
    torch.manual_seed(3)
    model = build(TransformerConfig(vocab_size=30, encoder_layers=1, decoder_layers=1, d_model=36, d_ff=50, heads=2))
    ids, lengths = torch.randint(4, 30, (3, 7)), torch.tensor([7, 5, 6])
    tokens = Tokens(ids, lengths, torch.tensor([11, 13, 17]))

    def gradients():
        with torch.autocast("cpu", precision, enabled=precision is torch.bfloat16):
            return torch.autograd.grad(model(tokens, tokens, ids).objective, list(model.parameters()))

    expected = gradients()
    with new_tensors(**kind):
        found = gradients()
    for one, other in zip(found, expected, strict=True):
        assert one.equal(other)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_a_search_writes_the_same(dtype, precision, way):
    if way == "plain":
        pytest.skip("PyTorch's operations follow the default, as they are made to")
    translator = Translator(random_bundle(), precision)
    texts = ["a b c", "c", "b a"]

    def found():
        return [(each.text, each.score) for each in translator.translate(texts, beam_size=3)]

    expected = found()
    with new_tensors(dtype):
        assert found() == expected
