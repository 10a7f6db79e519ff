"""The verb ``translate``."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from transduce.cli.bulk import Address, Column, Engine, Workers, is_bulk, read_cluster, run_bulk
from transduce.cli.options import (
    FILES,
    REQUIRED,
    SAMPLING,
    SEARCH,
    SEVERAL,
    SPEED,
    BeamSize,
    Cache,
    Device,
    DictionaryOption,
    LengthPenaltyOption,
    MaxExtraLength,
    MaxLength,
    MaxSourceLength,
    NBest,
    PrecisionOption,
    ReplaceUnknown,
    Threads,
    use_threads,
)
from transduce.cli.progress import line_bar
from transduce.cli.streams import count_lines, name_of, read_lines_of, write_text_to

if TYPE_CHECKING:
    from transduce.inference import Translation
    from transduce.workflows.requests import Answer

_FAILED: Final = "have no output"
_INSTEAD: Final = "an empty one stands for each"


def translate(
    model: Annotated[
        list[Path], typer.Argument(metavar="MODEL", help="A model or run directory; several are an ensemble.")
    ],
    input_: Annotated[
        str,
        typer.Option(
            "--input",
            metavar="F",
            help="A text file, plain, .gz or .zst; - reads lines as they come. A folder, a pattern in quotes such as "
            "'DIR/*.parquet', or a Parquet file: partitions, and --output is a folder with one for each.",
            rich_help_panel=FILES,
        ),
    ] = "-",
    output: Annotated[
        str, typer.Option("--output", metavar="F", help="Where the translations go.", rich_help_panel=FILES)
    ] = "-",
    format_: Annotated[
        Literal["text", "jsonl"],
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="text, or jsonl: a JSON object a line, which are read too. Of partitions: what text becomes.",
            rich_help_panel=FILES,
        ),
    ] = "text",
    alignment: Annotated[
        bool,
        typer.Option(
            "--alignment",
            help="After each output, ||| and the source word of each of its words, such as 0-0 1-2.",
            rich_help_panel=FILES,
        ),
    ] = False,
    paragraphs: Annotated[
        bool,
        typer.Option(
            "--paragraphs", help="Split each line into sentences, and translate these.", rich_help_panel=FILES
        ),
    ] = False,
    language: Annotated[
        str | None,
        typer.Option(
            metavar="CODE",
            help="The language that --paragraphs and --markup split, such as de. [default: en]",
            rich_help_panel=FILES,
        ),
    ] = None,
    markup: Annotated[
        Literal["html", "srt"] | None,
        typer.Option(
            "--markup",
            metavar="KIND",
            help="The input is one document: html, a page or a fragment; or srt, subtitles. Tags stay around their "
            "words; sentences are split by --language.",
            rich_help_panel=FILES,
        ),
    ] = None,
    max_source_length: MaxSourceLength = None,
    beam_size: BeamSize = None,
    length_penalty: LengthPenaltyOption = None,
    length_penalty_kind: Annotated[
        Literal["gnmt", "marian", "none"] | None,
        typer.Option(
            metavar="KIND", help="gnmt: ((5 + length) / 6)^alpha; marian: length^alpha; none.", rich_help_panel=SEARCH
        ),
    ] = None,
    coverage_penalty: Annotated[
        float | None,
        typer.Option(metavar="X", help="Beta of the coverage penalty (Wu et al. 2016).", rich_help_panel=SEARCH),
    ] = None,
    stopping: Annotated[
        Literal["exact", "full_beam"] | None,
        typer.Option(
            metavar="WHEN",
            help="When a line's search ends. exact: no open hypothesis can win any more; "
            "full_beam: --beam-size hypotheses have ended.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    max_length: MaxLength = None,
    max_extra_length: MaxExtraLength = None,
    n_best: NBest = 1,
    diversity: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="Gamma of diverse beam search (Li et al. 2016): how much outputs differ. [default: the model's]",
            rich_help_panel=SEVERAL,
        ),
    ] = None,
    scores: Annotated[
        bool,
        typer.Option(
            "--scores",
            help="n-best lists as Marian's: line number ||| output ||| F0= log-probability ||| score.",
            rich_help_panel=SEVERAL,
        ),
    ] = False,
    sampling: Annotated[
        bool | None,
        typer.Option(
            "--sampling/--no-sampling",
            help="Draw outputs by chance, in place of beam search.",
            rich_help_panel=SAMPLING,
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="Softmax temperature of sampling: below 1, probable tokens become more so.",
            rich_help_panel=SAMPLING,
        ),
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(metavar="K", help="Sample from the K most probable tokens.", rich_help_panel=SAMPLING)
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            help="Sample from the fewest tokens with probability P together (nucleus sampling).",
            rich_help_panel=SAMPLING,
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Random seed of sampling.", rich_help_panel=SAMPLING)
    ] = None,
    prefixes: Annotated[
        Path | None,
        typer.Option(
            metavar="F",
            help="How each line's output begins: line by line; an empty one asks nothing.",
            rich_help_panel=REQUIRED,
        ),
    ] = None,
    must_contain: Annotated[
        Path | None,
        typer.Option(
            metavar="F",
            help="Phrases that each line's output must have: line by line, tabs between phrases.",
            rich_help_panel=REQUIRED,
        ),
    ] = None,
    must_not_contain: Annotated[
        Path | None,
        typer.Option(metavar="F", help="Phrases that no output may have, one a line.", rich_help_panel=REQUIRED),
    ] = None,
    min_length: Annotated[
        int | None,
        typer.Option(metavar="N", help="Shortest output, in tokens. [default: the model's]", rich_help_panel=REQUIRED),
    ] = None,
    no_repeat_ngram: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="No N tokens occur twice in an output; 0: they may. [default: the model's]",
            rich_help_panel=REQUIRED,
        ),
    ] = None,
    replace_unknown: ReplaceUnknown = None,
    dictionary: DictionaryOption = None,
    shortlist: Annotated[
        bool,
        typer.Option(
            "--shortlist",
            help="Write with the likely tokens alone that transduce shortlist has learned.",
            rich_help_panel=SPEED,
        ),
    ] = False,
    precision: PrecisionOption = "auto",
    device: Device = None,
    threads: Threads = None,
    cache: Cache = False,
    column: Column = None,
    engine: Engine = "process",
    address: Address = None,
    workers: Workers = None,
) -> None:
    """Translate lines: one line out for one line in (--n-best lines, where more are asked for), or a document.

    A line that has no output (too long, or what is asked of it cannot be) gives an empty one and is named at the end.
    """
    from transduce.config import BadInputError
    from transduce.config.files import check_file_place
    from transduce.data import read_dictionary, read_lines
    from transduce.inference import limits_told_once, load
    from transduce.workflows.answers import text_lines
    from transduce.workflows.requests import Failures, RequestReader
    from transduce.workflows.translate import Beside, translate_document, translate_stream

    _check_models(model, input_)
    cluster = read_cluster(engine, address, workers, threads, device)
    bulk = markup is None and (cluster is not None or is_bulk(input_))
    beside = {
        "--scores": scores,
        "--prefixes": prefixes is not None,
        "--must-contain": must_contain is not None,
    }
    for_lines = {
        "--format jsonl": format_ == "jsonl",
        "--alignment": alignment,
        "--paragraphs": paragraphs,
        "--n-best": n_best > 1,
        "--column": column is not None,
        "--engine ray": cluster is not None,
    } | beside
    for option in (name for name, given in for_lines.items() if given and markup is not None):
        raise BadInputError(f"--markup {markup}: is for a document, and {option} for lines: leave one out")
    for option in (name for name, given in beside.items() if given and bulk):
        raise BadInputError(f"{option}: is for one stream of lines, and --input {input_} is partitions: leave it out")
    if column is not None and not bulk:
        raise BadInputError("--column: is for partitions, and --input is one stream of lines: leave it out")
    if scores and format_ == "jsonl":
        raise BadInputError("--scores: is for --format text: objects of --format jsonl have their scores anyway")
    use_threads(threads if cluster is None else None)
    options: dict[str, Any] = {
        "beam_size": beam_size,
        "length_penalty": length_penalty,
        "n_best": n_best,
        "return_alignment": alignment,
        "must_not_contain": [] if must_not_contain is None else list(read_lines(must_not_contain)),
        "dictionary": None if dictionary is None else read_dictionary(dictionary),
        "paragraphs": paragraphs,
        "language": None if markup else language,
        "length_penalty_kind": length_penalty_kind,
        "stopping": stopping,
        "coverage_penalty": coverage_penalty,
        "min_length": min_length,
        "max_length": max_length,
        "max_source_length": max_source_length,
        "max_extra_length": max_extra_length,
        "no_repeat_ngram": no_repeat_ngram,
        "replace_unknown": replace_unknown,
        "diversity": diversity,
        "sampling": sampling,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
    }
    if bulk:
        from transduce.workflows.bulk_translate import BulkTranslation

        work = BulkTranslation(tuple(model), precision, shortlist, cache, column or "text", options)
        run_bulk(work, input_, output, format_, device=device, cluster=cluster, what=_FAILED, instead=_INSTEAD)
        return
    failures, document = Failures(), None
    check_file_place(output)
    translator = load(model, precision, device, shortlist=shortlist, cache=cache)
    prefixes_, must_contain_ = Beside.open(prefixes), Beside.open(must_contain)
    with ExitStack() as files, limits_told_once():
        source = files.enter_context(read_lines_of(input_))
        put = files.enter_context(write_text_to(output, input_, prefixes, must_contain, must_not_contain, dictionary))

        def translate_texts(texts: list[str], first_number: int) -> "list[Translation]":
            phrases = must_contain_.take(len(texts))
            return translator.translate(
                texts,
                prefixes=prefixes_.take(len(texts)),
                must_contain=None if phrases is None else [line.split("\t") if line else [] for line in phrases],
                first_number=first_number,
                errors="return",
                **options,
            )

        if markup is not None:
            options["return_alignment"] = translator.has_alignments
            document = translate_document(
                source, markup, language or "en", lambda texts: translate_texts(texts, 1), name_of(input_)
            )
            put(document.text)
        else:
            typed = (input_ == "-" and sys.stdin.isatty()) or (output == "-" and sys.stdout.isatty())
            advance = files.enter_context(line_bar(lambda: count_lines(input_), beside_terminal=typed))

            def write(answer: "Answer") -> None:
                put(_joined(_scored(answer, failures.lines) if scores else text_lines(answer, format_, n_best)))
                failures.count_translation(answer.request.text, answer.translation)
                advance()

            translate_stream(
                source, RequestReader(json=format_ == "jsonl").answering(translate_texts), write, name_of(input_)
            )
    if document is not None:
        document.check()
    for file in (prefixes_, must_contain_):
        file.check_end()
    failures.check(_FAILED, _INSTEAD)


def _check_models(models: list[Path], input_: str) -> None:
    """Refuse what a shell makes of a pattern: the first file is the input, and the others stand beside the model."""
    from transduce.config import BadInputError

    if input_ != "-" and (files := [each for each in models[1:] if each.is_file()]):
        raise BadInputError(
            f"{files[0]}: is a file, and what stands without an option is a model: put a pattern in quotes, as in "
            f"--input 'DIR/*.en', so that the shell leaves it alone"
        )


def _joined(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def _scored(answer: "Answer", number: int) -> list[str]:
    """As Marian writes its n-best lists; lines are counted from 0, and their numbers tell whose an output is."""
    from transduce.workflows.answers import aligned
    from transduce.workflows.translate import one_line

    return [
        f"{number} ||| {one_line(each.text)}{aligned(each)} ||| F0= {each.log_probability:.6f} ||| {each.score:.6f}"
        for each in (answer.translation, *answer.translation.alternatives)
    ]
