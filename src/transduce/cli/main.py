"""The command ``transduce``: one small file per verb, and one place that turns errors into a line."""

import sys
import traceback
from typing import Final

import typer

import transduce
from transduce.cli.average import average
from transduce.cli.demo import demo
from transduce.cli.evaluate import evaluate
from transduce.cli.inspect import inspect
from transduce.cli.prepare import prepare
from transduce.cli.score import score
from transduce.cli.train import train
from transduce.cli.translate import translate
from transduce.config.errors import BadInputError, TransduceError

app = typer.Typer(
    name="transduce",
    help="Sequence transduction with attention: from pairs of text to a trained, measured, running Transformer.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for verb in (demo, prepare, train, translate, score, evaluate, average, inspect):
    app.command()(verb)

# Typer brings its own copy of click or uses the installed one, by its version; this is click's UsageError in either.
_UsageError: Final[type[Exception]] = typer.BadParameter.__base__  # type: ignore[assignment]
_INTERRUPTED: Final = 130


def _print_version(wanted: bool) -> None:
    if wanted:
        print(transduce.__version__)  # noqa: T201 - results go to standard output
        raise typer.Exit


@app.callback()
def options(
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
    version: bool = typer.Option(
        False, "--version", help="Print the version and stop.", is_eager=True, callback=_print_version
    ),
) -> None:
    """Sequence transduction with attention: from pairs of text to a trained, measured, running Transformer."""


def run() -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong use or bad input."""
    sys.exit(_run(sys.argv[1:]))


def _run(arguments: list[str]) -> int:
    # The switch may stand anywhere on the line.
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        status: int = app(arguments, prog_name="transduce", standalone_mode=False) or 0
    except BrokenPipeError:
        sys.stderr.close()  # nobody reads any more: the interpreter need not complain either
        return 1
    except (Exception, KeyboardInterrupt) as error:
        message, status = _outcome(error)
        if debug:
            traceback.print_exc()
        return _fail(message, status)
    # Typer turns an interrupt into a status without a word.
    return _fail("interrupted", status) if status == _INTERRUPTED else status


def _outcome(error: BaseException) -> tuple[str, int]:
    """What the user is told, and the exit status."""
    match error:
        case _UsageError():
            # A missing argument has no message of its own; format_message names it.
            message: str = error.format_message()  # type: ignore[attr-defined]
            return f"{message.rstrip('.')}: see transduce --help", 2
        case BadInputError():
            return str(error), 2
        case TransduceError():
            return str(error), 1
        case OSError():
            return f"{error.filename}: {error.strerror}" if error.filename else str(error), 1
        case typer.Abort() | KeyboardInterrupt():
            return "interrupted", _INTERRUPTED
        case _:
            return f"{type(error).__name__}: {error} (--debug shows where)", 1


def _fail(message: str, status: int) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)  # noqa: T201
    return status
