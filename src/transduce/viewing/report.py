"""A training as one page: its figures, curves over steps, what was skipped, and how outputs changed."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, final

from transduce.config.disk import write_whole
from transduce.config.duration import describe_time
from transduce.config.metrics import METRICS, MetricKey, perplexity
from transduce.viewing.charts import Chart, Series, draw_chart
from transduce.viewing.page import compose, escape, framed
from transduce.viewing.samples import draw_samples

Line = Mapping[str, Any]
_HEIGHT: Final = 900  # of the page in a notebook
_NATS: Final = "nats per target token"
_HINT: Final = "Over optimizer steps. Point at a chart, or move through it with the arrow keys, to read its values."
_UNRECORDED: Final = "not recorded by the version that wrote these lines"


@final
@dataclass(frozen=True)
class TrainingRecord:
    """What is known of a training, as plain data.

    ``lines`` are those of ``metrics.jsonl``, each with a whole ``step`` and a ``split``; what else is missing is left
    out. ``facts`` say what is trained, ``settings`` and ``preparation`` are its files ``run.toml`` and ``report.txt``,
    ``notes`` what a reader should know first.
    """

    name: str
    lines: Sequence[Line]
    best_metric: MetricKey = "bleu"
    facts: Mapping[str, str] = field(default_factory=dict)
    settings: str = ""
    preparation: str = ""
    notes: Sequence[str] = ()


@final
class ReportPage:
    """A page about a training; a notebook shows it where it is the value of a cell."""

    def __init__(self, record: TrainingRecord) -> None:
        self._record = record

    def html(self) -> str:
        """The whole page; it asks for nothing from elsewhere, and needs no script to be read."""
        record = self._record
        best = find_best(record.lines, record.best_metric)
        notes = "".join(f'<p class="note">{escape(note)}</p>' for note in record.notes)
        last = max((line["step"] for line in record.lines), default=0)
        charts = "".join(draw_chart(chart, last) for chart in _charts(record.lines, best, record.best_metric))
        body = [
            f"<header><h1>Training {escape(record.name)}</h1>{notes}{_list(record.facts)}</header><main>",
            _section("Figures", _list(_figures(record.lines, best, record.best_metric))),
            _section("Curves", f'<p class="faint">{_HINT}</p><div class="charts">{charts}</div>'),
            _section("Sample outputs", _samples(record.lines)),
            _section("Settings", _file("run.toml, as resolved", record.settings)),
            _section("Preparation", _file("What was kept and dropped of the text", record.preparation)),
            "</main>",
        ]
        return compose("report", f"Training {record.name}", "".join(body))

    def save(self, path: Path | str) -> None:
        """Write the page into a file, whole or not at all."""
        write_whole(Path(path), self.html())

    def _repr_html_(self) -> str:
        """What Jupyter shows."""
        return framed(self.html(), _HEIGHT)


def find_best(lines: Sequence[Line], metric: MetricKey) -> Line | None:
    """The line of dev that is the best by a metric, of equals by the loss, as a training chooses it."""
    best, best_rank = None, (float("-inf"), float("-inf"))
    for line in _of(lines, "dev"):
        if (value := _measured(line, metric)) is None:
            continue
        loss = number(line, "loss")
        rank = METRICS[metric].rank(value), -loss if loss is not None and math.isfinite(loss) else float("-inf")
        if rank > best_rank:  # which no score is that is NaN
            best, best_rank = line, rank
    return best


def throughput(lines: Sequence[Line]) -> list[tuple[int, float]]:
    """Target tokens per second of training, of the steps behind each line of training.

    Tokens and seconds are counted over all sessions: where a training was resumed, they go on from its checkpoint.
    """
    counts = [(line["step"], _count(line, "target_tokens"), _count(line, "seconds")) for line in _of(lines, "train")]
    known = [(step, tokens, seconds) for step, tokens, seconds in counts if tokens is not None and seconds is not None]
    return [
        (step, (tokens - before) / (seconds - start))
        for (_, before, start), (step, tokens, seconds) in pairwise([(0, 0.0, 0.0), *known])
        if tokens >= before and seconds > start  # else, they began anew
    ]


def _count(line: Line, key: str) -> float | None:
    """A number that only grows."""
    value = number(line, key)
    return value if value is not None and 0 <= value < float("inf") else None


def number(line: Line, key: str) -> float | None:
    """A measurement of a line, if it is a number."""
    value = line.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _largest(line: Line, key: str) -> float | None:
    """The largest of a line's list of numbers, where it has one."""
    values = line.get(key)
    known = [value for value in values if isinstance(value, int | float)] if isinstance(values, list) else []
    return max(known, default=None)


def _measured(line: Line, metric: MetricKey) -> float | None:
    value, loss = number(line, metric), number(line, "loss")
    return perplexity(loss) if value is None and metric == "perplexity" and loss is not None else value


def _of(lines: Sequence[Line], split: str) -> Iterator[Line]:
    return (line for line in lines if line["split"] == split)


def _series(lines: Sequence[Line], key: str) -> list[Series]:
    """A measurement of training, of dev, and of means of checkpoints on dev."""
    styles: dict[str, int] = {"train": 0, "dev": 1}
    found: dict[str, list[tuple[int, float]]] = {name: [] for name in styles}
    for line in lines:
        name = f"dev (mean of {line['average']})" if "average" in line else line["split"]
        if (value := number(line, key)) is not None:
            found.setdefault(name, []).append((line["step"], value))
    return [Series(name, points, styles.get(name, 2 + place % 2)) for place, (name, points) in enumerate(found.items())]


