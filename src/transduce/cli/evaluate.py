"""The verb ``evaluate``."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from transduce.cli.options import (
    FILES,
    BeamSize,
    Device,
    DictionaryOption,
    ModelPath,
    PrecisionOption,
    ReplaceUnknown,
    Threads,
    check_idle,
    use_threads,
)
from transduce.config.errors import BadInputError
from transduce.config.metrics import METRICS, MetricKey

if TYPE_CHECKING:
    from transduce.evaluation import Comparison, Score
    from transduce.workflows.examples import Examples, LengthGroup


_METRICS: Final = "Metrics"
_TOKENIZE: Final = "13a"
_COMPARISON: Final = "Comparison with another system (paired bootstrap resampling)"


def evaluate(
    model: ModelPath,
    source: Annotated[
        Path | None,
        typer.Option(
            metavar="F", help="Source text. [default: the test set that a run's run.toml names]", rich_help_panel=FILES
        ),
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(
            metavar="F",
            help="Its reference translation, line by line; alone, a treebank, for --metric brackets.",
            rich_help_panel=FILES,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=FILES)] = False,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="M,...",
            help=f"Comma-separated, or given several times: {', '.join(METRICS)}. [default: bleu]",
            rich_help_panel=_METRICS,
        ),
    ] = None,
    tokenize: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="sacreBLEU's tokenizer for BLEU; none for text that is tokenized already. With +compounds behind it, "
            "such as 13a+compounds, hyphenated compounds are split, as the paper's published code does for German. "
            f"[default: {_TOKENIZE}]",
            rich_help_panel=_METRICS,
        ),
    ] = None,
    comet_model: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="The checkpoint of COMET, for --metric comet.", rich_help_panel=_METRICS),
    ] = None,
    by_length: Annotated[
        bool,
        typer.Option(
            "--by-length", help="Also show the scores by the length of the source, in words.", rich_help_panel=_METRICS
        ),
    ] = False,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="OTHER",
            help="Another system: its outputs in a file, one a line, or a model or run directory.",
            rich_help_panel=_COMPARISON,
        ),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Test sets that are resampled. [default: 1000]", rich_help_panel=_COMPARISON
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Random seed of resampling. [default: 12345]", rich_help_panel=_COMPARISON
        ),
    ] = None,
    beam_size: BeamSize = None,
    replace_unknown: ReplaceUnknown = None,
    dictionary: DictionaryOption = None,
    precision: PrecisionOption = "auto",
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Translate a test set and score it, alone or --against another system, with the signature of each score."""
    from transduce.data import read_dictionary
    from transduce.evaluation import SAMPLES, SEED
    from transduce.inference import load
    from transduce.workflows.evaluate import Measures, Writing, compare, evaluate_by_length
    from transduce.workflows.evaluate import evaluate as score

    if by_length and against is not None:
        raise typer.BadParameter("goes with one system alone: leave it out, or --against", param_hint="--by-length")
    if against is None:
        idle = {"--samples": samples is not None, "--seed": seed is not None}
        check_idle(idle, "for a comparison: give --against too, or leave it out")
    measures = Measures(_read_metrics(",".join(metric or ["bleu"])), tokenize or _TOKENIZE, comet_model)
    if "bleu" not in measures.metrics:
        check_idle({"--tokenize": tokenize is not None}, "for --metric bleu: give it too, or leave this out")
    if "comet" not in measures.metrics:
        check_idle({"--comet-model": comet_model is not None}, "for --metric comet: give it too, or leave this out")
    needed, named = {METRICS[each].needs for each in measures.metrics}, ",".join(measures.metrics)
    if needed == {"probabilities"}:
        check_idle({"--beam-size": beam_size is not None}, f"nothing is translated for --metric {named}: leave it out")
    if needed <= {"probabilities", "trees"}:
        words = {"--replace-unknown": replace_unknown is not None, "--dictionary": dictionary is not None}
        check_idle(words, f"no text is written with --metric {named}: leave it out")
    examples = _read_examples(model, source, reference, measures.metrics)
    writing = Writing(
        beam_size=beam_size,
        replace_unknown=replace_unknown,
        dictionary=None if dictionary is None else read_dictionary(dictionary),
    )
    use_threads(threads)
    translator = load(model, precision, device)
    results: Sequence[Score | Comparison]
    if by_length:
        scores, groups = evaluate_by_length(translator, examples, measures, **writing)
        typer.echo(_show_by_length(scores, groups, as_json=as_json))
        return
    if against is None:
        results = scores = score(translator, examples, measures, **writing)
        lines = [_line(each) for each in scores]
    else:
        results = comparisons = compare(
            translator,
            examples,
            measures,
            against,
            precision=precision,
            device=device,
            samples=samples or SAMPLES,
            seed=seed or SEED,
            **writing,
        )
        lines = [line for each in comparisons for line in _block(each, str(model), str(against))]
    typer.echo(json.dumps([asdict(each) for each in results], indent=2) if as_json else "\n".join(lines))


def _read_metrics(text: str) -> list[MetricKey]:
    wanted = dict.fromkeys(each.strip() for each in text.split(","))
    metrics = [key for each in wanted for key in METRICS if key == each]
    if len(metrics) != len(wanted):
        raise BadInputError(f"--metric {text}: choose from {', '.join(METRICS)}")
    return metrics


def _read_examples(
    model: Path, source: Path | None, reference: Path | None, metrics: Sequence[MetricKey]
) -> "Examples":
    from transduce.workflows.examples import read_examples, read_own_examples, read_treebank_examples

    if source is not None and reference is not None:
        return read_examples(source, reference)
    if source is None and reference is None:
        return read_own_examples(model)
    if reference is not None and metrics == ["brackets"]:
        return read_treebank_examples(reference)
    missing = "--source" if source is None else "--reference"
    raise typer.BadParameter("missing: give both files, or neither for a run's own test set", param_hint=missing)


def _line(score: "Score") -> str:
    details = "".join(f"|{name}:{value:.2f}" for name, value in score.details.items())
    return f"{score.metric} {METRICS[score.metric].show(score.value)}  {score.signature}{details}"


def _show_by_length(
    scores: "Sequence[Score]", groups: "Sequence[tuple[LengthGroup, Sequence[Score]]]", *, as_json: bool
) -> str:
    """All scores, then a line for each group: the words of its sources, how many sentences, and each metric."""
    if as_json:
        parts = [
            {"first": group.first, "last": group.last, "sentences": len(group.rows), "scores": [*map(asdict, some)]}
            for group, some in groups
        ]
        return json.dumps({"all": [*map(asdict, scores)], "by_length": parts}, indent=2)
    rows = [
        (
            f"{group.first} and more" if group.last is None else f"{group.first} to {group.last}",
            f"{len(group.rows):,}",
            *(METRICS[each.metric].show(each.value) for each in some),
        )
        for group, some in groups
    ]
    table = [("words", "sentences", *(each.metric for each in scores)), *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
    return "\n".join([*map(_line, scores), "", *lines])


def _block(comparison: "Comparison", *names: str) -> list[str]:
    """A comparison for people: what it is, each side's score and the samples' mean with its 95% interval, and p."""
    metric, width = METRICS[comparison.metric], max(map(len, names))
    rows = [
        f"  {name:<{width}}  {metric.show(side.value)}  mean {metric.show(side.mean)} +- {metric.show(side.confidence)}"
        for name, side in zip(names, (comparison.ours, comparison.theirs), strict=True)
    ]
    return [f"{comparison.metric}  {comparison.signature}", *rows, f"  p = {comparison.p_value:.4f}"]
