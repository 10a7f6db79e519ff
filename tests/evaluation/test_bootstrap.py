import logging
import os
import random
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import sacrebleu

from transduce.config import BadInputError
from transduce.evaluation import SAMPLES, SEED, make_scorer, paired_bootstrap

LINES = 41
WORDS = ["bamo", "dulu", "fepi", "gozu", "kari", "luso", "wemo"]


def _spoil(line, chance, share):
    return " ".join(random.Random(3).choice(WORDS) if chance.random() < share else word for word in line.split())


@pytest.fixture(scope="module")
def texts():
    """References, outputs with about one wrong word in ten, and outputs with about one in three."""
    chance = random.Random(7)
    references = [" ".join(chance.choices(WORDS, k=chance.randint(4, 9))) for _ in range(LINES)]
    return references, *([_spoil(line, chance, share) for line in references] for share in (0.1, 0.33))


def _samples(number, seed):
    """The lines of each drawn test set, as sacreBLEU documents its drawing."""
    return np.random.default_rng(seed).choice(LINES, size=(number, LINES), replace=True)


def _interval(scores):
    """Half the distance from the 2.5th to the 97.5th of a hundred."""
    ordered = sorted(scores)
    aside = len(ordered) // 40
    return (ordered[-1 - aside] - ordered[aside]) / 2


def _expected(ours, theirs, difference):
    """Mean and interval of each, and the share of differences that stray further from their mean than the true one."""
    apart = np.abs(np.array(ours) - np.array(theirs))
    further = sum(apart - apart.mean() > abs(difference))
    return np.mean(ours), _interval(ours), np.mean(theirs), _interval(theirs), (further + 1) / (len(ours) + 1)


def _figures(comparison):
    ours, theirs = comparison.ours, comparison.theirs
    return ours.mean, ours.confidence, theirs.mean, theirs.confidence, comparison.p_value


def test_exact_lines_are_resampled_as_by_hand(texts):
    references, ours, theirs = texts
    (comparison,) = paired_bootstrap({"exact": make_scorer("exact")}, references, ours, theirs, samples=400, seed=11)
    right = [np.array([100.0 * (a == b) for a, b in zip(side, references, strict=True)]) for side in (ours, theirs)]
    assert (comparison.ours.value, comparison.theirs.value) == pytest.approx([side.mean() for side in right])
    drawn = [side[_samples(400, 11)].mean(axis=1) for side in right]
    difference = right[0].mean() - right[1].mean()
    assert _figures(comparison) == pytest.approx(_expected(*drawn, difference), rel=1e-5)
    assert 0 < comparison.p_value < 1


@pytest.mark.parametrize(("metric", "function"), [("bleu", sacrebleu.corpus_bleu), ("chrf", sacrebleu.corpus_chrf)])
def test_each_sample_is_scored_as_a_test_set_of_its_own(texts, metric, function):
    references, ours, theirs = texts
    (comparison,) = paired_bootstrap({metric: make_scorer(metric)}, references, ours, theirs, samples=53, seed=5)

    def score(outputs, lines):
        return function([outputs[line] for line in lines], [[references[line] for line in lines]]).score

    whole = [score(side, range(LINES)) for side in (ours, theirs)]
    assert [comparison.ours.value, comparison.theirs.value] == pytest.approx(whole)
    drawn = [[score(side, lines) for lines in _samples(53, 5)] for side in (ours, theirs)]
    assert _figures(comparison) == pytest.approx(_expected(*drawn, whole[0] - whole[1]), rel=1e-4)


def test_a_clear_difference_is_significant_and_a_small_one_is_not(texts):
    references, ours, theirs = texts
    scorers = {"bleu": make_scorer("bleu")}
    (clear,) = paired_bootstrap(scorers, references, ours, theirs)
    assert clear.ours.value > clear.theirs.value + 10
    assert clear.p_value < 0.01
    one_line_worse = [theirs[0], *ours[1:]]
    assert one_line_worse != ours
    (small,) = paired_bootstrap(scorers, references, ours, one_line_worse)
    assert small.p_value > 0.05


def test_metrics_keep_their_names_order_and_signatures(texts):
    scorers = {metric: make_scorer(metric) for metric in ("ter", "exact", "bleu", "chrf")}
    comparisons = paired_bootstrap(scorers, *texts, samples=23, seed=17)
    assert [each.metric for each in comparisons] == ["ter", "exact", "bleu", "chrf"]
    assert all({"bs:23", "seed:17"} <= set(each.signature.split("|")) for each in comparisons)
    assert "tok:13a" in comparisons[2].signature
    assert f"lines:{LINES}" in comparisons[1].signature


def test_nothing_depends_on_what_was_drawn_before(texts):
    scorers = {"chrf": make_scorer("chrf")}
    first = paired_bootstrap(scorers, *texts, samples=50)
    assert paired_bootstrap(scorers, *texts, samples=50) == first
    other_seed = paired_bootstrap(scorers, *texts, samples=50, seed=SEED + 1)
    assert other_seed[0].ours.value == first[0].ours.value
    assert other_seed[0].ours.mean != first[0].ours.mean


@pytest.mark.parametrize("before", [None, "none", "77"])
def test_the_seed_is_the_argument_and_the_environment_stays(texts, monkeypatch, before):
    expected = paired_bootstrap({"exact": make_scorer("exact")}, *texts, samples=50)
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    if before is not None:
        monkeypatch.setenv("SACREBLEU_SEED", before)
    assert paired_bootstrap({"exact": make_scorer("exact")}, *texts, samples=50) == expected
    assert os.environ.get("SACREBLEU_SEED") == before


def test_threads_keep_their_own_seeds(texts, monkeypatch):
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)

    def compare(seed):
        return paired_bootstrap({"exact": make_scorer("exact")}, *texts, samples=50, seed=seed)

    seeds = [1 + number % 5 for number in range(60)]
    expected = {seed: compare(seed) for seed in range(1, 6)}
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # they take turns in the middle of everything
    try:
        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(compare, seeds)) == [expected[seed] for seed in seeds]
    finally:
        sys.setswitchinterval(before)
    assert "SACREBLEU_SEED" not in os.environ


@pytest.mark.parametrize("metric", ["bleu", "exact"])
def test_an_output_does_not_differ_from_itself(texts, metric):
    references, ours, _ = texts
    (comparison,) = paired_bootstrap({metric: make_scorer(metric)}, references, ours, list(ours), samples=50)
    assert comparison.ours == comparison.theirs
    assert comparison.p_value == 1


def test_it_works_in_silence_in_one_process(texts, capfd, caplog):
    with caplog.at_level(logging.WARNING):
        paired_bootstrap({"bleu": make_scorer("bleu")}, *texts, samples=50)
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


def test_bad_numbers_and_lengths_are_refused(texts):
    references, ours, theirs = texts
    scorers = {"exact": make_scorer("exact")}
    with pytest.raises(BadInputError, match="40 outputs but 41 references"):
        paired_bootstrap(scorers, references, ours, theirs[1:])
    with pytest.raises(BadInputError, match="0 samples"):
        paired_bootstrap(scorers, *texts, samples=0)
    # sacreBLEU would take no seed at all.
    with pytest.raises(BadInputError, match="seed 0"):
        paired_bootstrap(scorers, *texts, samples=3, seed=0)


def test_a_thousand_samples_are_the_default():
    assert SAMPLES == 1000
