"""With seeds, dropout is the pair's own: how pairs are put into batches changes no loss and no gradient."""

from dataclasses import replace

import pytest
import torch

from tests.model_variants import VARIANTS
from tests.sparing import every
from tests.ways import WAYS
from transduce.config import preset
from transduce.kernels import derive
from transduce.layers import Dropout
from transduce.models import Tokens, build

pytest_plugins = ["model_variants"]

SIZES = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 12, "d_ff": 23, "heads": 3, "vocab_size": 31}
RATES = {"dropout": 0.2, "embedding_dropout": 0.15, "attention_dropout": 0.3, "activation_dropout": 0.25}
SOURCE = Tokens(
    torch.tensor([[5, 7, 11, 13, 17, 19, 2], [23, 29, 2, 0, 0, 0, 0], [3, 4, 6, 8, 2, 0, 0], [9, 2, 0, 0, 0, 0, 0]]),
    torch.tensor([7, 3, 5, 2]),
    derive(torch.tensor(1), torch.tensor([41, 43, 47, 53])),
)
TARGET = Tokens(
    torch.tensor([[1, 5, 7, 0, 0, 0], [1, 11, 13, 17, 19, 23], [1, 29, 0, 0, 0, 0], [1, 3, 4, 6, 8, 0]]),
    torch.tensor([3, 6, 2, 5]),
    SOURCE.seeds,
)
LABELS = TARGET.ids.roll(-1, 1)


def make(variant=None, **changes):
    torch.manual_seed(3)
    changes = SIZES | RATES | (variant or {}) | changes
    if changes.get("feed_forward") == "parameter_attention":  # which has no ReLU
        changes["activation_dropout"] = 0.0
    return build(preset("base", changes)).train()


def cut(tokens, rows):
    """Some rows in that order, padded to the longest of them."""
    lengths = tokens.lengths[rows]
    return Tokens(tokens.ids[rows, : lengths.max()], lengths, tokens.seeds[rows])


def learn(model, *batches):
    """The summed objective, and its gradient, of the pairs in these batches."""
    model.zero_grad()
    total = 0.0
    for rows in batches:
        source, target = cut(SOURCE, rows), cut(TARGET, rows)
        objective = model(source, target, LABELS[rows][:, : target.ids.shape[1]]).objective
        objective.backward()
        total += objective.item()
    return total, {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def in_plain_and_some_in(ways):
    """Every other model in PyTorch's operations, and some of the others in each set of kernels; the rest is slow."""
    for way in ways:
        for one in every(2, VARIANTS) if way == "plain" else every(4, VARIANTS, 1):
            yield pytest.param(one.values[0], way, id=f"{one.id}-{way}", marks=one.marks)


@pytest.mark.parametrize(("variant", "way"), [*in_plain_and_some_in(WAYS)], indirect=True)
@pytest.mark.usefixtures("way")
def test_any_batches_in_any_order_learn_the_same(variant):
    model = make(variant)
    loss, gradients = learn(model, [0, 1, 2, 3])
    for batches in ([[3, 1, 0, 2]], [[2], [3, 1], [0]]):
        found, others = learn(model, *batches)
        assert found == pytest.approx(loss, rel=1e-5)
        torch.testing.assert_close(others, gradients, rtol=1e-4, atol=1e-4)
    assert abs(learn(model.eval(), [0, 1, 2, 3])[0] - loss) > 1e-2


def test_every_way_learns_the_same(way):
    """Up to rounding: the plain way's loss, in float64, is the C++ kernels' too."""
    loss, _ = learn(make(), [0, 1, 2, 3])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transduce.kernels.native._library", lambda: None)
        expected, _ = learn(make().double(), [0, 1, 2, 3])
    assert loss == pytest.approx(expected, rel=1e-5)
    assert way


@pytest.mark.parametrize("rate", RATES)
def test_each_dropout_alone_follows_from_the_seeds(rate):
    model = make(**dict.fromkeys(RATES, 0.0) | {rate: 0.5})
    torch.manual_seed(1)
    loss, _ = learn(model, [0, 1, 2, 3])
    torch.manual_seed(2)
    assert learn(model, [0, 1], [2, 3])[0] == pytest.approx(loss, rel=1e-5)
    others = replace(SOURCE, seeds=SOURCE.seeds + 1), replace(TARGET, seeds=TARGET.seeds + 1)
    assert model(*others, LABELS).objective.item() != pytest.approx(loss, rel=1e-3)


def test_a_pairs_seed_is_its_own():
    """Of two pairs, another seed for one changes nothing of the other."""
    model = make()
    source, target = cut(SOURCE, [0, 1]), cut(TARGET, [0, 1])
    changed = torch.stack([source.seeds[0], source.seeds[1] + 1])
    hidden, others = (
        model.decode(model.encode(replace(source, seeds=seeds)), replace(target, seeds=seeds)).hidden
        for seeds in (source.seeds, changed)
    )
    torch.testing.assert_close(hidden[:3], others[:3])  # the first pair's three symbols
    assert (hidden[3:] != others[3:]).any(dim=1).all()


def test_every_dropout_of_a_model_has_a_number_of_its_own(variant):
    model = make(variant)
    # Those of a mixture's experts share a number, and draw apart (tests/layers/test_mixture_of_experts.py).
    dropouts = [
        module
        for name, module in model.named_modules()
        if isinstance(module, Dropout) and (".experts." not in name or ".experts.0." in name)
    ]
    # Two of embeddings; of the sub-layers, each has one inside and one on its output.
    layers = len(model.encoder) * 2 + len(model.decoder) * 3
    none = len(model.decoder) * (not model.config.average_feed_forward)  # an average's is its network's
    assert len(dropouts) == 2 + 2 * layers - none
    assert len({each.number for each in dropouts}) == len(dropouts)


def test_without_seeds_torchs_generator_decides():
    model, source, target = make(), replace(SOURCE, seeds=None), replace(TARGET, seeds=None)
    losses = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        losses.append(model(source, target, LABELS).objective.item())
    assert losses[0] == losses[1] != losses[2]


def test_seeds_mean_nothing_outside_training():
    model = make().eval()
    found = model(SOURCE, TARGET, LABELS).objective
    assert found == model(replace(SOURCE, seeds=None), replace(TARGET, seeds=None), LABELS).objective
