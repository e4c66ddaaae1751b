"""Read the log of an SQLite store for its search, and record how far each session is indexed.

It reads over its own connection, which blocks no writer; it writes through the store's writer.
"""

import os
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar, cast

import apsw
import msgspec

from perdure._core.log.codec import decode_events
from perdure._core.values.error import StoreError
from perdure._stores.checks import ROLES
from perdure._stores.sqlite.database import file_identity, open_read_only, to_store_error
from perdure._stores.sqlite.driver import Connection
from perdure._stores.sqlite.file_system import ReadOnlyStoreError
from perdure._stores.sqlite.format.rows import PackRow, decode_row_entries
from perdure._stores.sqlite.log import EntryRange, find_ranges, make_long_text_reader
from perdure._stores.sqlite.write.jobs import Job
from perdure._stores.texts import extract_searchable_text

from .index import IndexedText

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")

MAX_SEQ: Final = 2**63 - 1
"""Greater than the number of any entry."""

_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")  # what tools say to a terminal, and no part of a word

# The row `search` in meta is the stamp. It is counted up by whatever takes something out of the log
# (`_stores/sqlite/write/erasure.py`).
_STAMP: Final = "SELECT coalesce((SELECT value FROM meta WHERE name = 'search'), 0)"
_SET_STAMP: Final = "INSERT INTO meta VALUES('search', ?) ON CONFLICT(name) DO UPDATE SET value = excluded.value"
_BEHIND: Final = "SELECT key, indexed, head FROM session WHERE unindexed > 0 ORDER BY key LIMIT ?"
_BACKLOG: Final = "SELECT coalesce(sum(head - indexed), 0) FROM session WHERE unindexed > 0"
_STAMP_AND_BACKLOG: Final = f"SELECT ({_STAMP}), ({_BACKLOG})"
# Only while the index is the one that we wrote to, for otherwise it was emptied meanwhile.
_ADVANCE: Final = """
UPDATE session SET indexed = ?1, unindexed = ?1 < head WHERE key = ?2 AND indexed <= ?1
AND ?3 = (SELECT value FROM meta WHERE name = 'search')"""
# One query for many sessions, since most are short.
_ROWS: Final = """
SELECT pack.session, pack.first, pack.last, version, heads, body, holes
FROM json_each(?) AS wanted JOIN pack ON pack.session = wanted.value ->> 0
    AND pack.last > wanted.value ->> 1 AND pack.first <= wanted.value ->> 2
ORDER BY wanted.key, pack.last"""
_FIND: Final = "SELECT key, head FROM session WHERE tenant = '' AND id = ?"
_BEGINNING: Final = """
SELECT key, head, parent, id FROM session
WHERE tenant = '' AND head > 0 AND id >= ?1 AND substr(id, 1, length(?1)) = ?1 ORDER BY key"""
_HOLDING: Final = """
SELECT first, version, holes, body, (SELECT id FROM session WHERE key = ?1)
FROM pack WHERE session = ?1 AND last >= ?2 ORDER BY last LIMIT 1"""
# The pages with texts, of which each search reads others. A larger cache would spend more on memory than it saves.
_CACHE: Final = "PRAGMA cache_size = -1024"
_FORKS: Final = "SELECT key, id FROM session WHERE parent = ? AND at >= ? ORDER BY key"


class SubmitJob(Protocol):
    """Protocol of the function that runs a job in a transaction of the store's writer."""

    def __call__(self, job: Job[Any], *, sync: bool = False) -> "Future[Any]": ...


class SearchRange(NamedTuple):
    """A range of entries that a search covers: the session that owns them, and the session id shown with hits."""

    session: int
    after: int
    upto: int
    shown_as: str


