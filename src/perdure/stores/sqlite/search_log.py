"""What search reads of the log in an SQLite file, and the little that it notes there. Above: `search.py`.
Below: `log.py`.

It reads over a connection of its own, which holds up nobody; it writes as everybody does, by way of the store's writer.
"""

import os
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar, cast

import apsw
import msgspec

from perdure.core.codec import decode_events
from perdure.core.error import StoreError
from perdure.stores.search_query import ROLES
from perdure.stores.spoken import spoken

from .batch import Job
from .connection import Connection
from .file import connect_to_read, identity, store_error
from .log import Stretch, lineage, rows_in, text_from
from .row import entries_in_row
from .search_file import Doc

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")

LAST: Final = 2**63 - 1
"""Above the number of any entry."""

_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")  # what tools say to a terminal, and no part of a word

# The row `search` in meta is the stamp. It is counted up by whatever takes something out of the log (`tree.py`).
_STAMP: Final = "SELECT coalesce((SELECT value FROM meta WHERE name = 'search'), 0)"
_SET_STAMP: Final = "INSERT INTO meta VALUES('search', ?) ON CONFLICT(name) DO UPDATE SET value = excluded.value"
_BEHIND: Final = "SELECT key, indexed, head FROM session WHERE indexed < head ORDER BY key LIMIT ?"
_BACKLOG: Final = "SELECT coalesce(sum(head - indexed), 0) FROM session WHERE indexed < head"
# Only while the index is the one that we wrote to, for otherwise it was emptied meanwhile.
_ADVANCE: Final = """
UPDATE session SET indexed = ?1 WHERE key = ?2 AND indexed < ?1
AND ?3 = (SELECT value FROM meta WHERE name = 'search')"""
_FIND: Final = "SELECT key, head FROM session WHERE tenant = '' AND id = ?"
_BEGINNING: Final = """
SELECT key, head, parent, id FROM session
WHERE tenant = '' AND head > 0 AND id >= ?1 AND substr(id, 1, length(?1)) = ?1 ORDER BY key"""
_HOLDING: Final = "SELECT first, version, holes, body FROM pack WHERE session = ? AND last >= ? ORDER BY last LIMIT 1"
_FORKS: Final = "SELECT key, id FROM session WHERE parent = ? AND at >= ? ORDER BY key"


class Submit(Protocol):
    """Has a job done by the one who writes to the file, in a transaction."""

    def __call__(self, job: Job[Any], *, sync: bool = False) -> "Future[Any]": ...


class Span(NamedTuple):
    """A stretch of a session's own entries, and under which name they are to be shown."""

    session: int
    after: int
    upto: int
    shown_as: str


