"""Log records of files: what tools have read, what tools and commands have changed, and what an undo restores."""

from collections.abc import Awaitable
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from perdure._core.tools.context import ToolContext
from perdure._core.values.error import ToolError
from perdure._core.values.jsonable import convert
from perdure._io.files.folder_look import SeenChange
from perdure._io.files.jail import FileContent
from perdure._io.files.snapshots import FileState

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


FILE_PREFIX: Final = "file:"
"""Names of values about files begin with this."""
NO_FILE: Final = ""
"""The digest of a file that does not exist."""


class FileAccessRecord(Struct, frozen=True, omit_defaults=True):
    """Log record of a file that a tool has read or changed: the digests of its content."""

    digest: str
    """The digest of its content when it was last read, written or restored."""
    before: str | None = None
    """The digest before a change, empty if there was no file; `None` if the file was only read."""
    call_id: str = ""
    """The call that changed it."""
    root: str = ""
    """The folder that the path is relative to, for a change."""
    mode: int | None = None
    """Permission bits before the change."""
    restored: str = ""
    """`undo` or `redo`, if a person had the file restored."""
    restore_id: str = ""
    """The undo or redo, as its own records name it."""


class FileSnapshotBackend(Protocol):
    """Protocol of a store for the contents of files before and after changes, by digest."""

    def save(self, data: bytes) -> str | Awaitable[str]:
        """Store a content, and return its digest. What is stored already is not stored again."""
        ...

    def load(self, digest: str) -> bytes | Awaitable[bytes]:
        """Return a content. Raises `ConfigError` if it is not there, or damaged."""
        ...


def read_record(context: ToolContext[Any], path: str) -> FileAccessRecord | None:
    """Return the record of a file in the session's log; `None` if no tool has read or changed the file."""
    return parse_record(context.kept(FILE_PREFIX + path))


def parse_record(value: Any) -> FileAccessRecord | None:
    """Convert a value from a session's log to a `FileAccessRecord`; `None` if it is not one."""
    try:
        return None if value is None else convert(value, FileAccessRecord)
    except msgspec.ValidationError:
        return None


async def record_read(context: ToolContext[Any], path: str, digest: str) -> None:
    """Store in the session's log that a tool has read a file with this digest, unless that is stored already."""
    known = read_record(context, path)
    if known is None or known.digest != digest:
        await context.keep(FILE_PREFIX + path, FileAccessRecord(digest))


async def record_change(
    context: ToolContext[Any], path: str, root: str, before: FileContent | None, after: str
) -> None:
    """Store in the session's log that a tool call is about to change a file."""
    record = FileAccessRecord(
        digest=after,
        before=NO_FILE if before is None else before.digest,
        call_id=context.call_id,
        root=root,
        mode=None if before is None else before.mode,
    )
    await context.keep(FILE_PREFIX + path, record)


def require_read_and_unchanged(known: FileAccessRecord | None, found: FileContent | None, path: str) -> None:
    """Raise `ToolError` unless the session has read the file, and the file has not changed since."""
    if found is None:
        return
    if known is None:
        raise ToolError(f"{path!r} has not been read in this session: read it first, then change it")
    if known.digest != found.digest:
        raise ToolError(f"{path!r} has changed since you read it: read it again, then repeat the change")


RESTORE_NAME: Final = "files:restore"
"""Name of the value; each entry is one record."""
MOST_PER_ENTRY: Final = 500
RestoreWay: TypeAlias = Literal["undo", "redo"]


class RestoreItem(Struct, frozen=True, array_like=True):
    """A path of an undo or redo, with its states."""

    path: str
    now: FileState
    """What was there when it began."""
    wanted: FileState
    """What is to be there."""
    back: FileState
    """What the opposite would put there again."""


class RestoreBegun(Struct, frozen=True, omit_defaults=True, tag_field="step", tag="begin"):
    """Record of the intent of an undo or redo; several if it is about many files."""

    restore_id: str
    way: RestoreWay
    run_id: str
    """The run that is undone or redone."""
    root: str
    """The folder of the files."""
    items: tuple[RestoreItem, ...] = ()
    is_last: bool = True
    """False if another record of the same intent follows; until the last one is stored, nothing is done."""


class RestoredPath(Struct, frozen=True, tag_field="step", tag="file"):
    """Record of a path that has been restored."""

    restore_id: str
    path: str


class RestoreEnded(Struct, frozen=True, tag_field="step", tag="end"):
    """Record of the end of an undo or redo. What is not among the restored paths is as it was."""

    restore_id: str
    restored: tuple[str, ...] = ()
    """Paths that were found restored after the process that restored them had died."""


class ForkBegun(Struct, frozen=True, tag_field="step", tag="fork"):
    """Record of the intent to fork a session with a copy of its folder."""

    restore_id: str
    source_id: str
    """The session that is forked: a fork has this record too, and nothing to do with it."""
    session_id: str
    """The id of the fork."""
    folder: str
    """Where the copy will be."""
    beside: str
    """Where the copy is until it is complete."""


class FolderMoved(Struct, frozen=True, tag_field="step", tag="moved"):
    """Record of a fork: the files of its earlier changes are in another folder."""

    root: str
    folder: str


FileRestoreRecord: TypeAlias = RestoreBegun | RestoredPath | RestoreEnded | ForkBegun | FolderMoved


def parse_restore_record(value: Any) -> FileRestoreRecord | None:
    """Convert a value from a session's log to a record of an undo, redo or fork; `None` if it is none."""
    try:
        record: FileRestoreRecord = convert(value, FileRestoreRecord)
    except msgspec.ValidationError:
        return None
    return record


def split_intent(intent: RestoreBegun) -> list[RestoreBegun]:
    """Return the records of an intent: one, or several if it is about many files."""
    starts = [*range(0, max(1, len(intent.items)), MOST_PER_ENTRY)]
    return [
        msgspec.structs.replace(intent, items=intent.items[at : at + MOST_PER_ENTRY], is_last=at == starts[-1])
        for at in starts
    ]
