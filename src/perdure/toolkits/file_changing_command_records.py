"""Log records of shell commands that may have changed files, and of what they have changed.

Before such a command runs, the log names a look at the working folder (`perdure.files.folder_look`); after it, each
path that differs, with its states before and after, so that `perdure.file_history` can undo it. What cannot be undone
is in the log too, with the reason: a command in the background, a folder that is too large, a file that git ignores.
"""

from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from perdure.core.thread_safe_msgspec import convert
from perdure.files.folder_look import SeenChange

T = TypeVar("T")

COMMAND_NAME: Final = "shell:command"
"""Name of the value; the log has one entry for each command, and the state of a session only the last."""
CHANGES_NAME: Final = "shell:changes"
"""Name of the value with what a command has changed."""
MOST_CHANGES_PER_ENTRY: Final = 500
NO_SNAPSHOTS: Final = "no snapshots are kept"
IN_BACKGROUND: Final = "it ran in the background"


class FileChangingCommandRecord(Struct, frozen=True, omit_defaults=True):
    """Log record of a shell command that may change files, written just before it runs."""

    line: str
    """The command line."""
    call_id: str
    """The call that ran it."""
    root: str
    """The working folder."""
    look: str = ""
    """Digest of the stored look at the folder before the command; empty if nothing is recorded."""
    not_recorded: str = ""
    """Why nothing is recorded."""
    keeps_trusted: bool = False
    """True if the sandbox kept the command from changing what other programs trust: such a change is that of others."""


class CommandChangesRecord(Struct, frozen=True, omit_defaults=True):
    """Log record of what a shell command has changed, written once it has ended; several if it is much."""

    call_id: str
    run_id: str
    """The run of the command."""
    changes: tuple[SeenChange, ...] = ()
    not_recorded: tuple[str, ...] = ()
    """What has changed and cannot be undone, each with the reason."""
    is_last: bool = True
    """False if another record for the same command follows."""
    is_certain: bool = True
    """False if the command was cut off, so that others may have made the changes."""


def parse_command_record(value: Any) -> FileChangingCommandRecord | None:
    """Convert a value from a session's log to a `FileChangingCommandRecord`; `None` if it is not one."""
    return _parse(value, FileChangingCommandRecord)


def parse_changes_record(value: Any) -> CommandChangesRecord | None:
    """Convert a value from a session's log to a `CommandChangesRecord`; `None` if it is not one."""
    return _parse(value, CommandChangesRecord)


def split_changes(
    call_id: str,
    run_id: str,
    changes: tuple[SeenChange, ...],
    not_recorded: tuple[str, ...] = (),
    *,
    is_certain: bool = True,
) -> list[CommandChangesRecord]:
    """Return the records of what a command has changed: one, or several if it is much."""
    starts = range(0, max(1, len(changes)), MOST_CHANGES_PER_ENTRY)
    whole = CommandChangesRecord(call_id, run_id, is_last=False, is_certain=is_certain)
    records = [msgspec.structs.replace(whole, changes=changes[at : at + MOST_CHANGES_PER_ENTRY]) for at in starts]
    return [*records[:-1], msgspec.structs.replace(records[-1], not_recorded=not_recorded, is_last=True)]


def _parse(value: Any, kind: type[T]) -> T | None:
    try:
        return convert(value, kind)
    except msgspec.ValidationError:
        return None
