"""The full-text index of an SQLite store, in a separate file beside it.

It contains no text, only the positions of words: half the size of the text, and nothing that is not in the log as well.
So removing a text from the index requires the text, and a damaged index is simply rebuilt.

It is a separate file because FTS5 rewrites its tables every now and then, which takes a tenth of a second: appends to
the log do not have to wait for that, or pay for it at the next sync.
"""

import os
import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol, cast

import apsw

from perdure._core.values.error import StoreError
from perdure._stores.files import create_file
from perdure._stores.sqlite.database import (
    disable_schema_programs,
    file_identity,
    retry_while_busy,
    run_in_transaction,
    sync_wal,
    transaction,
)
from perdure._stores.sqlite.driver import Connection, Cursor
from perdure._stores.sqlite.file_system import (
    build_immutable_uri,
    build_read_only_error,
    get_read_only_flags,
    is_read_only,
)
from perdure._stores.texts import Token

FORMAT: Final = 1
"""The version of the tables below, of the tokenizer, and of what counts as text. An index of another one is rebuilt."""

BUSY_SECONDS: Final = 10
"""The time to wait for other processes, whose batches take a tenth of a second at most."""

_APPLICATION_ID: Final = 0x50455253  # the letters PERS
_GATHERED: Final = 8_000_000  # bytes: a whole batch, so that it is written at once, and merged with others less often
_TOKENIZER: Final[tuple[str, ...]] = ("unicode61", "remove_diacritics", "2")

# FTS5 numbers its rows, and packs them best when these numbers are dense: `doc` has the entry of each.
# `stamp` is what the log had when the two were last known to agree; negative while the file may have removed texts.
_TABLES: Final = f"""
CREATE TABLE state(stamp INTEGER NOT NULL) STRICT;
INSERT INTO state VALUES(0);
CREATE TABLE doc(
    key INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    role INTEGER NOT NULL,
    at REAL NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX doc_place ON doc(session, seq);
CREATE VIRTUAL TABLE search USING fts5(text, content='', tokenize='{" ".join(_TOKENIZER)}');
INSERT INTO search(search, rank) VALUES('secure-delete', 1), ('hashsize', {_GATHERED});
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {FORMAT};
"""

# `indexed` in the log must never be ahead of what is on the disk here: hence FULL.
_PRAGMAS: Final = """
PRAGMA journal_mode = wal;
PRAGMA synchronous = FULL;
PRAGMA trusted_schema = OFF;
PRAGMA cell_size_check = ON;
PRAGMA secure_delete = ON;
PRAGMA journal_size_limit = 16777216;
PRAGMA cache_size = -8000;
"""

_DROP_TABLES: Final = """
DROP TABLE IF EXISTS search;
DROP TABLE IF EXISTS doc;
DROP TABLE IF EXISTS state;
"""

_SECURE_COST: Final = 500
"""Removing one text in place costs as much as writing this many of them when the whole index is rewritten."""

_NOTE: Final = """
INSERT INTO doc(session, seq, role, at, checksum) VALUES(?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING RETURNING key, session, seq"""
_TAKE_OUT: Final = "INSERT INTO search(search, rowid, text) VALUES('delete', ?, ?)"
_MERGE: Final = "INSERT INTO search(search) VALUES('optimize')"
_SECURELY: Final = "INSERT INTO search(search, rank) VALUES('secure-delete', ?)"

# FTS5 merges no single segment, so a text is indexed for a moment: two segments in two levels are merged to a new top
# level. But a segment that is not larger than a new one is moved down to its level: the first text makes it larger than
# the second.
_FILLERS: Final = (f"{'a' * 5000} {'b' * 5000}", "a")
_STRUCTURE_ID: Final = 10
_COOKIE_BYTES: Final = 4
_MORE_FOLLOWS: Final = 0x80
_NUMBERS_PER_SEGMENT: Final = 3  # its id, first and last page

DAMAGE: Final = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError, apsw.SchemaChangeError, apsw.SQLError)
"""The errors that SQLite raises for a damaged file. (The statements themselves are right.)"""


class StaleIndexError(Exception):
    """Raised when the search index does not match the log and has to be rebuilt."""


class StampMismatchError(StaleIndexError):
    """Raised when the search index has another stamp than the log: perhaps another process is rebuilding it."""


