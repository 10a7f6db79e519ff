"""A source with a vocabulary of its own: one matrix more, and nothing else changes."""

import pytest
import torch

from transduce.config import TransformerConfig
from transduce.models import Tokens, Transformer, build

SOURCE, TARGET = 43, 31
SIZES = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 28, "d_ff": 44, "heads": 4, "dropout": 0}


def config(source: int | None = SOURCE) -> TransformerConfig:
    return TransformerConfig.model_validate({**SIZES, "vocab_size": TARGET, "source_vocab_size": source})


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(3)
    return Transformer(config()).eval()


def batch() -> tuple[Tokens, Tokens, torch.Tensor]:
    """Two pairs; the sources use ids that the target's vocabulary does not have."""
    source = Tokens(torch.tensor([[5, 41, 37, 42, 2], [7, 31, 2, 0, 0]]), torch.tensor([5, 3]))
    target = Tokens(torch.tensor([[1, 11, 13, 30], [1, 17, 0, 0]]), torch.tensor([4, 2]))
    return source, target, torch.tensor([[11, 13, 30, 2], [17, 2, 0, 0]])


def test_it_takes_one_matrix_more():
    shapes = {name: tuple(parameter.shape) for name, parameter in build(config()).named_parameters()}
    shared = {name: tuple(parameter.shape) for name, parameter in build(config(None)).named_parameters()}
    assert shapes == shared | {"source_embedding.weight": (SOURCE, 28)}
    assert shared["embedding.weight"] == (TARGET, 28)


def test_parameter_count_by_hand():
    # d (V_source + V_target) + N_enc (4 d^2 + 2 d d_ff + d_ff + d + 4 d) + N_dec (8 d^2 + 2 d d_ff + d_ff + d + 6 d)
    layers = 2 * (4 * 784 + 2 * 28 * 44 + 44 + 28 + 4 * 28) + 2 * (8 * 784 + 2 * 28 * 44 + 44 + 28 + 6 * 28)
    assert sum(parameter.numel() for parameter in build(config()).parameters()) == 28 * (43 + 31) + layers


def test_even_of_the_same_size_it_is_a_matrix_of_its_own():
    model = build(config(TARGET))
    assert model.source_embedding is not None
    assert not torch.equal(model.source_embedding.weight, model.embedding.weight)


def test_sources_are_read_with_it_alone(model):
    source, *_ = batch()
    encoded = model.encode(source).hidden
    with torch.no_grad():
        model.embedding.weight.add_(1)
    assert torch.equal(model.encode(source).hidden, encoded)
    with torch.no_grad():
        model.source_embedding.weight.add_(1)
    assert not torch.allclose(model.encode(source).hidden, encoded)


def test_targets_are_read_and_scored_without_it(model):
    source, target, _ = batch()
    memory = model.encode(source)
    before = model.project(model.decode(memory, target).hidden)
    assert before.shape == (2 + 4, TARGET)
    with torch.no_grad():
        model.source_embedding.weight.normal_()
    assert torch.equal(model.project(model.decode(memory, target).hidden), before)


def test_it_equals_the_shared_model_where_its_rows_are_the_shared_matrixs():
    torch.manual_seed(5)
    shared = build(config(None)).eval()
    own = build(config(TARGET)).eval()
    rows = {"source_embedding.weight": shared.embedding.weight}
    own.load_state_dict({**shared.state_dict(), **rows})
    source, target, labels = batch()
    source = Tokens(source.ids % TARGET, source.lengths)
    assert torch.equal(own(source, target, labels).objective, shared(source, target, labels).objective)


def test_gradients_of_both_matrices_make_the_shared_ones():
    """Of a shared matrix the gradient is the sum of what it gets as the source's and as the target's."""
    torch.manual_seed(5)
    shared, own = build(config(None)).train(), build(config(TARGET)).train()
    own.load_state_dict({**shared.state_dict(), "source_embedding.weight": shared.embedding.weight})
    source, target, labels = batch()
    source = Tokens(source.ids % TARGET, source.lengths)
    for model in (shared, own):
        model(source, target, labels).objective.backward()
    assert own.source_embedding is not None
    parts = own.source_embedding.weight.grad, own.embedding.weight.grad, shared.embedding.weight.grad
    assert all(part is not None for part in parts)
    torch.testing.assert_close(parts[0] + parts[1], parts[2], rtol=1e-5, atol=1e-6)


def test_only_symbols_that_were_read_get_a_gradient(model):
    source, target, labels = batch()
    model.train()(source, target, labels).objective.backward()
    touched = model.source_embedding.weight.grad.abs().sum(1).nonzero().flatten().tolist()
    assert touched == [2, 5, 7, 31, 37, 41, 42]  # and not the padding, 0


def test_steps_equal_one_pass(model):
    source, target, _ = batch()
    memory = model.encode(source)
    whole = target.layout().pad(model.project(model.decode(memory, target).hidden))
    state = model.start(memory, 1)
    for column in range(4):
        step = model.step(state, target.ids[:, column])
        state = step.state
        real = target.lengths > column
        torch.testing.assert_close(step.logits[real], whole[real, column], rtol=1e-4, atol=1e-5)