def _charts(lines: Sequence[Line], best: Line | None, best_metric: MetricKey) -> Iterator[Chart]:
    training, nothing_learned = [*_of(lines, "train")], _steps_without_updates(lines)
    learned = [line for line in lines if line["split"] != "train" or line["step"] not in nothing_learned]
    loss = METRICS["loss"]
    best_loss = _point(best, "loss") if METRICS[best_metric].needs == "probabilities" else None
    yield Chart("Loss", _NATS, _series(learned, "loss"), loss.show, logarithmic=True, best=best_loss)
    for key, metric in METRICS.items():
        if key != "loss":
            point = _point(best, key) if key == best_metric else None
            yield Chart(metric.name, f"{metric.better} is better", _series(lines, key), metric.show, best=point)
    yield Chart("Auxiliary loss", _NATS, _series(learned, "auxiliary_loss"), _short)
    yield Chart("Reward", "sentence GLEU of drawn outputs", _series(training, "reward"), _short)
    yield Chart("Expected risk", "1 - sentence GLEU", _series(training, "risk"), _short)
    busiest = [{**line, "busiest_expert": _largest(line, "busiest_expert")} for line in learned]
    yield Chart("Busiest expert of the worst layer", "times the mean", _series(busiest, "busiest_expert"), _short)
    yield Chart("Learning rate", "of the step", _series(training, "learning_rate"), _short, from_zero=True)
    speeds = Series("train", throughput(lines))
    yield Chart("Throughput", "target tokens per second", [speeds], _whole, from_zero=True)
    norms = _series(training, "gradient_norm")
    yield Chart("Gradient norm", "mean of the steps", norms, _short, from_zero=True, logarithmic=True)
    if any(_count(line, "skipped") for line in training):
        yield Chart("Skipped updates", "so far", _series(training, "skipped"), _whole, from_zero=True, whole=True)


def _steps_without_updates(lines: Sequence[Line]) -> set[int]:
    """Where all updates since the line before were skipped: the loss of such a line is that of nothing."""
    counts = [(0, 0.0), *((line["step"], _count(line, "target_tokens")) for line in _of(lines, "train"))]
    return {step for (_, before), (step, tokens) in pairwise(counts) if tokens == before is not None}


def _point(line: Line | None, key: str) -> tuple[int, float] | None:
    value = None if line is None else number(line, key)
    return None if line is None or value is None else (line["step"], value)


def _figures(lines: Sequence[Line], best: Line | None, best_metric: MetricKey) -> dict[str, str]:
    """What one looks for first, by name."""
    figures = {f"Best {METRICS[best_metric].name} on dev": _describe_best(best, best_metric)}
    training = [*_of(lines, "train")]
    if not training:
        return figures
    last = training[-1]
    tokens, seconds = _count(last, "target_tokens") or 0, _count(last, "seconds") or 0
    time = f"{describe_time(seconds)} without validation"
    figures["Trained"] = f"{last['step']:,} steps, {tokens:,.0f} target tokens, {time}"
    if seconds:
        figures["Throughput"] = f"{tokens / seconds:,.0f} target tokens per second"
    norms = [(value, line["step"]) for line in training if (value := number(line, "gradient_norm")) is not None]
    skipped = [value for line in training if (value := _count(line, "skipped")) is not None]
    figures["Gradient norm"] = (
        f"{_short(norms[-1][0])} at the end, largest {_short(max(norms)[0])} (the steps up to {max(norms)[1]:,})"
        if norms
        else _UNRECORDED
    )
    figures["Skipped updates"] = _UNRECORDED if not skipped else _describe_skipped(skipped[-1])
    return figures


def _describe_best(best: Line | None, metric: MetricKey) -> str:
    if best is None:
        return "dev was not measured yet (train.validate_every)"
    value = _measured(best, metric)
    mean = f", mean of {best['average']} checkpoints" if "average" in best else ""
    others = [
        f"{METRICS[key].name} {METRICS[key].show(other)}"
        for key in METRICS
        if key != metric and (other := _measured(best, key)) is not None
    ]
    assert value is not None
    return f"{METRICS[metric].show(value)} at step {best['step']:,}{mean} ({', '.join(others)})"


def _describe_skipped(count: float) -> str:
    if not count:
        return "none"
    return f"{count:,.0f}: their gradient was infinite or NaN, and no weight moved"


def _samples(lines: Sequence[Line]) -> str:
    if drawn := draw_samples(lines):
        return f'<p class="faint">The first sentences of dev. Underlined: what the row above has not.</p>{drawn}'
    measured = any(_of(lines, "dev"))
    return f"<p>Outputs of dev: {_UNRECORDED if measured else 'dev was not translated yet (train.validate_every)'}.</p>"


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>" if content else ""


def _list(entries: Mapping[str, str]) -> str:
    rows = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in entries.items())
    return f'<dl class="facts">{rows}</dl>' if rows else ""


def _file(title: str, text: str) -> str:
    if not text:
        return ""
    return f'<details><summary>{escape(title)}</summary><pre tabindex="0">{escape(text)}</pre></details>'


def _short(value: float) -> str:
    return f"{value:.3g}"


def _whole(value: float) -> str:
    return f"{value:,.0f}"
