"""Append to a log with a single SQL statement, so that its transaction is as short as possible.

Between the statements of a transaction another thread of the process may take the GIL, or the process may be stopped;
all other processes then wait for the file. A single statement begins, changes and commits inside one call of SQLite,
which needs no GIL. Triggers of the connection itself do what the statement stands for.
"""

from collections.abc import Sequence
from typing import Any, Final

import apsw

from perdure._core.log.status import find_last_run_progress
from perdure._core.values import faults
from perdure._core.values.event import MessageAdded, SessionConfigured
from perdure._stores.sqlite.driver import Connection
from perdure._stores.sqlite.format.merging import MAX_LOOSE_BYTES, row_size
from perdure._stores.sqlite.format.schema import UNNUMBERED, split_id
from perdure._stores.sqlite.log import PROGRESS_NUMBERS, EncodedAppend, StateBetweenAppends
from perdure._stores.texts import find_given_title, find_message_title

_STALE: Final = "stale append"
APPEND_TRIGGER: Final = """
PRAGMA temp_store = memory;
CREATE TEMP VIEW appended(
    session_id, fence, at, size, given_title, said_title, progress, due_at, first, last, version, heads, body, holes
) AS SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL;
CREATE TEMP TRIGGER append_row INSTEAD OF INSERT ON appended BEGIN
    UPDATE session SET head = NEW.last, updated_at = NEW.at, loose = loose + NEW.size,
        title = coalesce(NEW.given_title, nullif(title, ''), NEW.said_title)
        WHERE tenant = '' AND id = NEW.session_id AND fence = NEW.fence AND head = NEW.first - 1;
    SELECT RAISE(ABORT, 'stale append') WHERE changes() = 0;
    UPDATE session SET progress = NEW.progress, due_at = NEW.due_at
        WHERE NEW.progress IS NOT NULL AND tenant = '' AND id = NEW.session_id;
    UPDATE session SET unindexed = 1 WHERE tenant = '' AND id = NEW.session_id AND unindexed = 0;
    INSERT INTO pack(session, first, last, version, heads, body, holes)
        SELECT key, NEW.first, NEW.last, NEW.version, NEW.heads, NEW.body, NEW.holes
        FROM session WHERE tenant = '' AND id = NEW.session_id;
END;
"""
"""Statements that prepare a connection for `append_in_one_statement`.

The progress is set by a statement of its own, and so is `unindexed`, since one that names them writes a page of their
index, even if they stay the same.
"""

_APPEND: Final = "INSERT INTO appended VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_AND_ANOTHER: Final = ", (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_LOOSE: Final = "SELECT key, loose FROM session WHERE tenant = '' AND id = ?"
_MOST: Final = 64
"""The number of appends in one statement; more are rare, and each number of them is a statement to be prepared."""


def append_in_one_statement(
    appends: Sequence[EncodedAppend], notes: StateBetweenAppends, connection: Connection
) -> bool:
    """Append encoded entries to one or several logs, all or none, in one statement; return False if not possible.

    In that case nothing is appended.

    It does for drivers that number their ids, from their second append on, and in new sessions from the first. Raises
    `apsw.Error`.
    """
    if len(appends) > _MOST or faults.is_armed():  # inside a statement there is no place for a fault
        return False
    highest = dict[str, tuple[int, str, int]]()
    values: list[Any] = []
    for new in appends:
        session_id = new.lease.session_id
        reached = _follow_ids(new, highest.get(session_id), notes)
        if reached is None:
            return False
        highest[session_id] = reached
        values += _build_values(new)
    try:
        connection.execute(_APPEND + _AND_ANOTHER * (len(appends) - 1), values)
    except apsw.ConstraintError as error:
        if str(error) != _STALE:
            raise
        return False
    notes.highest_ids.update(highest)
    for new in appends:
        _note_size(new, notes, connection)
    return True


def _follow_ids(
    new: EncodedAppend, before: tuple[int, str, int] | None, notes: StateBetweenAppends
) -> tuple[int, str, int] | None:
    """Return fence, stem and number of the last id; `None` unless the ids follow the highest one that is known, from
    the append `before` in the same statement or from the notes.
    """
    if new.texts:
        return None
    fence, ids = new.lease.fence, new.ids
    last = before or notes.highest_ids.get(new.lease.session_id)
    if last is not None and (last[0] == fence or (before is None and last[0] == fence - 1)):
        _, stem, number = last
        if ids == [f"{stem}-{place}" for place in range(number + 1, number + 1 + len(ids))]:  # as almost always
            return fence, stem, number + len(ids)
    stem, number = split_id(ids[-1])
    if number == UNNUMBERED:
        return None
    if before is not None:
        known = before[2] if before[:2] == (fence, stem) else None
    else:
        known = notes.find_highest_id(new, stem)
    first = number - len(ids) + 1
    if known is None or first <= known:
        return None
    if len(ids) > 1 and ids != [f"{stem}-{place}" for place in range(first, number + 1)]:
        return None
    return fence, stem, number


def _build_values(new: EncodedAppend) -> tuple[Any, ...]:
    lease, entries, row = new.lease, new.entries, new.row
    kinds = {type(entry.event) for entry in entries}
    given_title = find_given_title(entries) if SessionConfigured in kinds else None
    said_title = find_message_title(entries) if MessageAdded in kinds else ""
    run = find_last_run_progress(entries)
    progress, due_at = (None, None) if run is None else (PROGRESS_NUMBERS[run.progress], run.due_at)
    at, size = entries[-1].at, row_size(row)
    return lease.session_id, lease.fence, at, size, given_title, said_title, progress, due_at, *row


def _note_size(new: EncodedAppend, notes: StateBetweenAppends, connection: Connection) -> None:
    """Mark a log for merging its rows, once the rows that this process appended are large enough."""
    session_id = new.lease.session_id
    size = notes.loose_bytes.get(session_id, 0) + row_size(new.row)
    if size >= MAX_LOOSE_BYTES:
        key, loose = connection.execute(_LOOSE, (session_id,)).get
        size = 0
        if loose >= MAX_LOOSE_BYTES:
            notes.merge_due.add(key)
    notes.loose_bytes[session_id] = size
