from typing import get_args

import pytest
from pydantic import ValidationError

from transduce.config import METRICS, MetricKey, TrainConfig
from transduce.config.metrics import perplexity


def test_every_metric_has_a_row():
    assert list(METRICS) == list(get_args(MetricKey))


@pytest.mark.parametrize("key", METRICS)
def test_a_rank_grows_with_what_is_better(key):
    metric = METRICS[key]
    better, worse = (3.0, 5.0) if key in {"loss", "perplexity", "ter"} else (5.0, 3.0)
    assert metric.rank(better) > metric.rank(worse)
    assert metric.rank(metric.rank(better)) == better


def test_decimals():
    assert METRICS["bleu"].show(37.456) == "37.46"
    assert METRICS["comet"].show(0.81237) == "0.8124"
    assert METRICS["loss"].show(1.6277) == "1.628"


def test_a_large_perplexity_is_not_cut():
    """e^25 is 72,004,899,337."""
    shown = [METRICS["perplexity"].show(perplexity(loss)) for loss in (2.0, 25.0, 1e3, float("inf"), float("nan"))]
    assert shown == ["7.39", "7.2e+10", "8.22e+307", "8.22e+307", "nan"]  # JSON has no infinity


@pytest.mark.parametrize("key", METRICS)
def test_dev_is_measured_by_all_that_need_no_trained_model(key):
    if key == "comet":
        with pytest.raises(ValidationError, match="choose from bleu, chrf, ter, exact, brackets, loss, perplexity"):
            TrainConfig(best_metric=key)
    else:
        assert TrainConfig(best_metric=key).best_metric == key
