"""The search index of an SQLite store: a file of its own beside it. Above: `search.py`. Below: apsw and FTS5.

It holds no text, only which word stands where: half the size of the text, and nothing that is not in the log as well.
So a text can only be taken out by whoever still knows it, and a damaged index is simply made anew.

A file of its own, because FTS5 rewrites its tables every now and then, which takes it a tenth of a second: nobody who
appends to the log has to wait for that, or pays for it at the next sync.
"""

import os
import zlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol, cast

import apsw

from perdure.core.error import StoreError
from perdure.stores.place import make_file
from perdure.stores.snippet import Token

from .connection import Connection, Cursor
from .file import identity, sync_log, transact

FORMAT: Final = 1
"""Of the tables below, of how words are found in a text, and of what counts as text. Another one is made anew."""

BUSY_SECONDS: Final = 10
"""How long to wait for other processes, whose batches take a tenth of a second at most."""

_APPLICATION_ID: Final = 0x574E4453  # the letters WNDS
_GATHERED: Final = 8_000_000  # bytes: a whole batch, so that it is written at once, and merged with others less often
_TOKENIZER: Final[tuple[str, ...]] = ("unicode61", "remove_diacritics", "2")

# FTS5 numbers its rows, and packs them best when these numbers are dense: `doc` says where each of them stands.
# `stamp` is what the log had when the two were last known to agree.
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

_SECURE_COST: Final = 500
"""Taking one text out in place costs as much as writing this many of them anew does when all are rewritten."""

_NOTE: Final = """
INSERT INTO doc(session, seq, role, at, checksum) VALUES(?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING key"""
_TAKE_OUT: Final = "INSERT INTO search(search, rowid, text) VALUES('delete', ?, ?)"
_SECURELY: Final = "INSERT INTO search(search, rank) VALUES('secure-delete', ?)"

DAMAGE: Final = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError, apsw.SchemaChangeError, apsw.SQLError)
"""What SQLite raises when the file is not what we made of it. (Our own statements are right.)"""


class Stale(Exception):
    """The index is about another log than the one at hand, or about what that was once: it must be made anew."""


class Doc(NamedTuple):
    """Something that was said."""

    session: int
    """The key of the session that owns the entry."""
    seq: int
    role: int
    """Its place in `ROLES`."""
    at: float
    text: str


class _Tokenizing(Connection, Protocol):
    """A connection that can also cut text into words as its FTS5 does."""

    def execute(self, statements: str, bindings: Sequence[Any] | Mapping[str, Any] | None = None) -> Cursor: ...

    def fts5_tokenizer(self, name: str, args: list[str] | None = None) -> Callable[..., list[Token]]: ...