class IndexedText(NamedTuple):
    """The searchable text of an entry, with the entry's session, number, time and role."""

    session: int
    """The key of the session that owns the entry."""
    seq: int
    role: int
    """Its position in `ROLES`."""
    at: float
    text: str


class _TokenizingConnection(Connection, Protocol):
    """A connection that can also tokenize text as its FTS5 does."""

    def execute(self, statements: str, bindings: Sequence[Any] | Mapping[str, Any] | None = None) -> Cursor: ...

    def fts5_tokenizer(self, name: str, args: list[str] | None = None) -> Callable[..., list[Token]]: ...


class SearchIndex:
    """The file with the full-text index of an SQLite store. Use it on one thread only."""

    def __init__(self, path: str) -> None:
        self.path = f"{path}-search"
        self._connection: _TokenizingConnection | None = None
        self._file = (0, 0)
        self._tokenizer: Callable[..., list[Token]] | None = None

    @property
    def exists(self) -> bool:
        """True if the index file exists; it is created at first use."""
        return file_identity(self.path) != (0, 0)

    def close_if_replaced(self) -> None:
        """Close the connection if the file was deleted or replaced: writes to it would be lost."""
        if self._connection is not None and file_identity(self.path) != self._file:
            self.drop_connection()

    @property
    def is_writable(self) -> bool:
        """True if the index can be written, or there is none."""
        return not is_read_only(self.path)

    def check_writable(self) -> None:
        """Raise `ReadOnlyStoreError` if the index cannot be written."""
        if not self.is_writable:
            raise build_read_only_error(self.path)

    @contextmanager
    def write_transaction(self) -> Generator[None]:
        """Context manager: run the block in a write transaction, which excludes all other processes."""
        with transaction(self._get_or_open()):
            yield

    @contextmanager
    def read_transaction(self) -> Generator[None]:
        """Context manager: run the block on one snapshot of the index."""
        with transaction(self._get_or_open(), "BEGIN"):
            yield

    @property
    def stamp(self) -> int:
        """The stamp of the log that this index matches; 0 if there never was one.

        Negative while the index matches the log, and its file has still to be rewritten without removed texts.
        """
        return int(self._get_or_open().execute("SELECT stamp FROM state").get)

    @stamp.setter
    def stamp(self, stamp: int) -> None:
        """The stamp of the log that this index matches, negative if its file has still to be rewritten."""
        self._get_or_open().execute("UPDATE state SET stamp = ?", (stamp,))

    def add(self, docs: Sequence[IndexedText]) -> None:
        """Add texts that are not in the index yet. Raises `StaleIndexError` if an entry has another text there."""
        connection = self._get_or_open()
        texts = {(doc.session, doc.seq): doc.text for doc in docs}
        sums = {place: zlib.crc32(text.encode()) for place, text in texts.items()}
        notes = [(*doc[:4], sums[doc.session, doc.seq]) for doc in docs]
        # All at once: a call for each costs as much as the work.
        new = [(key, texts.pop((session, seq))) for key, session, seq in connection.executemany(_NOTE, notes)]
        connection.executemany("INSERT INTO search(rowid, text) VALUES(?, ?)", new)
        for session, seq in texts:
            if self.read_checksum(session, seq) != sums[session, seq]:
                raise StaleIndexError(f"entry {seq} of session {session} is another one than when it was indexed")

    def find_indexed_seqs(self, session: int, first: int, last: int) -> list[int]:
        """Return the numbers of those entries from `first` to `last` that are in the index."""
        found = self._get_or_open().execute(
            "SELECT seq FROM doc WHERE session = ? AND seq BETWEEN ? AND ?", (session, first, last)
        )
        return [seq for (seq,) in found.fetchall()]

    def read_checksum(self, session: int, seq: int) -> int | None:
        """Return the checksum of the text that was indexed for an entry; `None` if there was none."""
        checksum: int | None = (
            self._get_or_open().execute("SELECT checksum FROM doc WHERE session = ? AND seq = ?", (session, seq)).get
        )
        return checksum

    def remove(self, texts: Sequence[tuple[int, int, str]]) -> bool:
        """Remove texts from the index, each given with the key of its session and its entry number; return True if all
        of the index was rewritten.

        No byte of them is left once this has been committed and `truncate_wal` called; if the index was rewritten,
        `rewrite_pages` before that. Raises `StaleIndexError` if one of them is not what was indexed: removing it would
        corrupt FTS5's tables.
        """
        connection = self._get_or_open()
        count: int = connection.execute("SELECT coalesce(max(key), 0) FROM doc").get
        at_once = len(texts) * _SECURE_COST > count
        if at_once:  # cheaper than each in its place
            connection.execute(_SECURELY, (0,))
        for session, seq, text in texts:
            if self.read_checksum(session, seq) != zlib.crc32(text.encode()):
                raise StaleIndexError(f"entry {seq} of session {session} is another one than when it was indexed")
            key = connection.execute("DELETE FROM doc WHERE session = ? AND seq = ? RETURNING key", (session, seq)).get
            connection.execute(_TAKE_OUT, (key, text))
        if at_once:
            _merge_segments(connection)
        return at_once

    def rewrite_pages(self) -> None:
        """Rewrite the file without free pages and free space, where SQLite may have left copies of removed rows."""
        retry_while_busy(lambda: self._get_or_open().execute("VACUUM"))

    def truncate_wal(self) -> None:
        """Empty the write-ahead log of the index, so that removed texts are not left in it."""
        retry_while_busy(lambda: self._get_or_open().wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE))
        sync_wal(self.path, None)

    def query(self, statement: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        return self._get_or_open().execute(statement, values).fetchall()

    def tokenize(self, text: bytes) -> list[Token]:
        """Tokenize a text as the index does."""
        if self._tokenizer is None:
            self._tokenizer = self._get_or_open().fts5_tokenizer(_TOKENIZER[0], list(_TOKENIZER[1:]))
        return self._tokenizer(text, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_colocated=False)

    def recreate_tables(self) -> None:
        """Empty the index, within a write transaction. Removed texts are left in the file until `rewrite_pages`."""
        connection = self._get_or_open()
        connection.execute("PRAGMA secure_delete = OFF")  # for dropping them would overwrite every page
        try:
            connection.execute(_DROP_TABLES + _TABLES)
        finally:
            connection.execute("PRAGMA secure_delete = ON")

    def clear(self) -> None:
        """Empty the index, whatever its state, while other processes may have it open. They find no tables then."""
        self.drop_connection()
        connection = self._connect()
        try:
            connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
            connection.config(apsw.SQLITE_DBCONFIG_RESET_DATABASE, 1)
            connection.execute("VACUUM")
            connection.config(apsw.SQLITE_DBCONFIG_RESET_DATABASE, 0)
            _configure_connection(connection)
            retry_while_busy(lambda: connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE))
            sync_wal(self.path, None)
        finally:
            connection.close()

    def vacuum(self) -> None:
        """Shrink the index file to its minimum size."""
        with self.write_transaction():
            _merge_segments(self._get_or_open())
        self.rewrite_pages()
        self.truncate_wal()

    def close(self) -> None:
        """Close the connection and remove the write-ahead log."""
        if self._connection is not None:
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        self.drop_connection()

    def drop_connection(self) -> None:
        """Close the connection. The next use opens another one, and creates the tables in a file that was cleared."""
        connection, self._connection, self._tokenizer = self._connection, None, None
        if connection is not None:
            connection.close()

    def _get_or_open(self) -> _TokenizingConnection:
        if self._connection is not None:
            return self._connection
        if is_read_only(self.path):
            return self._open_read_only()
        connection = self._connect()
        try:
            _configure_connection(connection)
            _create_tables(connection)
        except BaseException:
            connection.close()
            raise
        self._connection, self._file = connection, file_identity(self.path)
        return connection

    def _open_read_only(self) -> _TokenizingConnection:
        """Open an index that cannot be written. Raises `StaleIndexError` if it has another format."""
        connection = cast(
            "_TokenizingConnection", apsw.Connection(build_immutable_uri(self.path), flags=get_read_only_flags())
        )
        disable_schema_programs(connection)
        try:
            has_tables = _has_tables(connection)
        except BaseException:
            connection.close()
            raise
        if not has_tables:
            connection.close()
            raise build_read_only_error(self.path)
        self._connection, self._file = connection, file_identity(self.path)
        return connection

    def _connect(self) -> _TokenizingConnection:
        self.check_writable()
        try:
            create_file(self.path)
        except OSError as error:
            raise StoreError(f"the search index {self.path!r} cannot be made: {error.strerror}") from error
        connection = cast("_TokenizingConnection", apsw.Connection(self.path, flags=apsw.SQLITE_OPEN_READWRITE))
        disable_schema_programs(connection)
        connection.set_busy_timeout(BUSY_SECONDS * 1000)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        # Closing must not delete the write-ahead log by its name: the file may have been replaced, and the log then
        # belongs to the new one; and a forked child must not do it at all.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        return connection


