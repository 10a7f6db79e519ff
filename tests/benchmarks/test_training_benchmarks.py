"""That the benchmarks run, and that what they count is there."""

import gzip
import json

import numpy as np
import pytest

from benchmarks import gpu_training, training
from benchmarks.peers.batches import fixed_corpus, mixed_corpus
from benchmarks.peers.ceiling import record_products
from benchmarks.peers.contestant import make_contestants
from benchmarks.peers.loss_curves import WITHIN, smooth
from benchmarks.peers.sizes import SIZES, make_config
from transduce.models import build
from transduce.training import step_work
from transduce.workflows.flops import count_training

VOCABULARY = 101
BEGIN, END = 1, 2
SMALL = {"encoder_layers": 2, "decoder_layers": 3, "d_model": 20, "d_ff": 28, "heads": 4}


def test_the_recorded_products_are_all_operations_of_a_step(monkeypatch):
    corpus = fixed_corpus(8, 11, VOCABULARY)  # of 88 symbols a side, which need no fillers
    config = make_config("tiny", VOCABULARY, **SMALL)
    contestants = dict(make_contestants(build(config)))
    step = next(step for each, step in contestants.items() if each.name == "transduce" and each.precision == "float32")
    # Attention by the plain formula, whose products are the library's too.
    monkeypatch.setattr("transduce.kernels.ragged_attention.has_native", lambda *_: False)
    # A product of m x k and k x n matrices, of each head of each pair, takes 2 m k n operations.
    counted = sum(
        count * 2 * np.prod(left.shape) * right.shape[-1]
        for (left, right), count in record_products(step, corpus.batches[0]).items()
    )
    assert counted == count_training(config, step_work(corpus.batches))


def test_mixed_batches_are_within_their_budget_and_shifted_by_one():
    for batch in mixed_corpus(500, 300, VOCABULARY).batches:
        assert max(batch.source.size, batch.target.size) <= 300
        for row, length in enumerate(batch.target_lengths):
            assert batch.labels[row, length - 1] == END
            assert END not in batch.labels[row, : length - 1]
            assert batch.target[row, 0] == BEGIN
            assert (batch.target[row, 1:length] == batch.labels[row, : length - 1]).all()


def test_a_smoothed_loss_is_the_mean_of_its_window():
    assert smooth([1, 2, 6, 10], window=3).tolist() == [3, 6]
    assert smooth([1, 2, 6], window=50).tolist() == [3]


@pytest.fixture
def data(tmp_path):
    lines = "".join(f"{a} dogs and {b} cats\n" for a in range(2, 19) for b in range(3, 29))
    for language in ("en", "de"):
        (tmp_path / f"train.{language}.gz").write_bytes(gzip.compress(lines.encode()))
    return tmp_path


def run_quickly(module, monkeypatch, data, *arguments):
    """What a benchmark writes of the smallest of trainings: its Markdown, and its figures."""
    monkeypatch.setitem(SIZES, "tiny", SMALL)
    common = ("--quick", "--data", str(data), "--out", str(data), "--batch-tokens", "48")
    monkeypatch.setattr("sys.argv", ["", *common, *arguments])
    module.main()
    name = module.__name__.rpartition(".")[2]
    return (data / f"{name}.md").read_text(), json.loads((data / f"{name}.json").read_text())


@pytest.mark.slow  # a process for each peer; test_training_on_one_device goes the same way
def test_training_beside_its_peers(monkeypatch, data):
    page, figures = run_quickly(training, monkeypatch, data, "--threads", "1", "--curves", "2")
    real, fixed = figures["sections"]
    assert f"| tiny | {real['batches']} | {real['ratio_to_best_peer']:.2f} | {real['best_peer']} |" in page
    assert "one batch of 3 pairs of 16 tokens" in fixed["batches"]
    assert {curve["dropout"] for curve in figures["curves"]} == {0.0, 0.1}
    with_float32 = [curve for curve in figures["curves"] if curve["other"].endswith("in float32")]
    assert all(f"| {curve['other_end']:.4f} | {curve['largest_difference']:.4f} |" in page for curve in with_float32)
    assert any(curve["one"].startswith("transduce in ") for curve in with_float32)
    names = {result["name"] for result in real["results"]}
    assert names >= {"transduce", "nn.Transformer", "our step's matrix products alone"}
    assert "products" not in real["best_peer"]
    assert real["products_alone_to_best_peer"] * real["products_share_of_step"] == pytest.approx(
        real["ratio_to_best_peer"]
    )  # of one round, whose medians are the figures themselves
    assert all(f"| {name} |" in page for name in names)


def test_training_on_one_device(monkeypatch, data):
    page, figures = run_quickly(gpu_training, monkeypatch, data, "--device", "cpu")
    ours, *peers = figures["speeds"]
    assert ours["contestant"]["family"] == "ours"
    assert {peer["contestant"]["family"] for peer in peers} >= {"torch.nn"}
    for speed in figures["speeds"]:
        use = speed["flops"] / figures["large_product_flops"]
        assert f"| {speed['target_tokens']:,.0f} | {speed['source_tokens']:,.0f} |" in page
        assert f"| {use:.1%} |" in page
    assert figures["curve"]["largest_difference"] < WITHIN
