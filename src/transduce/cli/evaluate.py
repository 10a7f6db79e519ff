"""The verb ``evaluate``."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, get_args

import typer

from transduce.cli.options import BeamSize, ModelPath, PrecisionOption


def evaluate(
    model: ModelPath,
    source: Annotated[Path, typer.Option(metavar="F", help="What to translate.")],
    reference: Annotated[Path, typer.Option(metavar="F", help="What it should become.")],
    metric: Annotated[str, typer.Option(help="Comma-separated: bleu, chrf, ter, perplexity.")] = "bleu",
    beam_size: BeamSize = None,
    tokenize: Annotated[str, typer.Option(help="BLEU's tokenizer; none for text that is tokenized already.")] = "13a",
    precision: PrecisionOption = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Translate a test set and score it, with the signature of each score."""
    from transduce.config import BadInputError
    from transduce.inference import load
    from transduce.workflows.evaluate import EvaluationMetric
    from transduce.workflows.evaluate import evaluate as score

    known: tuple[EvaluationMetric, ...] = get_args(EvaluationMetric)
    metrics = [name for wanted in metric.split(",") for name in known if name == wanted.strip()]
    if len(metrics) != len(metric.split(",")):
        raise BadInputError(f"--metric {metric}: choose from {', '.join(known)}")
    scores = score(load(model, precision), source, reference, metrics, beam_size=beam_size, tokenize=tokenize)
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in scores], indent=2))
        return
    for each in scores:
        typer.echo(f"{each.metric} {each.value:.2f}  {each.signature}")