def measure_search_index(path: str) -> int:
    """Return the size in bytes of the search index of the store at `path`."""
    total = 0
    for suffix in ("-search", "-search-wal", "-search-shm"):
        try:
            total += os.stat(path + suffix).st_size  # noqa: PTH116 - as everywhere in the stores
        except OSError:
            continue
    return total


def _configure_connection(connection: Connection) -> None:
    """Set the options of a connection. SQLite does not wait for its lock when it begins a write-ahead log, and several
    processes may open a new file.
    """
    # All rows are fetched, since SQLite stops where there is a row to be had.
    retry_while_busy(lambda: connection.execute(_PRAGMAS).fetchall())


def _create_tables(connection: Connection) -> None:
    """Create the tables if the file is empty. Raises `StaleIndexError` for a file of another format."""

    def make(connection: Connection) -> None:
        if not _has_tables(connection):  # another process may have been quicker
            connection.execute(_TABLES)

    if not _has_tables(connection):
        run_in_transaction(connection, make)


def _merge_segments(connection: Connection) -> None:
    """Rewrite the index as one segment without removed terms; later removals are then done in place."""
    connection.execute(_MERGE)
    key: int = connection.execute("SELECT coalesce(max(id), 0) FROM search_docsize").get
    added: list[tuple[int, str]] = []
    for filler in _FILLERS:
        if _may_hold_removed_words(connection):
            added.append((key + len(added) + 1, filler))
            connection.execute("INSERT INTO search(rowid, text) VALUES(?, ?)", added[-1])
            connection.execute(_MERGE)
    connection.execute(_SECURELY, (1,))
    connection.executemany(_TAKE_OUT, added)
    if _may_hold_removed_words(connection):
        raise StaleIndexError("words of removed texts are left in it")


