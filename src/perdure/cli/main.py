"""`perdure`: the commands, and what becomes of their errors. Above: the shell. Below: a module per command.

An error ends as one line, `error: what happened; what to do`, and an exit code; with PERDURE_DEBUG=1 as a traceback.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import click

from perdure._version import __version__
from perdure.core.error import PerdureError

from .backup import backup, restore
from .config import config
from .doctor import doctor
from .models import models
from .probe import probe
from .reach import answer, cancel, inbox, questions, resolve, steer
from .replay import replay
from .resume import resume
from .run import run
from .screen import OutputFailed, close_output, fill_streams, report_error
from .search import search
from .sessions import sessions
from .skills import skills

INTERRUPTED = 130
"""The exit code after Ctrl-C: 128 and the number of the signal, as shells have it."""
NOBODY_READS = 141
"""The exit code when the reader of our output has gone: the same for a broken pipe."""
CANNOT_WRITE = 74
UNFORESEEN = 70


class Program(click.Group):
    """A group of commands that never shows a traceback."""

    def main(  # type: ignore[override] # of click's parameters it needs two
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        given = list(sys.argv[1:] if args is None else args)
        extra["standalone_mode"] = False

        def work() -> Any:
            check_arguments(given)
            return super(Program, self).main(given or ["--help"], prog_name or "perdure", **extra)

        sys.exit(exit_code_of(work))


def exit_code_of(work: Callable[[], Any]) -> int:
    """Do the work of a command; its errors are shown."""
    try:
        code = work()
        return code if isinstance(code, int) else 0
    except Exception as error:
        if os.environ.get("PERDURE_DEBUG"):
            raise
        return _shown(error)
    except KeyboardInterrupt:
        return INTERRUPTED


def _shown(error: Exception) -> int:
    """Tell about an error, and say with which code to exit."""
    if isinstance(error, PerdureError):
        report_error(str(error))
        return error.exit_code
    if isinstance(error, click.Abort):
        return INTERRUPTED
    if isinstance(error, click.ClickException):
        report_error(_advice(error))
        return error.exit_code
    if isinstance(error, OutputFailed) and error.nobody_reads:
        close_output()
        return NOBODY_READS
    if isinstance(error, OutputFailed | OSError):
        close_output()
        report_error(str(error) if isinstance(error, OutputFailed) else f"{error}; check the disk and the permissions")
        return CANNOT_WRITE
    report_error(f"nobody foresaw this: {type(error).__name__}: {error}; set PERDURE_DEBUG=1 to see where it happened")
    return UNFORESEEN


def _advice(error: click.ClickException) -> str:
    message = error.format_message().rstrip(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    hint = f"; see '{context.command_path} --help'" if context else ""
    return f"{message[:1].lower()}{message[1:]}{hint}"


def check_arguments(arguments: Sequence[str]) -> None:
    """Refuse arguments that are not text: bytes that are no UTF-8, and NUL."""
    for place, argument in enumerate(arguments, 1):
        if any("\ud800" <= character <= "\udfff" or character == "\0" for character in argument):
            raise click.UsageError(f"argument {place}, {argument!r}, is not UTF-8 text; pass it through standard input")


@click.group("perdure", cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="perdure", message="%(prog)s %(version)s")
def program() -> None:
    """Run agents whose every turn is kept.

    Begin with: perdure run "What is 17 * 23? Use the calculator."
    """


for command in (
    *(run, resume, replay, sessions, search, doctor),
    *(questions, answer, inbox, resolve, steer, cancel),
    *(models, probe, skills, config),
    *(backup, restore),
):
    program.add_command(command)


def main() -> NoReturn:
    """The command `perdure`."""
    fill_streams()
    try:
        program.main()
    finally:  # from here on nobody is there to catch it
        signal.signal(signal.SIGINT, signal.SIG_DFL)