class LogReaderForSearch:
    """Reader of an SQLite store's log for its search, which also records how far each session is indexed.

    Use it on one thread only.
    """

    def __init__(self, path: str, vfs: str | None, submit: SubmitJob) -> None:
        self.path = path
        self._vfs = vfs
        self._submit = submit
        self._connection: Connection | None = None
        self._file = (0, 0)

    def close_if_replaced(self) -> None:
        """Close the connection if the file was deleted or replaced."""
        if self._connection is not None and file_identity(self.path) != self._file:
            self.close()

    @contextmanager
    def read_transaction(self) -> Generator[None]:
        """Context manager: run the block in a read transaction, on one snapshot of the log."""
        try:
            self._query("BEGIN")
            yield
        finally:
            if self._connection is not None and self._connection.in_transaction:
                self._query("COMMIT")

    def read_stamp(self) -> int:
        """Return the log's stamp, a number that changes when entries are removed; 0 if the log was never indexed."""
        return int(self._query(_STAMP)[0][0])

    def read_stamp_and_backlog(self) -> tuple[int, int]:
        """Return the log's stamp, and the number of entries that are not indexed yet."""
        stamp, backlog = self._query(_STAMP_AND_BACKLOG)[0]
        return int(stamp), int(backlog)

    def find_unindexed(self, count: int) -> list[tuple[int, int, int]]:
        """Return up to `count` sessions that are not fully indexed: key, last indexed entry and last entry of each."""
        return cast("list[tuple[int, int, int]]", self._query(_BEHIND, count))

    def read_texts(self, *ranges: EntryRange) -> list[IndexedText]:
        """Read the searchable texts of ranges of entries that sessions own, one range of each session at most."""
        found: list[IndexedText] = []
        wanted = {each.session: each for each in ranges}
        with self._translate_errors() as connection:
            text_of = make_long_text_reader(connection)
            for session, *columns in connection.execute(_ROWS, (msgspec.json.encode(ranges).decode(),)):
                row, (_, after, upto) = PackRow._make(columns), wanted[session]
                try:
                    entries = decode_row_entries(row, after + 1, upto, text_of, f"number {session}")
                except StoreError:
                    continue  # damaged, or of a newer version: reading the session reports it
                for entry in entries:
                    if (said := extract_searchable_text(entry.event)) is not None:
                        role, text = said
                        found.append(IndexedText(session, entry.seq, ROLES.index(role), entry.at, _strip_colours(text)))
        return found

    def read_text_and_owner(self, session: int, seq: int) -> tuple[str | None, str | None]:
        """Read the searchable text of one entry, and the id of the session that owns it.

        The text is `None` if it has none, the id if that session was deleted, or no such entry is found.
        """
        owner: str | None = None
        for first, version, holes, body, owner in self._query(_HOLDING, session, seq):
            if first <= seq and holes is None and (said := _text_in_event(body, seq - first, version)) is not None:
                return _strip_colours(said), owner
        docs = self.read_texts(EntryRange(session, seq - 1, seq))
        return (docs[0].text if docs else None), owner

    def record_indexed(self, stamp: int, upto: Sequence[tuple[int, int]]) -> None:
        """Record up to which entry each of these sessions is indexed, in the index with this stamp."""
        marks = [(seq, key, stamp) for key, seq in upto]
        self._submit(lambda connection: connection.executemany(_ADVANCE, marks)).result()

    def reset_indexed(self) -> int:
        """Record that no entry is indexed; return the stamp for the new index."""
        stamp = int.from_bytes(os.urandom(7)) + 1

        def begin_anew(connection: Connection) -> None:
            connection.execute(_SET_STAMP, (stamp,))
            connection.execute("UPDATE session SET indexed = at, unindexed = at < head")

        self._submit(begin_anew).result()
        return stamp

    def run_removal(self, job: Job[T]) -> tuple[T, int]:
        """Run a job that removes entries from the log, and change the log's stamp; return the job's result and the new
        stamp.
        """

        def run_and_read_stamp(connection: Connection) -> tuple[T, int]:
            return job(connection), int(connection.execute(_STAMP).get)

        return cast("tuple[T, int]", self._submit(run_and_read_stamp, sync=True).result())

    def find_removable_ranges(self, session_id: str, seq: int | None) -> list[tuple[int, int, int]]:
        """Return the ranges of entries that deleting a session, or redacting its entry `seq`, would remove.

        Deleting a session may also remove entries that were kept for it alone, of deleted ancestors.
        """
        spans = self.ranges_of_session(session_id)
        if seq is not None:
            return [(span.session, seq, seq) for span in spans if span.after < seq <= span.upto]
        keys = [span.session for span in spans]
        kept = [key for key in keys[:-1] if self._query("SELECT id FROM session WHERE key = ?", key) == [(None,)]]
        return [(key, 1, MAX_SEQ) for key in [*kept, *keys[-1:]]]

    def ranges_of_session(self, session_id: str) -> list[SearchRange]:
        """Return the ranges of entries that make up a session's log, its own last; an empty list if there is no such
        session.
        """
        for key, head in self._query(_FIND, session_id):
            with self._translate_errors() as connection:
                entry_ranges = find_ranges(connection, key, head)
            *shared, own = entry_ranges
            return [
                *[SearchRange(each.session, each.after, each.upto, session_id) for each in shared],
                SearchRange(own.session, 0, MAX_SEQ, session_id),
            ]
        return []

    def ranges_under_prefix(self, prefix: str) -> list[SearchRange]:
        """Return the ranges of entries of all sessions whose id begins with `prefix`, without duplicates."""
        rows = self._query(_BEGINNING, prefix)
        found = {key: SearchRange(key, 0, MAX_SEQ, session_id) for key, _, _, session_id in rows}
        own = set(found)
        for session_id in [row[3] for row in rows if row[2] is not None]:
            for span in self.ranges_of_session(session_id)[:-1]:
                known = found.get(span.session)
                if span.session not in own and (known is None or known.upto < span.upto):
                    found[span.session] = span
        return list(found.values())

    def find_shown_session_id(self, session: int, seq: int) -> str:
        """Return the session id to show for a search hit: the entry's owner, or if that was deleted, its oldest fork;
        empty if there is none.
        """
        known = self._query("SELECT key, id FROM session WHERE key = ?", session)
        while known:
            key, name = known.pop(0)
            if name is not None:
                return str(name)
            known += self._query(_FORKS, key, seq)
        return ""

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _query(self, statement: str, *values: str | int) -> list[tuple[Any, ...]]:
        try:  # as `_translate_errors` does, which takes longer than some queries
            return self._get_or_open().execute(statement, values).fetchall()
        except apsw.Error as error:
            raise to_store_error(error, self.path) from error

    @contextmanager
    def _translate_errors(self) -> Generator[Connection]:
        """Context manager: yield the connection, and raise its errors as `StoreError`, unlike errors of the index."""
        try:
            yield self._get_or_open()
        except apsw.Error as error:
            raise to_store_error(error, self.path) from error

    def _get_or_open(self) -> Connection:
        if self._connection is not None:
            return self._connection
        with suppress(ReadOnlyStoreError):
            self._submit(lambda _: None).result()  # so that there is a file to read
        connection = self._connection = open_read_only(self.path, self._vfs)
        connection.execute(_CACHE)
        self._file = file_identity(self.path)
        return connection


_packed = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_in_json = msgspec.json.Decoder(list[msgspec.Raw]).decode


def _text_in_event(body: bytes, place: int, version: int) -> str | None:
    """Return the searchable text of one event of a row, without decoding the others; `None` if that is not possible."""
    try:
        is_json = body[:1] == b"["
        event = bytes((_in_json if is_json else _packed)(body)[place])
        (found,) = decode_events(b"[%b]" % event if is_json else b"\x91" + event, version=version)  # an array of one
    except (msgspec.DecodeError, IndexError, TypeError, StoreError):
        return None
    said = extract_searchable_text(found)
    return said[1] if said else None


def _strip_colours(text: str) -> str:
    return _COLOURS.sub(" ", text) if "\x1b[" in text else text
