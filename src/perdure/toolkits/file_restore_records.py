"""Log records of an undo, a redo and a fork with files: what is about to be done, each file that is done, and the end.

An undo is an effect like a tool call, and is logged like one: its intent is stored before the first file is touched. If
the process dies in between, the states on the disk tell how far it came.
"""

from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from perdure.core.thread_safe_msgspec import convert
from perdure.files.file_state import FileState

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
