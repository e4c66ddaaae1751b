"""Log records of files: the digest of each file that a tool has read, and each change that a tool makes to it.

Each is a value in the log under the name `file:PATH`, so that it survives a restart. A change is stored before it is
made: after a crash the digests tell whether it was made, and `perdure.file_history` can undo it. The contents are in a
`FileSnapshotBackend`, by digest.
"""

from collections.abc import Awaitable
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct

from perdure.core.error import ToolError
from perdure.core.thread_safe_msgspec import convert
from perdure.core.tool import ToolContext
from perdure.files.jail import FileContent

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
