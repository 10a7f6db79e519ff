"""Options that several verbs share, and the sections that a verb's --help has."""

import logging
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from transduce.config.errors import BadInputError

# What no verb names comes in a last section, "Options".
SEARCH: Final = "Search (what is left out is as the model's own settings say)"
SEVERAL: Final = "Several outputs for each line"
SAMPLING: Final = "Sampling (what is left out is as the model's own settings say)"
REQUIRED: Final = "What an output must have"
FILES: Final = "Input and output"
SPEED: Final = "Speed"

_log = logging.getLogger(__name__)

RunFile = Annotated[Path, typer.Argument(metavar="RUN.toml", help="The run file.")]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", file_okay=False, help="The run directory. [default: runs/NAME]")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the run file; may be given several times."),
]
Init = Annotated[
    Path | None,
    typer.Option(
        metavar="MODEL",
        help="Fine-tune this model: begin with its weights; its settings count where RUN.toml has none.",
    ),
]
CarryVocabulary = Annotated[
    bool,
    typer.Option(
        "--carry-vocabulary",
        help="With --init: learn a new tokenizer; symbols that both have keep their embeddings.",
    ),
]
ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="A model or run directory.")]
ComparedSentences = Annotated[
    Path | None,
    typer.Option(
        "--sentences",
        metavar="FILE",
        help="Lines to compare both on, which certificate.json tells of. [default: built-in ones]",
    ),
]
BeamSize = Annotated[
    int | None,
    typer.Option(metavar="N", help="Hypotheses kept open by beam search; 1 is greedy search.", rich_help_panel=SEARCH),
]
LengthPenaltyOption = Annotated[
    float | None, typer.Option(metavar="X", help="Alpha of the length penalty.", rich_help_panel=SEARCH)
]
MaxLength = Annotated[int | None, typer.Option(metavar="N", help="Longest output, in tokens.", rich_help_panel=SEARCH)]
MaxExtraLength = Annotated[
    int | None,
    typer.Option(metavar="N", help="Longest output, in tokens more than the input has.", rich_help_panel=SEARCH),
]
NBest = Annotated[int, typer.Option(metavar="N", help="Outputs for each line, best first.", rich_help_panel=SEVERAL)]
MaxSourceLength = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Longest line that is read, in tokens; a longer one fails alone. [default: the model's]",
        rich_help_panel=FILES,
    ),
]
PrecisionOption = Annotated[
    Literal["auto", "float32", "bfloat16", "int8"],
    typer.Option(
        metavar="FORMAT",
        help="Number format of matrix products: auto, float32, bfloat16 or int8; auto: by the processor.",
        rich_help_panel=SPEED,
    ),
]
ReplaceUnknown = Annotated[
    bool | None,
    typer.Option(
        "--replace-unknown/--no-replace-unknown",
        help="Where the model writes its unknown symbol, write the source word that it attends to. "
        "[default: the model's]",
        rich_help_panel=REQUIRED,
    ),
]
DictionaryOption = Annotated[
    Path | None,
    typer.Option(
        "--dictionary",
        metavar="F",
        help="What source words become where they replace unknown ones: word, tab, translation; others are copied.",
        rich_help_panel=REQUIRED,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        metavar="DEVICE", help="cpu, cuda or cuda:N. [default: cuda where there is one]", rich_help_panel=SPEED
    ),
]
Cache = Annotated[
    bool,
    typer.Option(
        "--cache",
        help="Keep the weights beside the model as the processor reads them: the next start maps them, and processes "
        "share them.",
        rich_help_panel=SPEED,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Threads on the CPU. [default: OMP_NUM_THREADS, or one for each core]",
        rich_help_panel=SPEED,
    ),
]


def check_finite(**options: float | None) -> None:
    """Refuse what is no number, and what has no end, in options that count something.

    Raises:
        BadInputError: One is none, by its name.
    """
    for name, value in options.items():
        if value is not None and not math.isfinite(value):
            raise BadInputError(f"--{name.replace('_', '-')} {value}: give a finite number")


def check_idle(given: Mapping[str, bool], why: str) -> None:
    """Refuse options that would do nothing beside the others; ``given`` says which are on the line.

    Raises:
        BadInputError: One is, by its name.
    """
    if idle := [option for option, was in given.items() if was]:
        raise BadInputError(f"{' and '.join(idle)}: {why}")


def check_compared(sentences: Path | None, *, prove: bool) -> None:
    """Refuse ``ComparedSentences`` where nothing is compared.

    Raises:
        BadInputError: They are given.
    """
    if not prove:
        why = "lines to compare both on, and --no-prove compares nothing: leave one or the other out"
        check_idle({"--sentences": sentences is not None}, why)


def check_ending(option: str, path: Path | None, ending: str) -> None:
    """Let pass a name that says what is in the file.

    Raises:
        BadInputError: It does not end so.
    """
    if path is not None and path.suffix.lower() != ending:
        raise BadInputError(f"{option} {path}: give a name that ends with {ending}: that is what is written")


def use_threads(number: int | None) -> None:
    """Compute with so many threads from here on; None leaves it to PyTorch, which reads OMP_NUM_THREADS."""
    if number is None:
        return
    import torch

    cores = os.cpu_count() or 1
    if number > cores:
        _log.warning(f"--threads {number}: this machine has {cores} cores, and more threads than that are slower")
    torch.set_num_threads(number)
