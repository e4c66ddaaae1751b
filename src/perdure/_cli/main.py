"""The `perdure` command: its subcommands, and how their errors are printed.

An error is printed as one line, `error: what happened; what to do`, with an exit code; with PERDURE_DEBUG=1 it is a
traceback instead.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import click

from perdure._core.values.error import PerdureError
from perdure._version import __version__

from .chat.command import chat
from .examples import add_examples
from .import_path import remove_working_folder_from_path
from .run.command import resume, run
from .run.init import init
from .services.completion import completion
from .services.config import config
from .services.config_check import check
from .services.doctor import doctor
from .services.mcp import mcp
from .services.memory import memory
from .services.models import models, probe
from .services.permissions import permissions
from .services.skills import skills
from .services.trust import trust
from .sessions.backup import backup, restore
from .sessions.files import files
from .sessions.interaction import answer, cancel, inbox, questions, resolve, steer
from .sessions.search import search
from .sessions.sessions import sessions
from .sessions.trace import trace
from .terminal.log import print_library_warnings
from .terminal.output import OutputFailed, discard_output, is_terminal, repair_standard_streams, report_error
from .work.attend import attend
from .work.eval import eval_command
from .work.goal import goal
from .work.replay import replay
from .work.review import review
from .work.schedule import schedule

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 plus the number of the signal, as in shells."""
BROKEN_PIPE = 141
"""Exit code when the reader of standard output has gone: 128 plus SIGPIPE, as in shells."""
CANNOT_WRITE = 74
UNEXPECTED_ERROR = 70
_OWN_OPTIONS = frozenset({"-h", "--help", "--version"})


class Program(click.Group):
    """The click group of all subcommands, which prints an error as one line instead of a traceback."""

    def main(  # type: ignore[override] # of click's parameters it needs two
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        given = list(sys.argv[1:] if args is None else args)
        extra["standalone_mode"] = False

        def work() -> Any:
            check_arguments(given)
            return super(Program, self).main(add_default_command(given), prog_name or "perdure", **extra)

        with print_library_warnings():
            code = run_and_report_error(work)
        sys.exit(code)


def add_default_command(arguments: Sequence[str]) -> list[str]:
    """Return the arguments, with the default command added if they name none: the chat, or help without a terminal."""
    first = arguments[0] if arguments else ""
    if first in _OWN_OPTIONS or (first and not first.startswith("-")):
        return [*arguments]
    if not first and not is_terminal():
        return ["--help"]
    return ["chat", *arguments]


def run_and_report_error(work: Callable[[], Any]) -> int:
    """Call `work`, print its error if it raises one, and return the exit code for the process."""
    try:
        code = work()
        return code if isinstance(code, int) else 0
    except Exception as error:
        if os.environ.get("PERDURE_DEBUG"):
            raise
        return _report_exception(error)
    except KeyboardInterrupt:
        return INTERRUPTED


def _report_exception(error: Exception) -> int:
    """Print an error and return the exit code for it."""
    if isinstance(error, PerdureError):
        report_error(str(error))
        return error.exit_code
    if isinstance(error, click.Abort):
        return INTERRUPTED
    if isinstance(error, click.ClickException):
        report_error(_usage_message(error))
        return error.exit_code
    if isinstance(error, OutputFailed) and error.is_broken_pipe:
        discard_output()
        return BROKEN_PIPE
    if isinstance(error, OutputFailed | OSError):
        discard_output()
        report_error(str(error) if isinstance(error, OutputFailed) else f"{error}; check the disk and the permissions")
        return CANNOT_WRITE
    report_error(
        f"unexpected error; please report it: {type(error).__name__}: {error} (PERDURE_DEBUG=1 shows the traceback)"
    )
    return UNEXPECTED_ERROR


def _usage_message(error: click.ClickException) -> str:
    message = error.format_message().rstrip(".?")
    context = error.ctx if isinstance(error, click.UsageError) else None
    hint = f"; see '{context.command_path} --help'" if context else ""
    return f"{message[:1].lower()}{message[1:]}{hint}"


def check_arguments(arguments: Sequence[str]) -> None:
    """Raise `UsageError` for command-line arguments that are not text: invalid UTF-8, or a NUL character."""
    for place, argument in enumerate(arguments, 1):
        if any("\ud800" <= character <= "\udfff" or character == "\0" for character in argument):
            raise click.UsageError(f"argument {place}, {argument!r}, is not UTF-8 text; pass it through standard input")


@click.group("perdure", cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="perdure", message="%(prog)s %(version)s")
def root_command() -> None:
    """Perdure, an agent runtime: run agents in sessions that are saved turn by turn.

    Without a command, `perdure` is a chat at the terminal; its options are those of perdure chat.
    """


config.add_command(check)
for command in (
    *(chat, run, resume, goal, attend, replay, trace, sessions, files, search, doctor),
    *(questions, answer, inbox, resolve, steer, cancel, permissions, schedule),
    *(models, probe, skills, mcp, memory, config, trust, review, eval_command, init, completion),
    *(backup, restore),
):
    root_command.add_command(command)
add_examples(root_command)


def main() -> NoReturn:
    """Run the `perdure` command and exit: the entry point that the package installs."""
    remove_working_folder_from_path()
    repair_standard_streams()
    try:
        root_command.main()
    finally:  # from here on nothing would catch the exception
        signal.signal(signal.SIGINT, signal.SIG_DFL)
