"""The random numbers of the C++ kernels, and the door to them."""

import ctypes
import os
import sys

import numpy as np
import pytest
import torch

from tests.command import run_program
from transduce.kernels import (
    Choices,
    Dropped,
    add_norm,
    interface,
    linear,
    native,
    prepack,
    projected_cross_entropy,
    rank_continuations,
)


@pytest.fixture(autouse=True)
def _built(way):
    if way == "plain":
        pytest.skip("PyTorch's own operations draw by tests of their own")


def drop_of_ones(probability, *shape):
    """What dropout makes of ones."""
    width = shape[-1:]
    tensors = torch.zeros(shape), torch.ones(shape), torch.ones(width), torch.zeros(width)
    return add_norm(*tensors, 1e-6, Dropped(probability), post=False)[0]


def zeros(probability, *shape):
    """1 where something was dropped, less the probability."""
    return (drop_of_ones(probability, *shape) == 0).float() - probability


@pytest.mark.parametrize("probability", [0.1, 0.3, 0.5])
def test_frequency_and_expectation(probability):
    torch.manual_seed(5)
    y = drop_of_ones(probability, 1000, 1009)
    # Five standard deviations of a binomial share.
    tolerance = 5 * (probability * (1 - probability) / y.numel()) ** 0.5
    assert (y == 0).float().mean().item() == pytest.approx(probability, abs=tolerance)
    assert y.unique().tolist() == pytest.approx([0, 1 / (1 - probability)], rel=1e-4)


def test_elements_rows_and_draws_are_independent():
    torch.manual_seed(7)
    probability = 0.3
    first, second = zeros(probability, 1000, 1009), zeros(probability, 1000, 1009)
    variance = probability * (1 - probability)
    # Neighbours share the 64 bits of a draw, so lags 1 to 4 are where dependence would show.
    products = [first[:, lag:] * first[:, : first.shape[1] - lag] for lag in (1, 2, 3, 4, 64, 256)]
    products += [first[1:] * first[:-1], first * second, first[1:] * second[:-1], first[:, 4:] * second[:, :-4]]
    for product in products:
        assert abs(product.mean().item()) < 5 * variance / product.numel() ** 0.5


def test_how_many_of_a_row_are_dropped_spreads_as_a_binomial():
    torch.manual_seed(11)
    probability, rows, columns = 0.3, 4001, 1009
    counts = (zeros(probability, rows, columns) + probability).sum(1)
    variance = columns * probability * (1 - probability)
    # The variance of a sample variance of something near normal is 2 / (n - 1) of its square.
    assert counts.var().item() == pytest.approx(variance, rel=5 * (2 / (rows - 1)) ** 0.5)


def test_seeds():
    torch.manual_seed(1)
    first, second = zeros(0.5, 13, 17), zeros(0.5, 13, 17)
    torch.manual_seed(1)
    assert zeros(0.5, 13, 17).equal(first)
    assert not first.equal(second)


def test_the_number_of_threads_changes_nothing():
    threads = torch.get_num_threads()
    try:
        found = []
        for number in (1, 2):
            torch.set_num_threads(number)
            torch.manual_seed(1)
            found.append(zeros(0.5, 301, 17))
    finally:
        torch.set_num_threads(threads)
    assert found[0].equal(found[1])


def test_a_tiny_probability_drops_hardly_anything():
    torch.manual_seed(11)
    assert (drop_of_ones(1e-7, 1000, 100) == 0).float().mean() < 1e-3


@pytest.mark.parametrize("origin", [None, "/nowhere/native.so"])
def test_a_library_that_is_not_there_or_does_not_fit_is_done_without(origin, monkeypatch):
    spec = None if origin is None else type("Spec", (), {"origin": origin})
    monkeypatch.setattr(native, "find_spec", lambda _: spec)
    assert native.open_library("native_avx2") is None


def test_a_library_of_this_version_is_opened_and_its_arguments_are_declared(way):
    library = native.open_library(way)
    assert library is not None
    assert all(getattr(library, name).argtypes is not None for name in native._signatures())


@pytest.mark.parametrize("change", ["number", "structure", "function"])
def test_a_library_of_another_version_is_left_out_with_a_warning(way, change, monkeypatch, caplog):
    if change == "number":
        monkeypatch.setattr(native, "INTERFACE", native.INTERFACE + 1)
    elif change == "structure":
        monkeypatch.setattr(native, "STRUCTURES", (*native.STRUCTURES[1:], interface.Chance))
    else:
        monkeypatch.setattr(native, "ONE", native.ONE | {"not_there_yet": ()})
    assert native.open_library(way) is None
    assert "of another version" in caplog.text
    assert "pip install ." in caplog.text


