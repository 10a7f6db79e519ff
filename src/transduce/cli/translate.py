"""The verb ``translate``."""

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal

import typer

from transduce.cli.options import BeamSize, ModelPath, PrecisionOption
from transduce.cli.progress import line_bar

if TYPE_CHECKING:
    from transduce.inference import Translation
    from transduce.workflows.requests import Answer


def translate(
    model: ModelPath,
    input_: Annotated[str, typer.Option("--input", metavar="F", help="A text file, plain, .gz or .zst.")] = "-",
    output: Annotated[str, typer.Option("--output", metavar="F", help="Where the translations go.")] = "-",
    beam_size: BeamSize = None,
    length_penalty: Annotated[float | None, typer.Option(help="Alpha. [default: the model's]")] = None,
    length_penalty_kind: Annotated[Literal["gnmt", "none"] | None, typer.Option(help="[default: the model's]")] = None,
    n_best: Annotated[int, typer.Option(help="Outputs for each line, best first.")] = 1,
    format_: Annotated[
        Literal["text", "jsonl"], typer.Option("--format", help="jsonl: a JSON object each; reads them too.")
    ] = "text",
    paragraphs: Annotated[bool, typer.Option("--paragraphs", help="Translate each line sentence by sentence.")] = False,
    language: Annotated[
        str | None, typer.Option(metavar="CODE", help="What --paragraphs reads, such as de. [default: en]")
    ] = None,
    precision: PrecisionOption = "auto",
) -> None:
    """Translate lines: one line out for one line in (--n-best lines, where more are asked for)."""
    from transduce.data import open_binary
    from transduce.inference import load
    from transduce.workflows.requests import RequestReader
    from transduce.workflows.translate import translate_stream

    translator = load(model, precision)
    with ExitStack() as files:
        source: BinaryIO = sys.stdin.buffer if input_ == "-" else files.enter_context(open_binary(Path(input_)))
        target = sys.stdout.buffer if output == "-" else files.enter_context(_create(Path(output), input_))

        typed = (input_ == "-" and sys.stdin.isatty()) or (output == "-" and sys.stdout.isatty())
        advance = files.enter_context(line_bar(lambda: _count(input_), beside_terminal=typed))

        def write(answer: "Answer") -> None:
            target.write(("\n".join(_lines(answer, format_, n_best)) + "\n").encode())
            target.flush()
            advance()

        def translate_texts(texts: list[str], first_number: int) -> "list[Translation]":
            return translator.translate(
                texts,
                beam_size,
                length_penalty,
                n_best,
                length_penalty_kind=length_penalty_kind,
                paragraphs=paragraphs,
                language=language,
                first_number=first_number,
            )

        translate_stream(source, RequestReader(json=format_ == "jsonl").answering(translate_texts), write)


def _create(path: Path, input_: str) -> BinaryIO:
    from transduce.config import BadInputError

    if input_ != "-" and path.exists() and path.samefile(input_):
        raise BadInputError(f"{path}: is the input too: give --output another name")
    try:
        return path.open("wb")
    except OSError as error:
        raise BadInputError(f"{path}: cannot be written: {error.strerror}") from error


def _count(input_: str) -> int | None:
    from transduce.data import open_binary, raw_lines

    if input_ == "-":
        return None
    with open_binary(Path(input_)) as stream:
        return sum(1 for _ in raw_lines(stream, input_))


def _lines(answer: "Answer", format_: Literal["text", "jsonl"], n_best: int) -> list[str]:
    from transduce.workflows.translate import one_line

    translation = answer.translation
    if format_ == "jsonl":
        return [json.dumps(answer.request.fields | _describe(translation), ensure_ascii=False)]
    lines = [one_line(each.text) for each in (translation, *translation.alternatives)]
    return lines + [""] * (n_best - len(lines))  # an empty input has one output: readers count lines


def _describe(translation: "Translation") -> dict[str, Any]:
    described: dict[str, Any] = {
        "text": translation.text,
        "score": translation.score,
        "log_probability": translation.log_probability,
        "tokens": translation.tokens,
        "at_limit": translation.at_limit,
    }
    if translation.alternatives:
        described["alternatives"] = [_describe(each) for each in translation.alternatives]
    return described
