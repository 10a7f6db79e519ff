"""The command ``transduce``: one small file per verb, and one place that turns errors into a line."""

import sys
from typing import Final

import typer

import transduce
from transduce.cli.demo import demo
from transduce.cli.evaluate import evaluate
from transduce.cli.inspect import inspect
from transduce.cli.prepare import prepare
from transduce.cli.train import train
from transduce.cli.translate import translate
from transduce.config.errors import BadInputError, TransduceError

app = typer.Typer(
    name="transduce",
    help="Sequence transduction with attention: from pairs of text to a trained, measured, running Transformer.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for verb in (demo, prepare, train, translate, evaluate, inspect):
    app.command()(verb)

# Typer brings its own copy of click or uses the installed one, by its version; this is click's UsageError in either.
_UsageError: Final[type[Exception]] = typer.BadParameter.__base__  # type: ignore[assignment]
_INTERRUPTED: Final = 130


@app.callback()
def options(
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
    version: bool = typer.Option(False, "--version", help="Print the version and stop.", is_eager=True),
) -> None:
    """Sequence transduction with attention: from pairs of text to a trained, measured, running Transformer."""
    if version:
        print(transduce.__version__)  # noqa: T201 - results go to standard output
        raise typer.Exit


def run() -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong use or bad input."""
    sys.exit(_run(sys.argv[1:]))


def _run(arguments: list[str]) -> int:
    debug = "--debug" in arguments
    # The switch may stand anywhere on the line.
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        return app(arguments, prog_name="transduce", standalone_mode=False) or 0
    except _UsageError as error:
        return _fail(str(getattr(error, "message", error)) + ": see transduce --help", 2)
    except (typer.Abort, KeyboardInterrupt):
        return _fail("interrupted", _INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except BadInputError as error:
        if debug:
            raise
        return _fail(str(error), 2)
    except (TransduceError, OSError) as error:
        if debug:
            raise
        return _fail(str(error), 1)


def _fail(message: str, status: int) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)  # noqa: T201
    return status