def test_numbers_beyond_32_bits_are_passed_whole(way):
    library, told = native.open_library(way), torch.zeros(99, dtype=torch.long)
    count = 1 + len(native.STRUCTURES)
    assert library.interface(told.data_ptr(), count) == 0
    assert library.interface(told.data_ptr(), 2**32 + count) == native._OUT_OF_RANGE


def test_arguments_of_other_types_are_refused(way):
    library = native.open_library(way)
    with pytest.raises(ctypes.ArgumentError):
        library.interface(1.5, 1)
    with pytest.raises(ctypes.ArgumentError):
        library.drop_float32(None, None, 0, 0, interface.NormAddress())
    with pytest.raises(TypeError):
        library.drop_float32(None)


@pytest.mark.parametrize(
    "x",
    [
        torch.ones(3, 5, dtype=torch.float64),
        torch.ones(5, 3),
        torch.ones(3, 6)[:, :5],
        torch.ones(5, 3).T,
        torch.ones(3, 5, device="meta"),
        torch._neg_view(torch.ones(3, 5)),
    ],
    ids=["type", "shape", "strides", "transposed", "device", "negated"],
)
def test_a_tensor_that_a_kernel_would_misread_is_refused(x):
    with pytest.raises(ValueError, match=r"takes a contiguous torch.float32 tensor of shape \(3, 5\) on the CPU"):
        native.address(x, torch.float32, 3, 5)


@pytest.mark.parametrize("x", [np.ones((3, 5)), np.ones((5, 3), np.float32), np.ones((3, 6), np.float32)[:, :5]])
def test_an_array_that_a_kernel_would_misread_is_refused(x):
    with pytest.raises(ValueError, match=r"takes a contiguous array of float32, \(3, 5\)"):
        native.array_address(x, np.dtype(np.float32), 3, 5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_what_is_traced_is_made_of_operations():
    """A kernel's address would be a constant of the trace."""
    matrix = prepack(torch.eye(5), None, "float32")
    traced = torch.jit.trace(lambda x: linear(x, matrix), torch.zeros(2, 5), check_trace=False)
    assert traced(torch.full((2, 5), 3.0)).equal(torch.full((2, 5), 3.0))


def test_what_leads_outside_is_refused():
    logits, labels = torch.zeros(2, 7), torch.tensor([3, 7])
    with pytest.raises(IndexError, match="cross_entropy"):
        smoothed = projected_cross_entropy(torch.zeros(2, 5), torch.zeros(7, 5), labels, 0.1)
        assert smoothed is None
    must_end = torch.tensor([False, False])
    for banned, end in (([0, 7], 3), ([0, -1], 3), ([0], 7)):
        with pytest.raises(IndexError, match="rank"):
            rank_continuations(logits.clone(), torch.zeros(2, 1), banned, must_end, end, 2)
    for which, first, symbols in (([0, 1], [0, 2], [1, 2]), ([-2, 0], [0, 2], [1, 2]), ([0, 0], [0, 2], [1, 7])):
        choices = Choices(*map(torch.tensor, (which, first, symbols)))
        with pytest.raises(IndexError, match="rank"):
            rank_continuations(logits.clone(), torch.zeros(2, 1), [0], must_end, 3, 2, choices=choices)


TOO_LITTLE = """
import resource, sys, torch
from transduce.config import TransformerConfig
from transduce.kernels import linear, prepack
from transduce.models import NativeTransformer, Tokens, build
sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 8, "d_k": 1000, "heads": 1, "vocab_size": 9}
torch.set_num_threads(int(sys.argv[1]))
model = NativeTransformer(build(TransformerConfig(**sizes)).eval().requires_grad_(False), "int8")
short = Tokens(torch.full((1, 700), 5), torch.tensor([700]))
long = Tokens(torch.full((1, 90_000), 5), torch.tensor([90_000]))
with torch.inference_mode():
    before = model.encode(short).hidden
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**28,) * 2)
    try:
        model.encode(long)
    except MemoryError as error:
        assert "encode" in str(error), error
        assert model.encode(short).hidden.equal(before)
        sys.exit(17)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory as Linux has them")
@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="AddressSanitizer's new throws nothing: it ends")
@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.usefixtures("built")
def test_too_little_memory_is_an_error_and_not_the_end(threads):
    found = run_program(TOO_LITTLE, str(threads))
    assert found.returncode == 17, found.stderr
