"""The benchmark of the fast paths: every variant trains."""

from benchmarks.peers.batches import real_corpus
from benchmarks.training_step import VARIANTS, measure, show


def test_every_variant_is_measured_in_every_round():
    corpus = real_corpus(None, batch_tokens=128, vocab_size=300)
    speeds = measure("tiny", corpus, steps=1, rounds=2)
    assert list(speeds) == list(VARIANTS)
    assert all(len(each) == 2 and min(each) > 0 for each in speeds.values())
    assert len(show("tiny", corpus, speeds)) == 4 + len(VARIANTS)
