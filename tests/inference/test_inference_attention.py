"""All attention weights of one forced pass."""

from dataclasses import replace

import numpy as np
import pytest

import transduce
from transduce.bundle import load_bundle
from transduce.config import BadInputError
from transduce.inference import Translator
from transduce.models import build

pytest_plugins = ["tiny_run"]

KINDS = ("encoder", "decoder", "cross")


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_every_layer_and_head_of_each_kind(trained_run, precision):
    translator = transduce.load(trained_run, precision)
    maps = translator.attend("bamo dulu kari")
    assert maps.source == (" bamo", " dulu", " kari", "</s>")
    assert maps.target == (" ti", " sor", " mup", "</s>")
    assert maps.read == ("<s>", " ti", " sor", " mup")
    assert maps.source_words == maps.target_words == (0, 1, 2, 3)
    for kind in KINDS:
        weights = maps.of(kind)
        assert weights.shape == (1, 2, len(maps.queries(kind)), len(maps.keys(kind)))
        np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-5)
    assert np.triu(maps.of("decoder")[0, 0], k=1).max() == 0  # nothing looks ahead
    (output,) = translator.translate(["bamo dulu kari"], return_attention=True)
    np.testing.assert_allclose(maps.of("cross")[-1], output.attention, atol=1e-6)


def test_a_target_of_ones_own(translator):
    maps = translator.attend("bamo dulu", "mup ti ti yob")
    assert maps.target == (" mup", " ti", " ti", " yob", "</s>")
    assert maps.of("cross").shape == (1, 2, 5, 3)
    assert translator.attend("bamo", "").target == ("</s>",)


def test_an_ensemble_has_the_heads_of_all(trained_run, translator):
    both = transduce.load([trained_run, trained_run], "float32")
    one, two = (each.attend("wemo", "yob") for each in (translator, both))
    for kind in KINDS:
        np.testing.assert_allclose(two.of(kind), np.concatenate([one.of(kind)] * 2, axis=1), rtol=1e-5)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (("", None), "the source is empty"),
        ((None, "yob"), "the source is NoneType: give a string"),
        ((["wemo"], None), "the source is list"),
        (("wemo", 3), "the target is int"),
        (("wemo " * 3000, "yob"), "source: 3,000 tokens|source: .*3,00"),
        (("wemo", "yob " * 3000), "target: "),
    ],
)
def test_what_cannot_be_looked_at_is_named(translator, given, named):
    with pytest.raises(BadInputError, match=named):
        translator.attend(*given)


def test_where_the_end_of_the_source_is_not_read_nothing_looks_at_it(trained_run):
    """As OpenNMT-py's and eole's models: coverage does not wait for it, and heads can be measured and drawn."""
    bundle = load_bundle(trained_run)
    model = build(bundle.config.model_copy(update={"source_end": False}))
    model.load_state_dict(bundle.model.state_dict())
    translator = Translator(replace(bundle, model=model), "float32")
    maps = translator.attend("bamo dulu kari")
    assert maps.source == (" bamo", " dulu", " kari", "</s>")
    assert (maps.of("encoder").shape[2:], maps.of("cross").shape[3]) == ((4, 4), 4)
    assert maps.of("encoder")[..., -1].max() == maps.of("cross")[..., -1].max() == 0
    np.testing.assert_allclose(maps.of("cross").sum(axis=-1), 1, rtol=1e-5)
    roles = translator.measure_heads(["bamo dulu kari"], ["ti sor mup"])
    assert all(np.isfinite(sums).all() for kind in roles.ratios.values() for sums in kind.values())
    plain, covered = (translator.translate("bamo dulu kari", coverage_penalty=beta) for beta in (0.0, 0.2))
    assert covered.score > plain.score - 5  # of a symbol that is never looked at, it would be 17 less
