"""The benchmark of the fast paths: every variant trains."""

import pytest

from benchmarks import recurrent_step
from benchmarks.peers.batches import real_corpus
from benchmarks.peers.sizes import make_config
from benchmarks.training_step import VARIANTS, measure, show


@pytest.fixture(scope="module")
def corpus():
    return real_corpus(None, batch_tokens=128, vocab_size=300, made_up=100)


def test_every_variant_is_measured_in_every_round(corpus):
    speeds = measure(make_config("tiny", corpus.vocab_size), corpus, steps=1, rounds=2)
    assert list(speeds) == list(VARIANTS)
    assert all(len(each) == 2 and min(each) > 0 for each in speeds.values())
    assert len(show("tiny", corpus, speeds)) == 4 + len(VARIANTS)


def test_every_recurrent_system_is_measured(corpus):
    found = recurrent_step.models(vocab_size=300)
    assert list(found) == ["multi30k-recurrent", "deep-att", "gnmt", "no-attention", "moe"]
    config = found["gnmt"].model_copy(update={"vocab_size": corpus.vocab_size})
    assert list(measure(config, corpus, 1, 1, recurrent_step.VARIANTS)) == list(recurrent_step.VARIANTS)
