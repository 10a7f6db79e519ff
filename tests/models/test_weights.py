"""Weights of pairs and of labels, and the auxiliary loss of a model, in ``forward`` and in a training step."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.bag_of_words import BagConfig, BagOfWords
from transduce.config import TrainConfig, preset
from transduce.data import Batch
from transduce.models import Ensemble, Tokens, build
from transduce.training import compute_loss, make_optimizer, step_seed, train_step
from transduce.training.fillers import fill_up
from transduce.training.micro_batches import split

SIZES = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 12, "d_ff": 20, "heads": 3, "vocab_size": 23}
LENGTHS = [3, 11, 2, 7, 1, 13, 5]


@pytest.fixture(params=["transformer", "bag", "experts"])
def model(request):
    torch.manual_seed(2)
    if request.param == "bag":
        return BagOfWords(BagConfig(size=12, penalty=0.3, vocab_size=23))
    experts = {"feed_forward": "mixture_of_experts", "experts": 5, "expert_balance": "pair"}
    more = experts if request.param == "experts" else {}
    return build(preset("base", SIZES | {"dropout": 0.3, "attention_dropout": 0.2} | more))


def make_batch(weights=None):
    """Random pairs of as many symbols on both sides; the longest has 13."""
    draw, lengths = np.random.default_rng(7), np.array(LENGTHS)
    ids = [draw.integers(3, 23, (len(LENGTHS), max(LENGTHS))) for _ in range(3)]
    batch = Batch(ids[0], lengths, ids[1], ids[2], lengths, np.arange(101, 101 + len(LENGTHS)))
    return batch if weights is None else replace(batch, weights=np.array(weights, np.float32))


def choose(batch, rows):
    """Some pairs, perhaps several times."""
    return Batch(**{name: value[rows] for name, value in vars(batch).items() if value is not None})


def learn(model, *batches, seed=7):
    """The sums, and the gradient of the objective."""
    model.train().zero_grad(set_to_none=True)
    sums = [compute_loss(model, batch, torch.float32, step_seed(1, seed)) for batch in batches]
    total = sum(sums[1:], sums[0])
    total.objective.backward()
    return total.detach(), [weight.grad for weight in model.parameters()]


def assert_same(found, expected, **tolerance):
    for one, other in zip(vars(found[0]).values(), vars(expected[0]).values(), strict=True):
        torch.testing.assert_close(one, other, check_dtype=False, **tolerance)
    torch.testing.assert_close(found[1], expected[1], **tolerance)


CLOSE = {"rtol": 1e-4, "atol": 1e-4}


@pytest.mark.parametrize("shape", [(7,), (7, 13)])
def test_weights_of_one_change_no_bit(model, shape):
    assert_same(learn(model, make_batch(np.ones(shape))), learn(model, make_batch()), rtol=0, atol=0)


def test_a_pair_of_weight_two_is_there_twice_and_one_of_weight_zero_is_not_there(model):
    found = learn(model, make_batch([2, 1, 0, 1, 1, 1, 2]))
    expected = learn(model, choose(make_batch(), [0, 0, 1, 3, 4, 5, 6, 6]))
    torch.testing.assert_close(found[0].objective, expected[0].objective, **CLOSE)
    torch.testing.assert_close(found[1], expected[1], **CLOSE)
    # What is measured stays per token: without weights, of the pairs that count.
    once = learn(model, choose(make_batch(), [0, 1, 3, 4, 5, 6]))[0]
    assert int(found[0].tokens) == int(once.tokens) == sum(LENGTHS) - 2
    torch.testing.assert_close(found[0].nll, once.nll, **CLOSE)
    assert (found[0].auxiliary is None) == (once.auxiliary is None)
    if once.auxiliary is not None:
        torch.testing.assert_close(found[0].auxiliary, once.auxiliary, **CLOSE)


def test_labels_of_weight_zero_are_left_out(model):
    """The beginning of each target alone: of a decoder, what comes later changes nothing before."""
    weights = np.zeros((7, 13))
    weights[:, :4] = 1
    batch = make_batch()
    short = np.minimum(batch.target_lengths, 4)
    begun = replace(batch, target=batch.target[:, :4], labels=batch.labels[:, :4], target_lengths=short)
    assert make_batch(weights).target_tokens == begun.target_tokens == short.sum()
    assert_same(learn(model, make_batch(weights)), learn(model, begun), **CLOSE)


@pytest.mark.parametrize("weights", [None, [2, -1, 0, 1, 0.5, 1, -2], np.linspace(-1, 2, 91).reshape(7, 13)])
def test_fillers_and_micro_batches_change_nothing(model, weights):
    batch = make_batch(weights)
    batch = choose(batch, [0, 1, 2, 3, 4, 5, 6] * 9)  # of so many symbols that there are fillers
    batch = replace(batch, rows=np.arange(len(batch.rows)))
    expected = learn(model, batch)
    filled = fill_up(batch)
    assert len(filled.rows) > len(batch.rows)
    assert_same(learn(model, filled), expected, **CLOSE)
    parts = split(batch, 4)
    assert sum(part.target_tokens for part in parts) == batch.target_tokens
    assert_same(learn(model, *map(fill_up, parts)), expected, **CLOSE)


def test_a_step_divides_by_the_tokens_that_count(model):
    """Twice the weights are twice the gradient; pairs of weight 0 do not make it smaller."""

    def step(batch, **options):
        ours = copy.deepcopy(model)
        optimizer = make_optimizer(ours, TrainConfig(adam_beta1=0.5))
        train_step(ours, optimizer, [batch], 1e-3, torch.float32, step_seed(1, 7), **options)
        return [optimizer.state[weight]["exp_avg"] / 0.5 for weight in ours.parameters()]

    single = step(make_batch())
    torch.testing.assert_close(step(make_batch([2] * 7)), [2 * gradient for gradient in single], **CLOSE)
    without = step(choose(make_batch(), [0, 1, 3, 4, 5, 6]))
    torch.testing.assert_close(step(make_batch([1, 1, 0, 1, 1, 1, 1])), without, **CLOSE)
    # Who wants the weighted mean divides by the sum of the weights.
    torch.testing.assert_close(step(make_batch([2] * 7), tokens=2.0 * sum(LENGTHS)), single, **CLOSE)


def test_the_auxiliary_loss_is_in_the_objective():
    torch.manual_seed(2)
    model = BagOfWords(BagConfig(size=12, penalty=0.3, vocab_size=23))
    sums = learn(model, make_batch())[0]
    assert float(sums.objective) == pytest.approx(float(sums.nll + sums.auxiliary))
    model.config = BagConfig(size=12, penalty=0.6, vocab_size=23)
    double = learn(model, make_batch())[0]
    assert float(double.auxiliary) == pytest.approx(2 * float(sums.auxiliary))
    assert float(double.nll) == float(sums.nll)
    model.config = BagConfig(size=12, vocab_size=23)
    assert learn(model, make_batch())[0].auxiliary is None


def test_an_output_that_is_to_become_less_probable_does_not_make_experts_uneven():
    """The auxiliary loss counts by the magnitude of a weight, the likelihood by its sign, too."""
    torch.manual_seed(2)
    model = BagOfWords(BagConfig(size=12, penalty=0.3, vocab_size=23))
    more, less = (learn(model, make_batch([weight] * 7))[0] for weight in (0.5, -0.5))
    own = 0.5 * float(more.auxiliary)
    assert own > 0
    assert float(less.objective) - own == pytest.approx(own - float(more.objective))


def test_an_ensemble_has_no_weights():
    model = build(preset("base", SIZES)).eval()
    ids, lengths = torch.tensor([[5, 2]]), torch.tensor([2])
    with pytest.raises(ValueError, match="weights"):
        Ensemble([model, model]).forward(Tokens(ids, lengths), Tokens(ids, lengths), ids, torch.ones(1))
