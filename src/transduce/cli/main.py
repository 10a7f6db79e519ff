"""The command ``transduce``: one small file per verb, and one place that turns errors into a line."""

import gc
import logging
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final, cast

import typer
from typer.core import TyperGroup

from transduce.cli.attention import attention
from transduce.cli.average import average
from transduce.cli.demo import demo
from transduce.cli.doctor import doctor
from transduce.cli.evaluate import evaluate
from transduce.cli.export import export
from transduce.cli.heads import heads
from transduce.cli.help import Verb
from transduce.cli.import_model import import_
from transduce.cli.inspect import inspect
from transduce.cli.log import be_quiet, be_verbose, log_on_standard_error
from transduce.cli.parse import parse
from transduce.cli.prepare import prepare
from transduce.cli.report import report
from transduce.cli.reproduce import reproduce
from transduce.cli.score import score
from transduce.cli.search import search
from transduce.cli.serve import serve
from transduce.cli.shortlist import shortlist
from transduce.cli.train import train
from transduce.cli.translate import translate
from transduce.cli.verify_resume import verify_resume
from transduce.config.errors import TransduceError, explain
from transduce.version import __version__

app = typer.Typer(
    name="transduce",
    help="Sequence transduction with attention: from pairs of text to a trained, measured, running Transformer.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for verb in (
    demo,
    prepare,
    train,
    translate,
    parse,
    serve,
    score,
    evaluate,
    report,
    attention,
    heads,
    search,
    average,
    shortlist,
    inspect,
    reproduce,
    doctor,
    verify_resume,
    import_,
    export,
):
    # Whole, where the list of verbs would cut a text of its own finding short.
    name = verb.__name__.strip("_").replace("_", "-")
    app.command(name, cls=Verb, short_help=(verb.__doc__ or "").partition("\n")[0])(verb)

# Typer brings its own copy of click or uses the installed one, by its version; this is click's UsageError in either.
_UsageError: Final[type[Exception]] = typer.BadParameter.__base__  # type: ignore[assignment]
_INTERRUPTED: Final = 130
BETWEEN_COLLECTIONS: Final = 200_000  # objects made and not freed; Python's own 700 suits programs that import little
_ANYWHERE: Final = {"debug", "quiet", "verbose"}
_log = logging.getLogger(__name__)


@dataclass
class _Switches:
    """What the line says that outlives its parsing."""

    debug: bool = False


def _show_traceback(context: typer.Context, wanted: bool) -> None:
    switches: _Switches = context.obj
    switches.debug |= wanted


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)  # noqa: T201 - results go to standard output
        raise typer.Exit


def _switch(*names: str, callback: Callable[..., None], text: str) -> Any:  # noqa: ANN401 - Typer's own type
    return typer.Option(*names, callback=callback, help=text, is_eager=True, expose_value=False)


@app.callback()
def options(
    debug: Annotated[
        bool, _switch("--debug", callback=_show_traceback, text="Show the traceback of an error.")
    ] = False,
    quiet: Annotated[
        bool, _switch("--quiet", "-q", callback=be_quiet, text="Show warnings and errors only, and no progress bar.")
    ] = False,
    verbose: Annotated[
        bool, _switch("--verbose", "-v", callback=be_verbose, text="Show more of what happens.")
    ] = False,
    version: bool = typer.Option(
        False, "--version", help="Print the version and stop.", is_eager=True, callback=_print_version
    ),
) -> None:
    """Sequence transduction with attention: from pairs of text to a trained, measured, running Transformer."""


def run() -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong use or bad input."""
    # What is imported stays, and the collector would look through all of it again and again while torch is.
    gc.set_threshold(BETWEEN_COLLECTIONS)
    sys.exit(_run(sys.argv[1:]))


def _run(arguments: list[str]) -> int:
    switches = _Switches()
    with log_on_standard_error():
        try:
            status: int = _command().main(arguments, prog_name="transduce", standalone_mode=False, obj=switches) or 0
        except BrokenPipeError:
            sys.stderr.close()  # nobody reads any more: the interpreter need not complain either
            return 1
        except (Exception, KeyboardInterrupt) as error:
            messages, status = _outcome(error)
            if switches.debug:
                traceback.print_exc()
            return _fail(messages, status)
        # Typer turns an interrupt into a status without a word.
        return _fail(["interrupted"], status) if status == _INTERRUPTED else status


@cache
def _command() -> TyperGroup:
    """The command with its verbs. Each takes the switches that may stand anywhere, so that its parser knows a value."""
    command = cast(TyperGroup, typer.main.get_command(app))
    switches = [option for option in command.params if option.name in _ANYWHERE]
    for verb in command.commands.values():
        verb.params += switches
    return command


def _outcome(error: BaseException) -> tuple[list[str], int]:
    """What the user is told, a line for each thing that is wrong, and the exit status."""
    match error:
        case _UsageError():
            # A missing argument has no message of its own; format_message names it.
            message: str = error.format_message().replace("Value error, ", "")  # type: ignore[attr-defined]
            context = getattr(error, "ctx", None)
            reads = context is not None and any("--input" in option.opts for option in context.command.params)
            if "unexpected extra argument" in message and reads:
                message = f"{message.rstrip('.')}, such as a shell makes of a pattern: put '*.en' in quotes"
            return [f"{message.rstrip('.')}: see {context.command_path if context else 'transduce'} --help"], 2
        case TransduceError():
            return [*map(str, error.args)] or [type(error).__name__], error.status
        case OSError():
            explained = explain(error)
            return [str(explained)], explained.status
        case typer.Abort() | KeyboardInterrupt():
            return ["interrupted"], _INTERRUPTED
        case _:
            return [f"{type(error).__name__}: {error} (--debug shows where)"], 1


def _fail(messages: list[str], status: int) -> int:
    for message in messages:
        _log.error(" ".join(message.split()))
    return status
