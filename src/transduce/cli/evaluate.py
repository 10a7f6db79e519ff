"""The verb ``evaluate``."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transduce.cli.options import BeamSize, ModelPath, PrecisionOption
from transduce.config.errors import BadInputError
from transduce.config.metrics import METRICS, MetricKey

if TYPE_CHECKING:
    from transduce.evaluation import Comparison, Score
    from transduce.workflows.evaluate import Examples


def evaluate(
    model: ModelPath,
    source: Annotated[
        Path | None, typer.Option(metavar="F", help="What to translate. [default: the test set that a run names]")
    ] = None,
    reference: Annotated[Path | None, typer.Option(metavar="F", help="What it should become.")] = None,
    metric: Annotated[str, typer.Option(help=f"Comma-separated: {', '.join(METRICS)}.")] = "bleu",
    against: Annotated[
        Path | None,
        typer.Option(metavar="OTHER", help="Compare: another's outputs in a text file, or a model or run directory."),
    ] = None,
    samples: Annotated[int, typer.Option(help="How many test sets --against draws.")] = 1000,
    seed: Annotated[int, typer.Option(help="What it draws them with.")] = 12345,
    beam_size: BeamSize = None,
    tokenize: Annotated[str, typer.Option(help="BLEU's tokenizer; none for text that is tokenized already.")] = "13a",
    comet_model: Annotated[
        Path | None, typer.Option(metavar="PATH", help="The checkpoint that the metric comet is computed with.")
    ] = None,
    precision: PrecisionOption = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Translate a test set and score it, alone or --against another system, with the signature of each score."""
    from transduce.inference import load
    from transduce.workflows.evaluate import Measures, compare
    from transduce.workflows.evaluate import evaluate as score

    measures = Measures(_read_metrics(metric), tokenize, comet_model)
    examples = _read_examples(model, source, reference)
    translator = load(model, precision)
    results: Sequence[Score | Comparison]
    if against is None:
        results = scores = score(translator, examples, measures, beam_size=beam_size)
        lines = [_line(each) for each in scores]
    else:
        results = comparisons = compare(
            translator,
            examples,
            measures,
            against,
            precision=precision,
            beam_size=beam_size,
            samples=samples,
            seed=seed,
        )
        lines = [line for each in comparisons for line in _block(each, str(model), str(against))]
    typer.echo(json.dumps([asdict(each) for each in results], indent=2) if as_json else "\n".join(lines))


def _read_metrics(text: str) -> list[MetricKey]:
    metrics = [key for wanted in text.split(",") for key in METRICS if key == wanted.strip()]
    if len(metrics) != len(text.split(",")):
        raise BadInputError(f"--metric {text}: choose from {', '.join(METRICS)}")
    return metrics


def _read_examples(model: Path, source: Path | None, reference: Path | None) -> "Examples":
    from transduce.workflows.evaluate import read_examples, read_own_examples

    if source is not None and reference is not None:
        return read_examples(source, reference)
    if source is None and reference is None:
        return read_own_examples(model)
    missing = "--source" if source is None else "--reference"
    raise typer.BadParameter("missing: give both files, or neither for a run's own test set", param_hint=missing)


def _line(score: "Score") -> str:
    return f"{score.metric} {METRICS[score.metric].show(score.value)}  {score.signature}"


def _block(comparison: "Comparison", *names: str) -> list[str]:
    """A comparison for people: what it is, each side's score and the samples' mean with its 95% interval, and p."""
    metric, width = METRICS[comparison.metric], max(map(len, names))
    rows = [
        f"  {name:<{width}}  {metric.show(side.value)}  mean {metric.show(side.mean)} +- {metric.show(side.confidence)}"
        for name, side in zip(names, (comparison.ours, comparison.theirs), strict=True)
    ]
    return [f"{comparison.metric}  {comparison.signature}", *rows, f"  p = {comparison.p_value:.4f}"]
