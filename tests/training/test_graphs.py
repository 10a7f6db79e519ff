"""Batches in the form that CUDA graphs have them; the graphs themselves are tested by ``pytest -m cuda``."""

import gc
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch

from transduce.config import preset
from transduce.data import Batch
from transduce.kernels import has_native, make_seed
from transduce.models import Tokens, build
from transduce.training import compute_loss
from transduce.training.graphs import GraphedPasses, Inputs, Shape, passes_of, takes

CPU = torch.device("cpu")


class Recording:
    """A graph's place, without a device."""

    def __init__(self):
        self.collecting = []

    def pool(self):
        return 1, 1

    def capture_begin(self, pool, capture_error_mode):
        self.collecting.append(gc.isenabled())

    def capture_end(self):
        self.collecting.append(gc.isenabled())

    def wait_stream(self, other):
        pass


SMALL = {"encoder_layers": 1, "decoder_layers": 2, "d_model": 32, "d_ff": 48, "heads": 4, "vocab_size": 101}


def make_batch(pairs, longest=23, weights=None):
    """Random pairs of mixed lengths."""
    random = np.random.default_rng(pairs)
    lengths = random.integers(1, longest, (2, pairs))
    source, target, labels = (random.integers(4, 101, (pairs, side.max())) for side in lengths[[0, 1, 1]])
    return Batch(source, lengths[0], target, labels, lengths[1], rows=np.arange(pairs) * 7, weights=weights)


def gradients_of(model):
    return {name: weight.grad.clone() for name, weight in model.named_parameters()}


WEIGHTS = {
    "none": None,
    "of pairs": np.array([1, 0, 2, 0.5, 1, 1, 1], np.float32),
    "of labels": np.random.default_rng(1).random((7, 22)).astype(np.float32),
}


@pytest.mark.skipif(not has_native(torch.empty(0)), reason="PyTorch's attention takes a flat batch for one row")
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_same_losses_and_gradients_as_of_the_batch_as_it_is(norm, weights):
    torch.manual_seed(1)
    model, batch, seed = build(preset("base", {**SMALL, "norm": norm})).train(), make_batch(7), make_seed(5)
    given = WEIGHTS[weights]
    batch = replace(batch, weights=given if given is None or given.ndim == 1 else given[:, : batch.labels.shape[1]])
    sums = compute_loss(model, batch, torch.float32, seed)
    (sums.objective * 0.125).backward()
    right = gradients_of(model)
    model.zero_grad(set_to_none=True)
    found = GraphedPasses(model, torch.float32).run(batch, seed, 0.125)
    torch.testing.assert_close(found.objective, sums.objective.detach())
    torch.testing.assert_close(found.nll, sums.nll)
    assert int(found.tokens) == int(sums.tokens)
    for name, gradient in gradients_of(model).items():
        torch.testing.assert_close(gradient, right[name], rtol=1e-4, atol=1e-6)


