"""The verb ``parse``."""

import json
import logging
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from transduce.cli.options import (
    FILES,
    BeamSize,
    Cache,
    Device,
    LengthPenaltyOption,
    MaxExtraLength,
    MaxLength,
    MaxSourceLength,
    NBest,
    PrecisionOption,
    Threads,
    use_threads,
)
from transduce.cli.progress import line_bar
from transduce.cli.streams import count_lines, name_of, read_lines_of, write_text_to
from transduce.config.files import check_file_place

if TYPE_CHECKING:
    from transduce.inference import Parse

_TREES: Final = "Trees"
_log = logging.getLogger(__name__)


def parse(
    model: Annotated[
        list[Path], typer.Argument(metavar="MODEL", help="A model or run directory; several are an ensemble.")
    ],
    input_: Annotated[
        str,
        typer.Option(
            "--input",
            metavar="F",
            help="Sentences, one a line, words separated by spaces; - reads lines as they come.",
            rich_help_panel=FILES,
        ),
    ] = "-",
    output: Annotated[str, typer.Option("--output", metavar="F", help="Where trees go.", rich_help_panel=FILES)] = "-",
    format_: Annotated[
        Literal["brackets", "jsonl", "pretty"],
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="brackets: a tree a line; jsonl: with scores and alternatives; pretty: drawn, to look at.",
            rich_help_panel=FILES,
        ),
    ] = "brackets",
    raw: Annotated[
        bool, typer.Option("--raw", help="Lines are running text: split them into words.", rich_help_panel=_TREES)
    ] = False,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Write freely, and repair what is no tree over the sentence's words, for comparison.",
            rich_help_panel=_TREES,
        ),
    ] = False,
    min_confidence: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            min=0,
            max=1,
            help="Leave trees out that the model is less sure of: mean probability of a symbol; an empty line is left.",
            rich_help_panel=_TREES,
        ),
    ] = None,
    max_source_length: MaxSourceLength = None,
    beam_size: BeamSize = None,
    length_penalty: LengthPenaltyOption = None,
    max_length: MaxLength = None,
    max_extra_length: MaxExtraLength = None,
    n_best: NBest = 1,
    precision: PrecisionOption = "auto",
    device: Device = None,
    threads: Threads = None,
    cache: Cache = False,
) -> None:
    """Parse sentences: one tree in brackets out for one line in, an empty line for an empty one.

    Every tree is over exactly the sentence's words. A line without a tree gives an empty one and is named at the end.
    """
    from transduce.inference import Parse, Parser, load, split_words
    from transduce.workflows.requests import Failures
    from transduce.workflows.translate import translate_stream

    failures = Failures()
    check_file_place(output)
    use_threads(threads)
    parser = Parser(load(model, precision, device, cache=cache))
    trees = repaired = unsure = 0
    with ExitStack() as files:
        source = files.enter_context(read_lines_of(input_))
        put = files.enter_context(write_text_to(output, input_))
        typed = (input_ == "-" and sys.stdin.isatty()) or (output == "-" and sys.stdout.isatty())
        advance = files.enter_context(line_bar(lambda: count_lines(input_), beside_terminal=typed))

        def write(found: Parse) -> None:
            nonlocal trees, repaired, unsure
            trees += found.tree is not None
            repaired += found.repaired
            if min_confidence is not None and found.tree is not None:
                sure = [each for each in (found, *found.alternatives) if each.confidence >= min_confidence]
                unsure += not sure
                found = replace(sure[0], alternatives=tuple(sure[1:])) if sure else Parse(None)
            put("\n".join(_lines(found, format_, n_best)) + "\n")
            failures.count(found.error)
            advance()

        def parse_texts(texts: list[str], first_number: int) -> list[Parse]:
            return parser.parse(
                [split_words(text) if raw else text.split() for text in texts],
                beam_size,
                length_penalty,
                n_best,
                well_formed=not repair,
                first_number=first_number,
                max_length=max_length,
                max_extra_length=max_extra_length,
                max_source_length=max_source_length,
            )

        translate_stream(source, parse_texts, write, name_of(input_))
    if min_confidence is not None:
        _log.info(f"{unsure:,} of {trees:,} trees were left out: their confidence is below {min_confidence}")
    if repaired:
        _log.info(f"{repaired:,} of {trees:,} trees had to be repaired")
    failures.check("have no tree", "an empty line stands for each")


def _lines(found: "Parse", format_: Literal["brackets", "jsonl", "pretty"], n_best: int) -> list[str]:
    from transduce.inference import draw

    if format_ == "jsonl":
        return [json.dumps(_describe(found), ensure_ascii=False)]
    several = (found, *found.alternatives)
    if format_ == "pretty":
        return [*("" if each.tree is None else draw(each.tree) for each in several), ""]
    trees = ["" if each.tree is None else str(each.tree) for each in several]
    return trees + [""] * (n_best - len(trees))  # readers count lines


def _describe(found: "Parse") -> dict[str, Any]:
    none = found.tree is None
    described: dict[str, Any] = {
        "tree": "" if none else str(found.tree),
        "score": None if none else found.score,
        "log_probability": None if none else found.log_probability,
        "confidence": None if none else found.confidence,
    }
    if found.repaired:
        described["repaired"] = True
    if found.error is not None:
        described["error"] = found.error
    if found.alternatives:
        described["alternatives"] = [_describe(each) for each in found.alternatives]
    return described
