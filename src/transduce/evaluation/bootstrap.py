"""Whether one output is better than another, or only looks so: paired bootstrap resampling (Koehn 2004)."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Final, cast

from sacrebleu.metrics.base import Metric as SacreMetric
from sacrebleu.significance import PairedTest, Result

from transduce.config import BadInputError, MetricKey
from transduce.evaluation.metrics import Scorer, check_pairs

SAMPLES: Final = 1000
SEED: Final = 12345  # sacreBLEU's own
_SEED_VARIABLE: Final = "SACREBLEU_SEED"
_environment: Final = Lock()


@dataclass(frozen=True)
class Resampled:
    """A score, and what the samples say of it: 95% of their scores lie within ``mean`` +- ``confidence``."""

    value: float
    mean: float
    confidence: float


@dataclass(frozen=True)
class Comparison:
    """Two outputs by one metric.

    ``p_value`` is two-sided: the share of samples whose difference, moved to have no mean, is larger than the true one;
    1 where there is no difference.
    """

    metric: MetricKey
    ours: Resampled
    theirs: Resampled
    p_value: float
    signature: str


def paired_bootstrap(
    scorers: Mapping[MetricKey, Scorer],
    references: Sequence[str],
    ours: Sequence[str],
    theirs: Sequence[str],
    *,
    samples: int = SAMPLES,
    seed: int = SEED,
) -> list[Comparison]:
    """Compare two outputs by each metric, on test sets drawn with replacement from this one.

    Both outputs, and all metrics, see the same samples; the same seed gives the same figures.

    Raises:
        BadInputError: An output has not as many lines as the references, there are none, or a number is out of range.
    """
    for outputs in (ours, theirs):
        check_pairs(outputs, references)
    check_resampling(samples, seed)
    systems = {"theirs": list(theirs), "ours": list(ours)}
    return [_compare(metric, scorer, references, systems, samples, seed) for metric, scorer in scorers.items()]


def check_resampling(samples: int, seed: int) -> None:
    """Whether so many test sets can be drawn with that seed: to be known before two systems have translated one.

    Raises:
        BadInputError: A number is out of range.
    """
    if samples < 1:
        raise BadInputError(f"{samples} samples: one or more can be drawn")
    if seed < 1:
        raise BadInputError(f"seed {seed}: must be 1 or more")  # sacreBLEU takes 0 for no seed at all


def _compare(
    metric: MetricKey,
    scorer: Scorer,
    references: Sequence[str],
    systems: Mapping[str, Sequence[str]],
    samples: int,
    seed: int,
) -> Comparison:
    with _seeded(seed):
        test = PairedTest(
            list(systems.items()),
            {metric: cast(SacreMetric, scorer)},
            [list(references)],
            test_type="bs",
            n_samples=samples,
        )
    signatures, columns = test()
    (name,) = signatures  # the metric's own, such as chrF2
    baseline, system = cast(list[Result], columns[name])
    # sacreBLEU counts what is larger: of two equal outputs nothing is, and they would seem to differ for certain.
    p_value = 1.0 if system.score == baseline.score else system.p_value
    assert p_value is not None
    return Comparison(metric, _resampled(system), _resampled(baseline), p_value, str(signatures[name]))


def _resampled(result: Result) -> Resampled:
    assert result.mean is not None
    assert result.ci is not None
    return Resampled(float(result.score), float(result.mean), float(result.ci))


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Give sacreBLEU its seed, which a test reads from the environment as it is made, one thread at a time."""
    with _environment:
        before = os.environ.get(_SEED_VARIABLE)
        os.environ[_SEED_VARIABLE] = str(seed)
        try:
            yield
        finally:
            if before is None:
                del os.environ[_SEED_VARIABLE]
            else:
                os.environ[_SEED_VARIABLE] = before
