"""Logs in one SQLite file. Above: `open_store`. Below: `sqlite_writer.py`, which has the connection.

Each method is one transaction. The file is opened at first use, and then shared: by the stores, threads and event
loops of this process, and with other processes.
"""

import asyncio
import os
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from windlass.core import faults
from windlass.core.clock import SYSTEM_CLOCK, Clock
from windlass.core.codec import VERSION, decode_event, encode_event
from windlass.core.error import Conflict, Fenced, SessionBusy, StoreError
from windlass.core.event import Entry, Unknown
from windlass.core.store import Lease, SessionInfo, uninterrupted

from .holder import Holder, parse_holder, this_process
from .listing import check_count, check_page, check_session_id, title_of
from .place import checked_path
from .sqlite_connection import Connection

if TYPE_CHECKING:
    from .sqlite_writer import Writer

_FIND: Final = "SELECT key, head, fence, holder FROM session WHERE tenant = '' AND id = ?"
_TAKE: Final = """
INSERT INTO session(id, fence, holder, created_at, updated_at)
SELECT ?1, value + 1, ?2, ?3, ?3 FROM meta WHERE name = 'fence'
ON CONFLICT(tenant, id) DO UPDATE SET fence = fence + 1, holder = excluded.holder
RETURNING fence"""
_GIVE_BACK: Final = "UPDATE session SET holder = NULL WHERE tenant = '' AND id = ? AND fence = ?"
_ADVANCE: Final = """
UPDATE session SET head = ?1, updated_at = ?2, title = CASE title WHEN '' THEN ?3 ELSE title END
WHERE tenant = '' AND id = ?4 AND fence = ?5 AND head = ?6
RETURNING key"""
_ADD: Final = "INSERT INTO entry(session, seq, id, kind, critical, version, at, body) VALUES(?, ?, ?, ?, ?, ?, ?, ?)"
_COMPARE: Final = "SELECT seq, id FROM entry WHERE session = ? AND seq BETWEEN ? AND ? ORDER BY seq"
_READ: Final = """
SELECT seq, at, coalesce(entry.id, ''), critical, version, body FROM entry JOIN session ON session = key
WHERE tenant = '' AND session.id = ? AND seq > ? ORDER BY seq"""
_LIST: Final = """
SELECT id, head, created_at, updated_at, title FROM session
WHERE tenant = '' AND head > 0 AND id >= ?1 AND substr(id, 1, length(?1)) = ?1
ORDER BY updated_at DESC, key DESC LIMIT ?2 OFFSET ?3"""


class _Row(NamedTuple):
    """An entry as it lies in its table, without the key of its session."""

    seq: int
    id: str | None
    kind: str
    critical: bool
    version: int
    at: float
    body: bytes


