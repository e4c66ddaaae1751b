"""Entry point of the `perdure` command, which Ctrl-C ends without a traceback even while it is being imported.

This module imports next to nothing: what it imports itself, Ctrl-C still interrupts with one.
"""

from .import_path import remove_working_folder_from_path

TYPE_CHECKING = False  # as type checkers know it: `typing` itself may lie in the working folder
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> "NoReturn":
    """Import the command, and run it. Until it runs, Ctrl-C ends the process like one that does not handle it."""
    remove_working_folder_from_path()  # before anything else is imported
    import signal
    import sys

    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_default:  # else the process was started with Ctrl-C ignored, as in the background of a script
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from .main import main as run_command

    try:
        if is_default:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run_command()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
