import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from transduce.config import Corpus, DataConfig, RunConfig, TrainConfig, preset
from transduce.data import Batch
from transduce.models import LossSums, Tokens, build
from transduce.training import compute_loss, make_optimizer, step_seed, train_step
from transduce.training.fillers import fill_up

PAD, BEGIN, END = 0, 1, 2
LENGTHS = np.array([1, 1])
ONE_TOKEN_EACH = Batch(np.array([[5], [6]]), LENGTHS, np.array([[1], [1]]), np.array([[2], [2]]), LENGTHS)


class Parabola(nn.Module):
    """Its objective is 2 tokens times sum(w^2) / 2, so the mean gradient over the tokens is w itself."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([2.0, -3.0, 0.5], dtype=torch.float64))

    def forward(self, source: Tokens, target: Tokens, labels: torch.Tensor, weights: None) -> LossSums:
        objective = 2 * (self.weight**2).sum() / 2
        return LossSums(objective, objective.detach(), torch.tensor(2))


def _batch(pairs: list[tuple[list[int], list[int]]]) -> Batch:
    def stack(rows: list[list[int]]) -> np.ndarray:
        width = max(map(len, rows))
        return np.array([row + [PAD] * (width - len(row)) for row in rows])

    return Batch(
        stack([[*source, END] for source, _ in pairs]),
        np.array([len(source) + 1 for source, _ in pairs]),
        stack([[BEGIN, *target] for _, target in pairs]),
        stack([[*target, END] for _, target in pairs]),
        np.array([len(target) + 1 for _, target in pairs]),
    )


def test_the_papers_constants_are_the_defaults_and_reach_the_optimizer():
    train = RunConfig(data=DataConfig(train=Corpus(source="a", target="b"), dev=Corpus(source="c", target="d"))).train
    group = make_optimizer(nn.Linear(2, 3), train).param_groups[0]
    assert (group["betas"], group["eps"], group["weight_decay"]) == ((0.9, 0.98), 1e-9, 0)
    changed = TrainConfig(adam_beta1=0.7, adam_beta2=0.8, adam_epsilon=0.1)
    group = make_optimizer(nn.Linear(2, 3), changed).param_groups[0]
    assert (group["betas"], group["eps"]) == ((0.7, 0.8), 0.1)


def test_adam_by_hand():
    """Kingma & Ba 2015, algorithm 1, in float64 and with constants that are all felt."""
    beta1, beta2, epsilon, rates = 0.7, 0.8, 0.1, [0.5, 0.25, 0.125]
    model = Parabola()
    optimizer = make_optimizer(model, TrainConfig(adam_beta1=beta1, adam_beta2=beta2, adam_epsilon=epsilon))
    weight, first, second = np.array([2.0, -3.0, 0.5]), np.zeros(3), np.zeros(3)
    for step, rate in enumerate(rates, start=1):
        train_step(model, optimizer, [ONE_TOKEN_EACH], rate, torch.float32)
        gradient = weight
        first = beta1 * first + (1 - beta1) * gradient
        second = beta2 * second + (1 - beta2) * gradient**2
        weight = weight - rate * (first / (1 - beta1**step)) / (np.sqrt(second / (1 - beta2**step)) + epsilon)
        np.testing.assert_allclose(model.weight.detach().numpy(), weight, rtol=1e-12)


@pytest.mark.parametrize("cuts", [[3], [1, 3], [2, 3], [1, 2, 3]])
def test_the_gradient_is_the_mean_over_target_tokens_however_they_are_batched(cuts):
    torch.manual_seed(2)
    changes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 12, "d_ff": 20, "heads": 3, "dropout": 0.0}
    config = preset("base", changes | {"label_smoothing": 0.0, "vocab_size": 23})
    model = build(config)
    pairs = [([5, 7, 11, 13, 17], [19]), ([3], [4, 6, 8, 10, 12, 14]), ([9, 9], [21, 22])]
    sums = []
    for pair in pairs:  # alone, without any padding, through torch's own cross-entropy
        alone = _batch([pair])
        source = Tokens(torch.from_numpy(alone.source), torch.from_numpy(alone.source_lengths))
        target = Tokens(torch.from_numpy(alone.target), torch.from_numpy(alone.target_lengths))
        logits = model.project(model.decode(model.encode(source), target).hidden)
        sums.append(nn.functional.cross_entropy(logits, torch.from_numpy(alone.labels)[0], reduction="sum"))
    target_tokens = 2 + 7 + 3  # with their end symbols
    (torch.stack(sums).sum() / target_tokens).backward()
    expected = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad(set_to_none=True)

    optimizer = make_optimizer(model, TrainConfig(adam_beta1=0.5))
    batches = [_batch(pairs[start:stop]) for start, stop in zip([0, *cuts], cuts, strict=False)]
    losses = train_step(model, optimizer, batches, 1e-3, torch.float32).losses

    assert int(losses.tokens) == target_tokens
    assert float(losses.nll) == pytest.approx(torch.stack(sums).sum().item(), rel=1e-5)
    assert expected.keys() == dict(model.named_parameters()).keys()
    for name, weight in model.named_parameters():
        # Adam's first moment after its first step is (1 - beta1) times the gradient.
        torch.testing.assert_close(optimizer.state[weight]["exp_avg"] / 0.5, expected[name], rtol=1e-4, atol=1e-6)
        assert weight.grad is None


@pytest.mark.parametrize("cuts", [[1, 3], [2, 3], [1, 2, 3]])
def test_dropout_is_the_pairs_own_however_they_are_batched(cuts):
    """So that accumulated or parallel batches learn what one batch would."""
    torch.manual_seed(2)
    changes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 12, "d_ff": 20, "heads": 3, "vocab_size": 23}
    model = build(preset("base", changes | {"dropout": 0.3, "attention_dropout": 0.2, "activation_dropout": 0.1}))
    pairs = [([5, 7, 11, 13, 17], [19]), ([3], [4, 6, 8, 10, 12, 14]), ([9, 9], [21, 22])]

    def gradients(seed, *cuts):
        batches = [
            replace(_batch(pairs[start:stop]), rows=np.arange(101, 104)[start:stop])
            for start, stop in zip([0, *cuts], cuts, strict=False)
        ]
        ours = copy.deepcopy(model)
        optimizer = make_optimizer(ours, TrainConfig(adam_beta1=0.5))
        sums = train_step(ours, optimizer, batches, 1e-3, torch.float32, seed).losses
        return sums.nll.item(), [optimizer.state[weight]["exp_avg"] for weight in ours.parameters()]

    loss, whole = gradients(step_seed(1, 7), 3)
    found, parts = gradients(step_seed(1, 7), *cuts)
    assert found == pytest.approx(loss, rel=1e-5)
    torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-6)
    others = [gradients(seed, *cuts)[0] for seed in (step_seed(1, 8), step_seed(2, 7), step_seed(7, 1), None)]
    assert len({loss, *others}) == 5


@pytest.mark.parametrize("changes", [{}, {"positions": "relative"}, {"attention_window": 4}])
def test_fillers_change_nothing(changes):
    """Not the sums, not what dropout leaves out of a pair, not the gradients."""
    torch.manual_seed(2)
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 12, "d_ff": 20, "heads": 3, "vocab_size": 23}
    model = build(preset("base", sizes | {"dropout": 0.3, "attention_dropout": 0.2} | changes)).train()
    draw = np.random.default_rng(7)
    pairs = [(draw.integers(3, 23, 9).tolist(), draw.integers(3, 23, 1 + row % 12).tolist()) for row in range(31)]
    batch = replace(_batch(pairs), rows=np.arange(31))
    assert len(fill_up(batch).rows) > 31

    def learn(batch):
        sums = compute_loss(model, batch, torch.float32, step_seed(1, 7))
        sums.objective.backward()
        gradients = [weight.grad for weight in model.parameters()]
        model.zero_grad(set_to_none=True)
        return [sums.objective.detach(), sums.nll, sums.tokens], gradients

    expected, gradients = learn(batch)
    found, filled = learn(fill_up(batch))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(filled, gradients, rtol=1e-4, atol=1e-4)


def test_bfloat16_rounds_the_products_but_not_the_weights():
    torch.manual_seed(3)
    changes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 16, "d_ff": 32, "heads": 2, "dropout": 0.0}
    model = build(preset("base", changes | {"vocab_size": 29}))
    batch = _batch([([5, 7, 11], [19, 23]), ([3], [4, 6])])
    exact, rounded = (compute_loss(model, batch, dtype).nll for dtype in (torch.float32, torch.bfloat16))
    assert float(rounded) != float(exact)
    assert float(rounded) == pytest.approx(float(exact), rel=0.02)
    train_step(model, make_optimizer(model, TrainConfig()), [batch], 1e-3, torch.bfloat16)
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