class SqliteStore:
    """Keeps sessions in a file. A `Store`, and `Immediate` for what needs no sync."""

    def __init__(self, path: str | os.PathLike[str], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._path = checked_path(path)
        self._clock = clock
        self._writer: Writer | None = None
        self._leases: set[Lease] = set()

    def __repr__(self) -> str:
        return f"SqliteStore({self._path!r})"

    async def acquire(self, session_id: str) -> Lease:
        """The lease of a session, which is made if it is new.

        One whose holder has died is taken over. Raises `SessionBusy` naming the process that holds it.
        """
        check_session_id(session_id)
        writer = self._opened()
        take = partial(_take, session_id, self._clock.now(), writer.leases)
        lease, cancelled = await uninterrupted(writer.write(take))
        self._leases.add(lease)
        if cancelled:
            await uninterrupted(self.release(lease))
            raise asyncio.CancelledError
        return lease

    async def release(self, lease: Lease) -> None:
        """Give the lease back; one that was lost already is not an error."""
        if self._writer is None:
            return  # closing gave back all there were
        writer = self._opened()
        self._leases.discard(lease)
        await _to_the_end(writer.write(partial(_give_back, lease, writer.leases)))

    async def append(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> None:
        """Add entries, numbered from the log's end, all or none."""
        if entries:
            await self._opened().write(_appending(lease, entries), sync=sync)
            faults.point("store.append.after_commit")

    def append_now(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> bool:
        """As `append`; `False` for a barrier, and while the file is busy or not open yet."""
        if not entries:
            return True
        if sync or not self._opened().write_now(_appending(lease, entries)):
            return False
        faults.point("store.append.after_commit")
        return True

    async def read(self, session_id: str, *, after: int = 0) -> list[Entry]:
        """The entries numbered above `after`, in order; none for a session that is not there."""
        check_session_id(session_id)
        check_count("after", after)
        rows = partial(_rows, _READ, (session_id, after))
        return await self._opened().read(rows, lambda found: [_entry(session_id, row) for row in found])

    async def list(self, *, prefix: str = "", limit: int = 50, offset: int = 0) -> list[SessionInfo]:
        """Sessions whose id begins with `prefix`, the most recently used first."""
        check_page(prefix, limit, offset)
        rows = partial(_rows, _LIST, (prefix, limit, offset))
        return await self._opened().read(rows, lambda found: [SessionInfo(*row) for row in found])

    async def delete(self, session_id: str) -> None:
        """Forget a session; one that is not there is not an error. Raises `SessionBusy` while it is being driven."""
        check_session_id(session_id)
        writer = self._opened()
        await _to_the_end(writer.write(partial(_delete, session_id, writer.leases), sync=True))

    async def aclose(self) -> None:
        """Give back the leases that are out, and let go of the file. The next use opens it again."""
        writer, self._writer = self._writer, None
        if writer is None or writer.is_inherited:
            return
        leases, self._leases = self._leases, set()
        try:
            for lease in leases:
                await _to_the_end(writer.write(partial(_give_back, lease, writer.leases)))
        finally:
            await _to_the_end(writer.leave(self))

    def _opened(self) -> "Writer":
        writer = self._writer
        if writer is None:
            from .sqlite_writer import writer_of

            writer = self._writer = writer_of(self._path)
            writer.join(self)
        writer.check_process()
        return writer


async def _to_the_end(work: Awaitable[None]) -> None:
    """Await what must not be left undone, and only then obey a cancel."""
    _, cancelled = await uninterrupted(work)
    if cancelled:
        raise asyncio.CancelledError


# -- what is done inside a transaction ---------------------------------------------------------------------------------


def _take(session_id: str, now: float, leases: set[Lease], connection: Connection) -> Lease:
    for _key, _head, fence, holder in connection.execute(_FIND, (session_id,)).fetchall():
        _check_free(Lease(session_id, fence), parse_holder(holder), leases)
    holder = msgspec.json.encode(this_process(now)).decode()
    lease = Lease(session_id, int(connection.execute(_TAKE, (session_id, holder, now)).get))
    leases.add(lease)
    return lease


def _check_free(lease: Lease, holder: Holder | None, leases: set[Lease]) -> None:
    """Refuse a session that somebody drives. What a dead process left behind, or we before an exec, is free."""
    if holder is not None and (lease in leases if holder.is_this_process else holder.is_alive):
        raise SessionBusy(
            f"session {lease.session_id!r} is being driven by {holder}: end that run, or open another session"
        )


def _give_back(lease: Lease, leases: set[Lease], connection: Connection) -> None:
    connection.execute(_GIVE_BACK, (lease.session_id, lease.fence))
    leases.discard(lease)


def _delete(session_id: str, leases: set[Lease], connection: Connection) -> None:
    for key, _head, fence, holder in connection.execute(_FIND, (session_id,)).fetchall():
        _check_free(Lease(session_id, fence), parse_holder(holder), leases)
        connection.execute("UPDATE meta SET value = max(value, ?) WHERE name = 'fence'", (fence,))
        connection.execute("DELETE FROM session WHERE key = ?", (key,))


def _appending(lease: Lease, entries: Sequence[Entry]) -> "partial[None]":
    """The job of an append. The entries are encoded here, before anybody else has to wait for it."""
    return partial(_append, lease, [_row(entry) for entry in entries], title_of(entries))


def _row(entry: Entry) -> _Row:
    event = entry.event
    kind = event.name if type(event) is Unknown else str(type(event).__struct_config__.tag)
    return _Row(entry.seq, entry.id or None, kind, type(event).critical, VERSION, entry.at, encode_event(event))


def _append(lease: Lease, rows: Sequence[_Row], title: str, connection: Connection) -> None:
    first, last = rows[0].seq, rows[-1].seq
    change = (last, rows[-1].at, title, lease.session_id, lease.fence, first - 1)
    key = connection.execute(_ADVANCE, change).get
    if key is None:
        _check_repeated(lease, rows, connection)
    elif [row.seq for row in rows] != [*range(first, last + 1)]:
        raise Conflict(f"entries for session {lease.session_id!r} must be numbered one by one, from {first} on")
    else:
        connection.executemany(_ADD, [(key, *row) for row in rows])
    faults.point("store.append.before_commit")


def _check_repeated(lease: Lease, rows: Sequence[_Row], connection: Connection) -> None:
    """Nothing to add when the log holds these very entries at these numbers; else say why they do not fit."""
    key, head, fence, _ = connection.execute(_FIND, (lease.session_id,)).get or (0, 0, 0, None)
    if fence != lease.fence:
        raise Fenced(
            f"session {lease.session_id!r} has changed hands since this driver got it: stop, and open it again"
        )
    there = connection.execute(_COMPARE, (key, rows[0].seq, rows[-1].seq)).fetchall()
    if there != [(row.seq, row.id) for row in rows] or not all(row.id for row in rows):
        raise Conflict(
            f"session {lease.session_id!r} ends at entry {head}, and entries from {rows[0].seq} on were to be added: "
            "read it again, and go on from its end"
        )
    # They may have been written without a sync, and this may be a barrier: a commit that changes nothing syncs nothing.
    connection.execute("UPDATE meta SET value = value + 1 WHERE name = 'repeated'")


def _rows(statement: str, values: tuple[str | int, ...], connection: Connection) -> list[tuple[Any, ...]]:
    return connection.execute(statement, values).fetchall()


def _entry(session_id: str, row: tuple[Any, ...]) -> Entry:
    seq, at, entry_id, critical, version, body = row
    try:
        event = decode_event(body, critical=bool(critical), version=version)
    except msgspec.DecodeError as error:
        raise StoreError(
            f"entry {seq} of session {session_id!r} is damaged ({error}): restore a backup, or delete the session"
        ) from error
    return Entry(seq, at, event, entry_id)
