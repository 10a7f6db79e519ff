"""Searching with a shortlist: the same in any batch, everything where it holds everything, and what is asked for."""

import pytest
import torch

from tests.inference.test_inference_invariance import PRECISIONS, SOURCES, SPECIAL, engine, search_settings
from transduce.bundle import load_bundle
from transduce.inference import Translator
from transduce.kernels import has_native
from transduce.models import Shortlist
from transduce.search import Sampling

pytest_plugins = ["tiny_run"]

VOCABULARY = 67
WHOLE = Shortlist(torch.full((VOCABULARY, 1), -1), torch.arange(VOCABULARY), VOCABULARY)
# Seven translations of each symbol and four symbols for all: of 67, lists of about twenty.
SOME = Shortlist(
    (3 * torch.arange(VOCABULARY).unsqueeze(1) + 5 * torch.arange(7)) % VOCABULARY, torch.arange(4, 8), VOCABULARY
)


def search(precision, rows, beam, shortlist, budget=4096, **changes):
    settings = search_settings(beam, shortlist=shortlist, **changes)
    found = engine(precision, 1, budget).search([SOURCES[row] for row in rows], settings, 11)
    return [[(each.ids, each.log_probability) for each in several] for several in found]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("beam", [1, 3])
def test_with_the_whole_vocabulary_nothing_changes(precision, beam):
    every = range(len(SOURCES))
    assert search(precision, every, beam, WHOLE) == search(precision, every, beam, None)


@pytest.mark.skipif(not has_native(torch.empty(0)), reason="PyTorch's own sums depend on how many rows there are")
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("beam", [1, 3])
def test_outputs_are_batch_invariant(precision, beam):
    """Bit for bit: the whole batch, in another order with newcomers, and each sentence alone."""
    every = range(len(SOURCES))
    expected = search(precision, every, beam, SOME)
    assert search(precision, every[::-1], beam, SOME, budget=100)[::-1] == expected
    for row in (0, 7, 18):
        assert search(precision, [row], beam, SOME) == [expected[row]]
    assert expected != search(precision, every, beam, None)


@pytest.mark.parametrize("changes", [{}, {"diversity": 0.1}, {"sampling": Sampling(top_k=9)}], ids=str)
def test_outputs_keep_to_their_lists(changes):
    for source, several in zip(SOURCES, search("float32", range(len(SOURCES)), 3, SOME, **changes), strict=True):
        allowed = {*SOME.frequent.tolist(), *SOME.translations[[*source, SPECIAL.end]].flatten().tolist()}
        assert all(allowed.issuperset(ids) for ids, _ in several)


@pytest.fixture(scope="module")
def speechless(trained_run):
    """A model whose lists hold nothing of their own."""
    bundle = load_bundle(trained_run)
    size = bundle.tokenizers.target.vocab_size
    empty = Shortlist(torch.full((size, 2), -1), torch.zeros(0, dtype=torch.long), size)
    return Translator(bundle, "float32", shortlist=empty)


def test_what_is_asked_for_can_be_written(speechless):
    texts = ["bamo dulu", "wemo", "luso"]
    found = speechless.translate(texts, prefixes=["yob ti", "", "ved"], length_penalty=0.0)
    assert [each.text for each in found] == ["yob ti", "", "ved"]
    found = speechless.translate(texts, must_contain=[["sor"], [], ["hax", "mup"]], beam_size=4)
    assert "sor" in found[0].text
    assert found[1].text == ""
    assert "hax" in found[2].text
    assert "mup" in found[2].text


def test_several_models_keep_to_one_list(trained_run, translator):
    bundle = load_bundle(trained_run)
    size = bundle.tokenizers.target.vocab_size
    whole = Shortlist(torch.full((size, 1), -1), torch.arange(size), size)
    (found,) = Translator([bundle, bundle], "float32", shortlist=whole).translate(["bamo dulu kari"])
    (expected,) = translator.translate(["bamo dulu kari"])
    assert found.text == expected.text
    assert found.log_probability == pytest.approx(expected.log_probability, abs=1e-4)
