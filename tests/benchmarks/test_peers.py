"""A comparison of speed is fair where all that are compared compute the same: losses, and gradients through Adam."""

import functools
import math
from statistics import mean, stdev

import pytest
import torch

from benchmarks.peers.batches import fixed_corpus, mixed_corpus
from benchmarks.peers.contestant import make_contestants, peer_loss
from benchmarks.peers.marian import MarianPeer
from benchmarks.peers.sizes import make_config
from benchmarks.peers.torch_nn import TorchPeer
from transduce.models import build
from transduce.training import compute_loss

VOCABULARY = 101
SMALL = {"encoder_layers": 2, "decoder_layers": 3, "d_model": 20, "d_ff": 28}
CORPORA = {"mixed": mixed_corpus(300, 200, VOCABULARY), "fixed": fixed_corpus(7, 11, VOCABULARY)}


def make_ours(**changes):
    torch.manual_seed(5)
    model = build(make_config("tiny", VOCABULARY, **{**SMALL, **changes}))
    for name, parameter in model.named_parameters():
        if "norm" in name or "bias" in name:  # so that no scale is one and no shift is zero
            torch.nn.init.normal_(parameter, mean=float("weight" in name), std=0.3)
    return model


def test_marian_computes_attention_as_it_is_told():
    pytest.importorskip("transformers")
    for attention in ("eager", "sdpa"):
        assert MarianPeer(make_ours(), attention).model.config._attn_implementation == attention


def our_loss(model, batch):
    sums = compute_loss(model, batch, torch.float32)
    return sums.objective / batch.target_tokens


PEERS = {
    "marian-eager": lambda ours: MarianPeer(ours, "eager"),
    "marian-sdpa": lambda ours: MarianPeer(ours, "sdpa"),
    "torch-nn": TorchPeer,
}


@pytest.mark.parametrize("corpus", CORPORA)
@pytest.mark.parametrize("name", PEERS)
def test_every_peer_computes_our_loss_and_our_gradient_of_what_is_shared(name, corpus):
    if name.startswith("marian"):
        pytest.importorskip("transformers")
    batch, ours = CORPORA[corpus].batches[0], make_ours(dropout=0.0)
    peer = PEERS[name](ours)
    expected, found = our_loss(ours, batch), peer_loss(peer, batch)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)
    expected.backward()
    found.backward()
    shared = peer.embedding if name == "torch-nn" else peer.model.model.shared.weight
    torch.testing.assert_close(shared.grad, ours.embedding.weight.grad, rtol=1e-4, atol=1e-6)


def test_with_pre_norm_torchs_layers_compute_our_loss_too():
    batch, ours = CORPORA["mixed"].batches[0], make_ours(dropout=0.0, norm="pre")
    torch.testing.assert_close(peer_loss(TorchPeer(ours), batch), our_loss(ours, batch), rtol=1e-5, atol=0)


def train_all():
    """Every contestant, and its losses of three steps from the first weights.

    Ours share weights, and so do those of one name: each of them is taken from contestants that were made anew.
    """
    trained, count = {}, None
    while len(trained) != count:
        made = list(make_contestants(make_ours(dropout=0.0)))
        count, changed = len(made), set()
        for contestant, step in made:
            shared = "ours" if contestant.family == "ours" else contestant.name
            if contestant not in trained and shared not in changed:
                changed.add(shared)
                trained[contestant] = [float(step(batch, 1e-3)) for batch in CORPORA["mixed"].take(0, 1) * 3]
    return trained


def test_all_contestants_train_alike():
    trained = train_all()
    (exact,) = [
        losses
        for contestant, losses in trained.items()
        if contestant.name == "transduce" and contestant.precision == "float32"
    ]
    assert exact[2] < exact[0] - 0.05  # or no test of the steps, only of the first loss
    for contestant, losses in trained.items():
        tolerance = {"float32": 1e-4, "bfloat16 autocast": 0.01, "bfloat16 weights": 0.05}[contestant.precision]
        assert losses == pytest.approx(exact, abs=tolerance), contestant
    assert {contestant.family for contestant in trained} >= {"ours", "torch.nn"}


def mean_loss(loss, model, batch):
    """The mean loss over some passes with dropout, and its standard error."""
    with torch.no_grad():
        losses = [float(loss(model.train(), batch)) for _ in range(16)]
    return mean(losses), stdev(losses) / math.sqrt(len(losses))


@functools.cache
def our_losses_with_dropout():
    """A batch and a model, and the mean losses with dropout at the paper's places and inside layers too."""
    batch, ours = fixed_corpus(97, 11, VOCABULARY).batches[0], make_ours(dropout=0.3)
    inside = make_ours(
        dropout=0.3, attention_dropout=0.3, activation_dropout=0.3
    )  # where torch's own default has it too
    return batch, ours, mean_loss(our_loss, ours, batch), mean_loss(our_loss, inside, batch)


@pytest.mark.parametrize("name", ["marian-sdpa", "torch-nn"])
def test_dropout_stands_in_the_same_places(name):
    if name.startswith("marian"):
        pytest.importorskip("transformers")
    batch, ours, (expected, error), (inside, _) = our_losses_with_dropout()
    found, other_error = mean_loss(peer_loss, PEERS[name](ours), batch)
    assert found == pytest.approx(expected, abs=4 * math.hypot(error, other_error))
    assert inside > expected + 8 * error
