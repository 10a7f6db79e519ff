"""The verb ``heads``."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, assert_never

import typer

from transduce.cli.options import (
    FILES,
    BeamSize,
    Device,
    MaxSourceLength,
    ModelPath,
    PrecisionOption,
    Threads,
    check_ending,
    check_idle,
    use_threads,
)
from transduce.cli.progress import line_bar
from transduce.config.errors import BadInputError
from transduce.config.files import check_file_place
from transduce.config.head_roles import COLOURS, MEASURES, ColourKey, HeadRole, MeasureKey, layer_means, measured

if TYPE_CHECKING:
    from transduce.workflows.heads import HeadReport

_SENTENCES: Final = 200
_TOKENIZE: Final = "13a"
_MUTING: Final = "What each head is for: BLEU without it"


def heads(
    model: ModelPath,
    source: Annotated[Path, typer.Option(metavar="F", help="Source text, a sentence a line.", rich_help_panel=FILES)],
    target: Annotated[Path, typer.Option(metavar="F", help="Its translation, line by line.", rich_help_panel=FILES)],
    alignment: Annotated[
        Path | None,
        typer.Option(
            metavar="F",
            help="Which words belong together, line by line, such as 0-0 1-2. [default: the model's own alignment]",
            rich_help_panel=FILES,
        ),
    ] = None,
    format_: Annotated[
        Literal["text", "tsv", "jsonl"],
        typer.Option("--format", metavar="FORMAT", help="text: a table to read; tsv; jsonl.", rich_help_panel=FILES),
    ] = "text",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="F.html", help="A page to explore.", rich_help_panel=FILES)
    ] = None,
    png: Annotated[
        Path | None, typer.Option("--png", metavar="F", help="A picture of one measure.", rich_help_panel=FILES)
    ] = None,
    measure: Annotated[
        ColourKey,
        typer.Option(
            metavar="M",
            help=f"What the picture shows, and the page first: {', '.join(COLOURS)}.",
            rich_help_panel=FILES,
        ),
    ] = "distance",
    max_source_length: MaxSourceLength = None,
    mute: Annotated[
        bool,
        typer.Option(
            "--mute/--no-mute",
            help="Translate once more without each head. It takes one translation for each.",
            rich_help_panel=_MUTING,
        ),
    ] = True,
    sentences: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help=f"How many are translated, from the first. [default: {_SENTENCES}]",
            rich_help_panel=_MUTING,
        ),
    ] = None,
    tokenize: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"sacreBLEU's tokenizer for BLEU. [default: {_TOKENIZE}]",
            rich_help_panel=_MUTING,
        ),
    ] = None,
    beam_size: BeamSize = None,
    precision: PrecisionOption = "auto",
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Measure what each attention head does over a corpus: how far it looks, at what, and what BLEU it is worth.

    Means of layers stand below the heads of each kind. docs/heads.md says what each measure means.
    """
    from transduce.viewing import HeadRolesPage, draw_head_roles
    from transduce.workflows.heads import Muting, measure_model, read_head_corpus

    _check_measure(measure, aligned=alignment is not None, muted=mute)
    if not mute:
        translating = {"--sentences": sentences, "--tokenize": tokenize, "--beam-size": beam_size}
        idle = {option: value is not None for option, value in translating.items()}
        check_idle(idle, "for translating without each head, which --no-mute leaves out: leave one or the other out")
    check_ending("--png", png, ".png")
    check_file_place(out, png)
    use_threads(threads)
    corpus = read_head_corpus(source, target, alignment)
    muting = Muting(sentences or _SENTENCES, beam_size, tokenize or _TOKENIZE) if mute else None
    report = measure_model(
        model, corpus, muting, _bar, max_source_length=max_source_length, precision=precision, device=device
    )
    notes = _notes(report, given=alignment is not None)
    typer.echo("\n".join(_lines(report.roles, format_)))
    if format_ == "text":
        typer.echo()
    for note in notes:
        typer.echo(note, err=format_ != "text")
    if out is not None:
        HeadRolesPage(report.roles, f"Attention heads of {model.name}", notes, measure).save(out)
    if png is not None:
        draw_head_roles(report.roles, measure, png)


def _check_measure(measure: ColourKey, *, aligned: bool, muted: bool) -> None:
    """Before anything is measured."""
    if measure == "aer" and not aligned:
        raise BadInputError("--measure aer: is an error rate against --alignment, which is not given")
    if measure == "bleu_loss" and not muted:
        raise BadInputError("--measure bleu_loss: is measured by muting heads: leave --no-mute out")


def _bar(total: int, unit: str) -> AbstractContextManager[Callable[[], None]]:
    return line_bar(lambda: total, beside_terminal=False, unit=unit)


def _notes(report: "HeadReport", *, given: bool) -> list[str]:
    alignment = "the given one" if given else "the model's own: the mean of the heads of the layer before the last"
    notes = [f"{report.pairs:,} sentence pairs; the alignment is {alignment}"]
    if report.whole is not None:
        notes.append(
            f"BLEU {MEASURES['bleu_loss'].show(report.whole.value)} with all heads, of the first {report.sentences:,} "
            f"sentences: {report.whole.signature}"
        )
    return notes


def _lines(roles: Sequence[HeadRole], format_: Literal["text", "tsv", "jsonl"]) -> Iterator[str]:
    keys = measured(roles)
    rows = _rows(roles, keys)
    match format_:
        case "jsonl":
            return (json.dumps(row) for row in rows)
        case "tsv":
            lines = (["" if value is None else str(value) for value in _named(row).values()] for row in rows)
            return ("\t".join(line) for line in (["kind", "layer", "head", *keys], *lines))
        case "text":
            return _table(rows, keys)
        case _:
            assert_never(format_)


def _rows(roles: Sequence[HeadRole], keys: Sequence[MeasureKey]) -> list[dict[str, Any]]:
    """The heads of each kind and the means of its layers, which have no number of a head; people count from 1."""
    rows: list[dict[str, Any]] = []
    for kind in dict.fromkeys(role.head.kind for role in roles):
        heads = [role for role in roles if role.head.kind == kind]
        rows += [
            {"kind": kind, "layer": role.head.layer + 1, "head": role.head.head + 1}
            | {key: role.of(key) for key in keys}
            for role in heads
        ]
        rows += [
            {"kind": kind, "layer": each.layer + 1, "head": None} | {key: each.means.get(key) for key in keys}
            for each in layer_means(heads)
        ]
    return rows


def _named(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"head": "mean" if row["head"] is None else row["head"]}


def _table(rows: Sequence[dict[str, Any]], keys: Sequence[MeasureKey]) -> Iterator[str]:
    names = [f"{MEASURES[key].name:>5}" for key in keys]
    yield "  ".join([f"{'kind':<7}", "layer", "head", *names])
    behind_means = False
    for row in map(_named, rows):
        means = row["head"] == "mean"
        if means != behind_means:
            yield ""
        behind_means = means
        figures = (f"{MEASURES[key].show(row[key]):>{len(name)}}" for key, name in zip(keys, names, strict=True))
        yield "  ".join([f"{row['kind']:<7}", f"{row['layer']:>5}", f"{row['head']:>4}", *figures]).rstrip()
