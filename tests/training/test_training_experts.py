"""Mixtures of experts in training: loads fall towards even, and are counted the same however pairs are cut."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from transduce.config import SpecialIds, TrainConfig, preset
from transduce.data import Batch, Store, write_store
from transduce.layers import MixtureOfExperts
from transduce.models import build
from transduce.training import (
    Corpora,
    DevOutputs,
    Hooks,
    Progress,
    Report,
    Training,
    compute_loss,
    make_optimizer,
    step_seed,
    train,
)
from transduce.training.micro_batches import split
from transduce.training.session import Sums

EXPERTS = 5
SIZES = {
    "encoder_layers": 1,
    "decoder_layers": 2,
    "d_model": 12,
    "d_ff": 6,
    "heads": 2,
    "vocab_size": 23,
    "dropout": 0.1,
    "feed_forward": "mixture_of_experts",
    "experts": EXPERTS,
    "experts_per_token": 2,
}


def make(**changes):
    torch.manual_seed(3)
    return build(preset("base", SIZES | changes)).train()


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    folder, random = tmp_path_factory.mktemp("store"), np.random.default_rng(7)
    pairs = [tuple(random.integers(4, 23, length).tolist() for length in random.integers(2, 9, 2)) for _ in range(83)]
    for name, part in (("train", pairs[11:]), ("dev", pairs[:11])):
        write_store(folder / name, [(*pair, 0) for pair in part], {})
    return Corpora(Store(folder / "train"), Store(folder / "dev"), SpecialIds(pad=0, begin=1, end=2, unknown=3))


def test_loads_fall_towards_even(corpora, tmp_path):
    model = make(importance_loss=1.0, load_loss=1.0)
    for layer in model.modules():  # at first, all symbols like the same two
        if isinstance(layer, nn.LayerNorm):
            nn.init.ones_(layer.bias)
        if isinstance(layer, MixtureOfExperts):
            nn.init.constant_(layer.gate[:2], 0.1)
    config = TrainConfig(
        batch_tokens=256, max_steps=30, precision="float32", learning_rate=0.02, warmup_steps=1, log_every=10,
        validate_every=30, checkpoint_every=30,
    )  # fmt: skip
    with Report(tmp_path / "metrics.jsonl", max_steps=30, step=0) as report:
        hooks = Hooks(lambda _: DevOutputs({"bleu": 0.0}), lambda _: None)
        optimizer = make_optimizer(model, config)
        first = _busiest(model, corpora)
        train(Training(model, optimizer, corpora, config, tmp_path / "checkpoints", report, hooks), Progress())
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    learned = [line["busiest_expert"] for line in lines if line["split"] == "train"]
    assert [len(layers) for layers in learned] == [3, 3, 3]
    # 2.5 would be as uneven as can be: each symbol goes to two of five.
    assert min(first) > 2
    assert max(learned[-1]) < 1.5
    assert lines[-1]["split"] == "dev"
    assert len(lines[-1]["busiest_expert"]) == 3


def _busiest(model, corpora):
    return _measure(model, [_batch(corpora.train, range(40))]).own_figures()["busiest_expert"]


def _batch(store, rows):
    pairs = [store.pair(row) for row in rows]
    lengths = [np.array([len(pair[side]) for pair in pairs]) for side in (0, 1)]
    ids = [
        np.array([np.pad(pair[side], (0, lengths[side].max() - len(pair[side]))) for pair in pairs], np.int64)
        for side in (0, 1)
    ]
    return Batch(ids[0], lengths[0], ids[1], ids[1], lengths[1], np.array(rows))


@torch.no_grad()
def _measure(model, batches):
    sums = Sums.zero(torch.device("cpu"))
    for batch in batches:
        sums = sums.add(compute_loss(model, batch, torch.float32, step_seed(1, 5)), batch.target_tokens)
    return sums


def test_loads_are_those_of_a_whole_batch_in_whatever_micro_batches(corpora):
    model, batch = make(), _batch(corpora.train, range(17))
    whole = _measure(model, [batch]).loads
    sides = [int(lengths.sum()) for lengths in (batch.source_lengths, batch.target_lengths)]
    assert whole.sum(dim=1).tolist() == [2 * sides[0], 2 * sides[1], 2 * sides[1]]
    for parts in (2, 5, 17):
        assert _measure(model, split(batch, parts)).loads.equal(whole)
    # What has no weight is in no count.
    weights = np.array([1.0] * 11 + [0.0] * 6, np.float32)
    part = _measure(model, [replace(batch, weights=weights)]).loads
    assert part.equal(_measure(model, [_batch(corpora.train, range(11))]).loads)


def test_of_a_batch_the_loss_is_each_micro_batchs_and_of_pairs_the_whole_batchs(corpora):
    """As its description says: what is balanced over a batch is another loss where the batch is cut."""
    batch = _batch(corpora.train, range(17))
    for balance, same in (("pair", True), ("batch", False)):
        model = make(expert_balance=balance)
        one, other = (_measure(model, parts).own_figures()["auxiliary_loss"] for parts in ([batch], split(batch, 17)))
        assert (one == pytest.approx(other, rel=1e-5)) == same


def test_a_step_that_was_skipped_is_in_no_count(corpora):
    model, batch = make(), _batch(corpora.train, range(17))
    sums = Sums.zero(torch.device("cpu"))
    losses = compute_loss(model, batch, torch.float32, step_seed(1, 5)).detach()
    sums = sums.add(losses, 1, torch.tensor(True)).add(losses, 1, torch.tensor(False))
    assert sums.loads.equal(losses.loads)
    assert Sums.zero(torch.device("cpu")).own_figures() == {}


def test_busiest_is_the_largest_load_over_the_mean():
    sums = replace(Sums.zero(torch.device("cpu")), loads=torch.tensor([[3, 1, 2], [5, 5, 5], [0, 0, 0]]))
    assert sums.own_figures() == {
        "busiest_expert": [1.5, 1.0, 0.0],
        "expert_loads": [[0.5, 0.1667, 0.3333], [0.3333] * 3, [0.0] * 3],
    }