def test_gradients_are_added_to_what_is_there():
    torch.manual_seed(1)
    model = build(preset("base", {**SMALL, "dropout": 0.0})).train()
    passes, batches = GraphedPasses(model, torch.float32), [make_batch(5), make_batch(6)]
    each = []
    for batch in batches:
        model.zero_grad(set_to_none=True)
        passes.run(batch, None, 1.0)
        each.append(gradients_of(model))
    model.zero_grad(set_to_none=True)
    for batch in batches:
        passes.run(batch, None, 1.0)
    for name, gradient in gradients_of(model).items():
        torch.testing.assert_close(gradient, each[0][name] + each[1][name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("pairs", "longest"), [(1, 3), (7, 23), (40, 150), (300, 11)])
def test_a_shape_holds_its_batch_and_little_more(pairs, longest):
    batch = make_batch(pairs, longest)
    shape, (source, target) = Shape.of(batch, None), (batch.source_lengths, batch.target_lengths)
    for symbols, lengths, most in (
        (shape.source, source, shape.source_longest),
        (shape.target, target, shape.target_longest),
    ):
        assert lengths.sum() <= symbols <= lengths.sum() * 1.07
        assert lengths.max() <= most
    inputs = Inputs(shape, CPU)
    inputs.fill(batch, None, 1.0)
    read, _, labels, weights = inputs.read()
    layout = read.layout()
    assert (layout.tokens, len(layout.lengths)) == (shape.source, shape.pairs)
    assert int(layout.lengths.max()) <= shape.source_longest
    assert layout.lengths[:pairs].tolist() == source.tolist()
    assert int(weights.sum()) == target.sum()
    flat = np.concatenate([row[:length] for row, length in zip(batch.labels, target, strict=True)])
    assert labels[0, : len(flat)].tolist() == flat.tolist()


def test_batches_nearly_alike_share_a_shape():
    lengths = np.full(32, 20)
    shapes = set()
    for more in range(1, 7):
        grown = lengths + (np.arange(32) < more)
        ids = np.ones((32, 21), np.int64)
        shapes.add(Shape.of(Batch(ids, grown, ids, ids, grown), None))
    assert len(shapes) == 1


@pytest.fixture
def pretend_triton(monkeypatch):
    """Say that the kernels for CUDA are there; nothing is launched."""

    def find(model):
        with monkeypatch.context() as patched:
            patched.setattr("transduce.kernels.gpu.has_triton", lambda *_: True)
            return passes_of(model, torch.bfloat16)

    return find


def test_passes_are_a_models_own_until_it_is_moved(pretend_triton):
    model = build(preset("base", SMALL))
    passes = pretend_triton(model)
    assert passes is not None
    assert pretend_triton(model) is passes
    for weight in model.parameters():
        weight.data = weight.data.clone()  # as moving to another device and back does
    assert pretend_triton(model) is not passes


def test_a_model_that_is_spread_over_processes_has_none(pretend_triton):
    """Its class is made of the Transformer's, and its weights are whole within their own layer alone."""
    model = build(preset("base", SMALL))
    model.__class__ = type("FSDPTransformer", (type(model),), {})
    assert pretend_triton(model) is None


@pytest.mark.parametrize("learns", [True, False])
def test_passes_are_of_the_weights_that_learn(pretend_triton, learns):
    model = build(preset("base", SMALL))
    model.embedding.weight.requires_grad_(not learns)
    passes = pretend_triton(model)
    assert pretend_triton(model) is passes
    model.embedding.weight.requires_grad_(learns)
    assert pretend_triton(model) is not passes


@pytest.mark.skipif(not has_native(torch.empty(0)), reason="PyTorch's attention takes a flat batch for one row")
def test_gradients_of_passes_that_were_launched_before_are_kept():
    """A batch that is too long for a graph may come first."""
    torch.manual_seed(1)
    model = build(preset("base", {**SMALL, "dropout": 0.0})).train()
    passes, batches = GraphedPasses(model, torch.float32), [make_batch(5), make_batch(6)]
    for batch in batches:
        compute_loss(model, batch, torch.float32).objective.backward()
    expected = gradients_of(model)
    model.zero_grad(set_to_none=True)
    compute_loss(model, batches[0], torch.float32).objective.backward()
    passes.run(batches[1], None, 1.0)
    for name, gradient in gradients_of(model).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-5)


def test_passes_do_not_outlive_a_table_of_positions(pretend_triton):
    """Graphs would read the one that was put aside for a longer sequence."""
    model, symbols = build(preset("base", SMALL)), torch.ones(1, 600, dtype=torch.int64)
    model(*[Tokens(symbols[:, :5], torch.tensor([5]))] * 2, symbols[:, :5])
    passes = pretend_triton(model)
    assert pretend_triton(model) is passes
    model(*[Tokens(symbols, torch.tensor([600]))] * 2, symbols)
    assert pretend_triton(model) is not passes


@pytest.mark.parametrize(
    "changes",
    [
        {"attention_dropout": 0.1},
        {"attention_window": 5},
        {"feed_forward": "mixture_of_experts"},
        {"positions": "learned"},
        {"heads": 1, "d_k": 257, "d_v": 32},  # padded: the kernels for CUDA take narrower heads alone
    ],
)
def test_models_that_graphs_do_not_know(changes, pretend_triton):
    assert pretend_triton(build(preset("base", {**SMALL, **changes}))) is None


def test_without_such_a_device_there_are_none():
    assert passes_of(build(preset("base", SMALL)), torch.bfloat16) is None


def test_longer_sequences_than_the_attention_has_are_left_to_others():
    assert takes(make_batch(3, 200))
    batch = make_batch(3, 200)
    assert not takes(replace(batch, source=np.zeros((3, 257), np.int64)))


def test_what_draws_is_part_of_a_shape():
    """A graph that was recorded with seeds would go on with those of an earlier step."""
    batch = make_batch(7)
    shapes = [Shape.of(batch, make_seed(5)), Shape.of(batch, None), Shape.of(replace(batch, rows=None), make_seed(5))]
    assert [shape.seeded for shape in shapes] == [True, False, False]
    assert len({shape[:-1] for shape in shapes}) == 1


def test_nothing_is_collected_while_a_graph_is_recorded(monkeypatch):
    """A graph that nobody holds any longer, freed in the middle of a recording, would end it with an error."""
    recording = Recording()
    for name, made in {
        "CUDAGraph": lambda: recording,
        "Stream": lambda _: recording,
        "current_stream": lambda: recording,
        "stream": lambda _: nullcontext(),
    }.items():
        monkeypatch.setattr(torch.cuda, name, made)
    model, batch = build(preset("base", SMALL)).train(), make_batch(7)
    passes = GraphedPasses(model, torch.float32)
    inputs = Inputs(Shape.of(batch, None), CPU)
    inputs.fill(batch, None, 1.0)
    passes._attach_gradients()
    assert passes._record(inputs) is not None
    assert recording.collecting == [False, False]
    assert gc.isenabled()
    monkeypatch.setattr(passes, "_pass", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        passes._record(inputs)
    assert gc.isenabled()
