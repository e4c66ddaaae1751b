"""Log records of shell commands that may have changed files, shown to people who undo a run.

What a command changes is not known, so it cannot be undone. The log says which commands were run that may have changed
files: every one that is not known to only read.
"""

from typing import Any, Final

import msgspec
from msgspec import Struct

from perdure.core.thread_safe_msgspec import convert
from perdure.core.tool import ToolContext

COMMAND_NAME: Final = "shell:command"
"""Name of the value; the log has one entry for each command, and the state of a session only the last."""


class FileChangingCommandRecord(Struct, frozen=True):
    """Log record of a shell command that may change files, written just before it runs."""

    line: str
    """The command line."""
    call_id: str
    """The call that ran it."""
    root: str
    """The working folder."""


async def record_command(context: ToolContext[Any], line: str, root: str) -> None:
    """Write to the session's log that a tool call is about to run a shell command which may change files."""
    await context.keep(COMMAND_NAME, FileChangingCommandRecord(line, context.call_id, root))


def parse_command_record(value: Any) -> FileChangingCommandRecord | None:
    """Convert a value from a session's log to a `FileChangingCommandRecord`; `None` if it is not one."""
    try:
        return convert(value, FileChangingCommandRecord)
    except msgspec.ValidationError:
        return None