def _may_hold_removed_words(connection: Connection) -> bool:
    """Return True unless all segments are in the top level of FTS5's structure.

    Removing a text writes its words again, each with a mark. A merge drops them on its way to the top level, and keeps
    them below it, even if there is nothing above: FTS5 moves small segments down, and leaves their levels empty.
    """
    levels = _read_levels(connection.execute("SELECT block FROM search_data WHERE id = ?", (_STRUCTURE_ID,)).get)
    return any(levels[:-1])


def _read_levels(block: bytes) -> list[int]:
    """Return the number of segments in each level, the top level last, as recorded in FTS5's structure record."""
    count, _segments, _writes, *numbers = _read_varints(block[_COOKIE_BYTES:])
    levels: list[int] = []
    try:
        for _ in range(count):
            levels.append(numbers[1])  # after the number of those that are being merged
            del numbers[: 2 + levels[-1] * _NUMBERS_PER_SEGMENT]
    except IndexError as error:
        raise StaleIndexError(f"the structure of the index is unknown: {block.hex()}") from error
    return levels


def _read_varints(data: bytes) -> list[int]:
    """Decode SQLite's variable-length integers, none of which has nine bytes here."""
    values = [0]
    for byte in data:
        values[-1] = values[-1] << 7 | byte & ~_MORE_FOLLOWS
        if not byte & _MORE_FOLLOWS:
            values.append(0)
    return values[:-1]


def _has_tables(connection: Connection) -> bool:
    stamp = connection.execute(
        "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema) "
        "FROM pragma_application_id, pragma_user_version"
    ).get
    if stamp == (0, 0, 0):
        return False
    if stamp[:2] != (_APPLICATION_ID, FORMAT):
        raise StaleIndexError(f"the index has another format: {stamp!r}")
    return True