class Index:
    """The file. All of it is for one thread."""

    def __init__(self, path: str) -> None:
        self.path = f"{path}-search"
        self._connection: _Tokenizing | None = None
        self._file = (0, 0)
        self._tokenizer: Callable[..., list[Token]] | None = None

    @property
    def exists(self) -> bool:
        """Whether there is such a file; it is made at first use."""
        return identity(self.path) != (0, 0)

    def look(self) -> None:
        """Let go of a file that somebody has deleted or replaced: what is written to it is lost."""
        if self._connection is not None and identity(self.path) != self._file:
            self._let_go()

    @contextmanager
    def changing(self) -> Generator[None]:
        """A transaction. Nobody else, in any process, changes the index meanwhile."""
        connection = self._opened()
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    @property
    def stamp(self) -> int:
        """What the log had when the two were last known to agree; 0 when that has never been."""
        return int(self._opened().execute("SELECT stamp FROM state").get)

    @stamp.setter
    def stamp(self, stamp: int) -> None:
        self._opened().execute("UPDATE state SET stamp = ?", (stamp,))

    def add(self, docs: Iterable[Doc]) -> None:
        """Put in what is not there yet. Raises `Stale` when something else stands in its place."""
        connection = self._opened()
        for session, seq, role, at, text in docs:
            checksum = zlib.crc32(text.encode())
            key = connection.execute(_NOTE, (session, seq, role, at, checksum)).get
            if key is not None:
                connection.execute("INSERT INTO search(rowid, text) VALUES(?, ?)", (key, text))
            elif self.checksum(session, seq) != checksum:
                raise Stale(f"entry {seq} of session {session} is another one than when it was indexed")

    def places(self, session: int, first: int, last: int) -> list[int]:
        """Which entries of a session are in the index, of those from `first` to `last`."""
        found = self._opened().execute(
            "SELECT seq FROM doc WHERE session = ? AND seq BETWEEN ? AND ?", (session, first, last)
        )
        return [seq for (seq,) in found.fetchall()]

    def checksum(self, session: int, seq: int) -> int | None:
        """Of the text that was indexed; `None` when none was."""
        checksum: int | None = (
            self._opened().execute("SELECT checksum FROM doc WHERE session = ? AND seq = ?", (session, seq)).get
        )
        return checksum

    def take_out(self, texts: Sequence[tuple[int, int, str]]) -> None:
        """Remove texts, each named by session and number, and leave no byte of them, once this has been committed and
        `settle` called. Raises `Stale` when one of them is not what was indexed: FTS5 would be left in disorder.
        """
        connection = self._opened()
        count = connection.execute("SELECT coalesce(max(key), 0) FROM doc").get
        at_once = len(texts) * _SECURE_COST > count
        if at_once:  # cheaper than each in its place
            connection.execute(_SECURELY, (0,))
        for session, seq, text in texts:
            if self.checksum(session, seq) != zlib.crc32(text.encode()):
                raise Stale(f"entry {seq} of session {session} is another one than when it was indexed")
            key = connection.execute("DELETE FROM doc WHERE session = ? AND seq = ? RETURNING key", (session, seq)).get
            connection.execute(_TAKE_OUT, (key, text))
        if at_once:
            connection.execute("INSERT INTO search(search) VALUES('optimize')")
            connection.execute(_SECURELY, (1,))

    def settle(self) -> None:
        """Let nothing remain in the write-ahead log of what was there before."""
        self._opened().wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        sync_log(self.path, None)

    def rows(self, statement: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """What a query finds."""
        return self._opened().execute(statement, values).fetchall()

    def tokens(self, text: bytes) -> list[Token]:
        """The words of a text, as they are in the index."""
        if self._tokenizer is None:
            self._tokenizer = self._opened().fts5_tokenizer(_TOKENIZER[0], list(_TOKENIZER[1:]))
        return self._tokenizer(text, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_colocated=False)

    def reset(self) -> None:
        """Empty the file, whatever it is by now, while others may have it open."""
        self._let_go()
        connection = self._connected()
        try:
            connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
            connection.config(apsw.SQLITE_DBCONFIG_RESET_DATABASE, 1)
            connection.execute("VACUUM")
            connection.config(apsw.SQLITE_DBCONFIG_RESET_DATABASE, 0)
            connection.execute(_PRAGMAS).fetchall()  # each of them: SQLite stops where there is a row to be had
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            sync_log(self.path, None)
        finally:
            connection.close()

    def vacuum(self) -> None:
        """Make the file as small as it can be."""
        connection = self._opened()
        connection.execute("INSERT INTO search(search) VALUES('optimize')")
        connection.execute("VACUUM")
        self.settle()

    def close(self) -> None:
        """Let go of the file, and leave it in one piece."""
        if self._connection is not None:
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        self._let_go()

    def _let_go(self) -> None:
        connection, self._connection, self._tokenizer = self._connection, None, None
        if connection is not None:
            connection.close()

    def _opened(self) -> _Tokenizing:
        if self._connection is not None:
            return self._connection
        connection = self._connected()
        try:
            connection.execute(_PRAGMAS).fetchall()  # each of them: SQLite stops where there is a row to be had
            _make_tables(connection)
        except BaseException:
            connection.close()
            raise
        self._connection, self._file = connection, identity(self.path)
        return connection

    def _connected(self) -> _Tokenizing:
        try:
            make_file(self.path)
        except OSError as error:
            raise StoreError(f"the search index {self.path!r} cannot be made: {error.strerror}") from error
        connection = cast("_Tokenizing", apsw.Connection(self.path, flags=apsw.SQLITE_OPEN_READWRITE))
        connection.set_busy_timeout(BUSY_SECONDS * 1000)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        # Closing must not delete the write-ahead log by its name: the file may have been replaced, and the log then
        # belongs to the new one; and a forked child must not do it at all.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        return connection


def search_bytes(path: str) -> int:
    """What the index of a store takes on the disk."""
    total = 0
    for suffix in ("-search", "-search-wal", "-search-shm"):
        try:
            total += os.stat(path + suffix).st_size  # noqa: PTH116 - as everywhere in the stores
        except OSError:
            continue
    return total


def _make_tables(connection: Connection) -> None:
    """Make them if the file is empty. Raises `Stale` for a file of another format."""

    def make(connection: Connection) -> None:
        if not _is_ours(connection):  # another process may have been quicker
            connection.execute(_TABLES)

    if not _is_ours(connection):
        transact(connection, make)


def _is_ours(connection: Connection) -> bool:
    stamp = connection.execute(
        "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema) "
        "FROM pragma_application_id, pragma_user_version"
    ).get
    if stamp == (0, 0, 0):
        return False
    if stamp[:2] != (_APPLICATION_ID, FORMAT):
        raise Stale(f"the index has another format: {stamp!r}")
    return True
