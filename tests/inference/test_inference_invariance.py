"""A sentence's output and score are the same alone, in any batch, order or chunking, with one worker or several."""

import copy
from functools import lru_cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.config import SpecialIds, preset
from transduce.inference import Engine
from transduce.inference.workers import Workers
from transduce.models import build, can_run_natively, make_ready
from transduce.search import SearchSettings

SPECIAL = SpecialIds(0, 1, 2, 3)
SIZES = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 44, "d_ff": 76, "heads": 4, "vocab_size": 67}
SOURCES = [[4 + (7 * row + 3 * place) % 60 for place in range(1 + 5 * row % 13)] for row in range(19)]
PRECISIONS = ["float32", "bfloat16", "int8"]


def search_settings(beam, **changes):
    forbidden = SPECIAL.pad, SPECIAL.begin
    return SearchSettings(SPECIAL.begin, SPECIAL.end, forbidden, beam_size=beam, n_best=beam, **changes)


@lru_cache
def engine(precision, workers, budget):
    torch.manual_seed(3)
    model = build(preset("base", SIZES))
    model.embedding.weight.data *= 1.5  # sharper distributions: outputs of different lengths
    return Engine(model, SPECIAL, precision, batch_tokens=budget, workers=workers)


@lru_cache
def alone(precision, beam):
    """What each source becomes by itself."""
    return [engine(precision, 1, 4096).search([each], search_settings(beam), 11)[0] for each in SOURCES]


@pytest.mark.parametrize("precision", PRECISIONS)
@settings(max_examples=15)
@given(
    order=st.permutations(range(len(SOURCES))),
    cut=st.integers(1, len(SOURCES)),
    budget=st.sampled_from([1, 100, 4096]),
    workers=st.sampled_from([1, 4]),
    beam=st.sampled_from([1, 3]),
)
def test_outputs_are_batch_invariant(precision, order, cut, budget, workers, beam):
    expected = alone(precision, beam)
    for rows in (order[:cut], order[cut:]):
        found = engine(precision, workers, budget).search([SOURCES[row] for row in rows], search_settings(beam), 11)
        for row, several in zip(rows, found, strict=True):
            assert [each.ids for each in several] == [each.ids for each in expected[row]]
            scores = [each.score for each in expected[row]]
            assert [each.score for each in several] == pytest.approx(scores, abs=1e-4)


def test_the_sources_are_worth_searching():
    lengths = {len(several[0].ids) for several in alone("float32", 3)}
    assert len(lengths) > 3


def test_workers_keep_the_order_and_hand_errors_on():
    begun = []

    def double(number):
        begun.append(number)
        if number == 7:
            raise ValueError(number)
        return 2 * number

    assert list(Workers(3).map(double, range(5))) == [0, 2, 4, 6, 8]
    threads = torch.get_num_threads()
    with pytest.raises(ValueError, match="7"):
        list(Workers(2).map(double, range(20)))
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize(("number", "sentences", "share"), [(1, 100, 1), (2, 1, 1), (2, 15, 1), (2, 16, 2), (4, 99, 4)])
def test_shares(number, sentences, share):
    assert Workers(number).share(sentences) == share


def test_a_search_has_fewer_sentences_where_the_weights_stay_in_the_caches(monkeypatch):
    """A step of the native model reads its weights once for all rows; what the plain one reads, nobody has measured."""
    torch.manual_seed(3)
    model = build(preset("base", SIZES))
    if not can_run_natively(model):
        pytest.skip("there is nothing but the plain model")

    def room(model, limit):
        monkeypatch.setattr("transduce.inference.engine._CACHED_BYTES", limit)
        queue = (made := Engine(model, SPECIAL, "int8")).queue(1)
        queue.put(made.request([5] * 15, search_settings(2), 11) for _ in range(300))
        return len(queue.take(0, []))

    read = make_ready(copy.deepcopy(model), "int8").bytes_of_a_step
    # The output's rows are the largest of its matrices, and panels have 64 outputs each.
    assert 128 * SIZES["d_model"] < read < sum(each.numel() for each in model.parameters())
    assert room(model, read) == 1024 // (2 * 16)
    assert room(model, read - 1) == 4096 // (2 * 16)