class Source:
    """The log, as search sees it. All of it is for one thread."""

    def __init__(self, path: str, vfs: str | None, submit: Submit) -> None:
        self.path = path
        self._vfs = vfs
        self._submit = submit
        self._connection: Connection | None = None
        self._file = (0, 0)

    def look(self) -> None:
        """Let go of a file that somebody has deleted or replaced."""
        if self._connection is not None and identity(self.path) != self._file:
            self.close()

    @contextmanager
    def reading(self) -> Generator[None]:
        """See the log at one moment."""
        self._rows("BEGIN")
        try:
            yield
        finally:
            self._rows("COMMIT")

    def stamp(self) -> int:
        """Changes whenever something leaves the log; 0 for a log that was never indexed."""
        return int(self._rows(_STAMP)[0][0])

    def backlog(self) -> int:
        """How many entries are not indexed yet."""
        return int(self._rows(_BACKLOG)[0][0])

    def behind(self, count: int) -> list[tuple[int, int, int]]:
        """Some sessions that are not indexed to their end: key, up to where they are, and where they end."""
        return cast("list[tuple[int, int, int]]", self._rows(_BEHIND, count))

    def docs(self, session: int, after: int, upto: int) -> list[Doc]:
        """What was said in a stretch of a session's own entries."""
        found: list[Doc] = []
        with self._failing() as connection:
            text_of = text_from(connection)
            for row in rows_in(connection, Stretch(session, after, upto)):
                try:
                    entries = entries_in_row(row, after + 1, upto, text_of, f"number {session}")
                except StoreError:
                    continue  # nobody can read it, or only a newer version: that is told to whoever opens the session
                for entry in entries:
                    if (said := spoken(entry.event)) is not None:
                        role, text = said
                        found.append(Doc(session, entry.seq, ROLES.index(role), entry.at, _plain(text)))
        return found

    def text(self, session: int, seq: int) -> str | None:
        """What was said in one entry; `None` when it is not there."""
        with self._failing() as connection:
            found = connection.execute(_HOLDING, (session, seq)).get
        if found is not None:
            first, version, holes, body = found
            if first <= seq and holes is None and (said := _said_in(body, seq - first, version)) is not None:
                return _plain(said)
        docs = self.docs(session, seq - 1, seq)
        return docs[0].text if docs else None

    def note(self, stamp: int, upto: Sequence[tuple[int, int]]) -> None:
        """Note that sessions are indexed up to some entry, in an index of this stamp."""
        marks = [(seq, key, stamp) for key, seq in upto]
        self._submit(lambda connection: connection.executemany(_ADVANCE, marks)).result()

    def renew(self) -> int:
        """Note that nothing is indexed; gives the stamp that the new index is to have."""
        stamp = int.from_bytes(os.urandom(7)) + 1

        def begin_anew(connection: Connection) -> None:
            connection.execute(_SET_STAMP, (stamp,))
            connection.execute("UPDATE session SET indexed = coalesce(at, 0)")

        self._submit(begin_anew).result()
        return stamp

    def change(self, job: Job[T]) -> tuple[T, int]:
        """Do a job that takes something out of the log, and changes the stamp; gives the stamp that it has then."""

        def stamped(connection: Connection) -> tuple[T, int]:
            return job(connection), int(connection.execute(_STAMP).get)

        return cast("tuple[T, int]", self._submit(stamped, sync=True).result())

    def at_risk(self, session_id: str, seq: int | None) -> list[tuple[int, int, int]]:
        """Which entries may go when an entry is redacted, or a session deleted: key of the owner, first and last.

        With a session may go what was kept for it alone of those it was forked from, and were deleted before.
        """
        spans = self.spans_of(session_id)
        if seq is not None:
            return [(span.session, seq, seq) for span in spans if span.after < seq <= span.upto]
        keys = [span.session for span in spans]
        kept = [key for key in keys[:-1] if self._rows("SELECT id FROM session WHERE key = ?", key) == [(None,)]]
        return [(key, 1, LAST) for key in [*kept, *keys[-1:]]]

    def spans_of(self, session_id: str) -> list[Span]:
        """What a session's log is made of, its own entries last; nothing when there is no such session."""
        for key, head in self._rows(_FIND, session_id):
            with self._failing() as connection:
                stretches = lineage(connection, key, head)
            *shared, own = stretches
            return [
                *[Span(each.session, each.after, each.upto, session_id) for each in shared],
                Span(own.session, 0, LAST, session_id),
            ]
        return []

    def spans_under(self, prefix: str) -> list[Span]:
        """What all sessions whose id begins so are made of, each entry once."""
        rows = self._rows(_BEGINNING, prefix)
        found = {key: Span(key, 0, LAST, session_id) for key, _, _, session_id in rows}
        own = set(found)
        for session_id in [row[3] for row in rows if row[2] is not None]:
            for span in self.spans_of(session_id)[:-1]:
                known = found.get(span.session)
                if span.session not in own and (known is None or known.upto < span.upto):
                    found[span.session] = span
        return list(found.values())

    def name(self, session: int, seq: int) -> str:
        """The session that owns an entry, or the oldest fork of it when that one has been deleted; else nothing."""
        known = self._rows("SELECT key, id FROM session WHERE key = ?", session)
        while known:
            key, name = known.pop(0)
            if name is not None:
                return str(name)
            known += self._rows(_FORKS, key, seq)
        return ""

    def close(self) -> None:
        """Let go of the file."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _rows(self, statement: str, *values: str | int) -> list[tuple[Any, ...]]:
        with self._failing() as connection:
            return connection.execute(statement, values).fetchall()

    @contextmanager
    def _failing(self) -> Generator[Connection]:
        """A failure of the log must not be taken for one of the index."""
        try:
            yield self._opened()
        except apsw.Error as error:
            raise store_error(error, self.path) from error

    def _opened(self) -> Connection:
        if self._connection is not None:
            return self._connection
        self._submit(lambda _: None).result()  # so that there is a file to read
        connection = self._connection = connect_to_read(self.path, self._vfs)
        self._file = identity(self.path)
        return connection


_packed = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_in_json = msgspec.json.Decoder(list[msgspec.Raw]).decode


def _said_in(body: bytes, place: int, version: int) -> str | None:
    """What was said in one event of a row, without reading the others; `None` when it is not that simple."""
    try:
        is_json = body[:1] == b"["
        event = bytes((_in_json if is_json else _packed)(body)[place])
        (found,) = decode_events(b"[%b]" % event if is_json else b"\x91" + event, version=version)  # an array of one
    except (msgspec.DecodeError, IndexError, TypeError, StoreError):
        return None
    said = spoken(found)
    return said[1] if said else None


def _plain(text: str) -> str:
    return _COLOURS.sub(" ", text) if "\x1b[" in text else text
