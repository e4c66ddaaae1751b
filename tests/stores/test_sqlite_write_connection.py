"""The connection that writes: when its write-ahead log is moved into the database, and whom it waits for then."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import apsw
import pytest

from perdure import StoreError
from perdure._stores.sqlite import connections, database
from perdure._stores.sqlite.connections import CHECKPOINT_PAGES, WriteConnection
from perdure._stores.sqlite.write.jobs import CAN_SYNC_WAL
from tests.stores.material import another_connection


class Waits:
    """A connection that notes for how long it is told to wait for others, in milliseconds."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.milliseconds: list[int] = []

    def set_busy_timeout(self, milliseconds: int) -> None:
        self.milliseconds.append(milliseconds)
        self.connection.set_busy_timeout(milliseconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)


class Asked:
    """How often a checkpoint was asked for."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


@pytest.fixture
def asked():
    return Asked()


@pytest.fixture
def access(path, asked):
    """A connection that has written a little."""
    access = WriteConnection(str(path), None, asked)
    connection = access.get_or_open()
    connection.execute("CREATE TABLE words (word)")
    connection.execute("INSERT INTO words VALUES ('one')")
    yield access
    access.close()


def size_of_log(path) -> int:
    return path.with_name("sessions.db-wal").stat().st_size


def test_a_log_that_is_not_long_is_moved_without_waiting_for_anybody_and_its_file_stays(access, path, monkeypatch):
    size = size_of_log(path)
    monkeypatch.setattr(connections, "MAX_WAL_BYTES", size)  # exactly the limit
    access._connection = waits = Waits(access.connection)
    access.checkpoint()
    assert (waits.milliseconds, size_of_log(path)) == ([0, 0], size)


def test_a_log_that_is_too_long_waits_a_second_for_readers_and_is_emptied(access, path, monkeypatch):
    monkeypatch.setattr(connections, "MAX_WAL_BYTES", size_of_log(path) - 1)
    access._connection = waits = Waits(access.connection)
    access.checkpoint()
    assert (waits.milliseconds, size_of_log(path)) == ([1000, 0], 0)  # and whoever cannot wait finds it so


def test_a_log_that_somebody_reads_is_left_for_later_and_nothing_is_lost(access, path, monkeypatch, caplog):
    monkeypatch.setattr(connections, "MAX_WAL_BYTES", 0)
    with another_connection(path) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM words").get == 1
        access.connection.execute("INSERT INTO words VALUES ('two')")
        access._connection = Impatient(access.connection)
        access.checkpoint()
        reader.execute("COMMIT")
        assert reader.execute("SELECT count(*) FROM words").get == 2
    assert "could not be moved into the database yet" in caplog.text
    assert access.is_open
    assert access.connection.asked == [1000, 0]  # and whoever cannot wait finds it so


def test_erased_data_leaves_the_log_also_while_another_process_empties_it(access, path, monkeypatch):
    """SQLite calls no busy handler for the lock of a checkpoint, so two deletes at once met each other."""
    with another_connection(path) as reader, another_connection(path) as other, ThreadPoolExecutor(1) as thread:
        reader.execute("BEGIN; SELECT count(*) FROM words")
        assert other.execute("SELECT count(*) FROM words").get == 1  # it would not look for a log before
        access.connection.execute("INSERT INTO words VALUES ('two')")
        holds, may_go_on = threading.Event(), threading.Event()

        def wait_for_readers(_: int) -> bool:
            holds.set()
            return may_go_on.wait(60)

        def let_go(_: float) -> None:
            reader.close()
            may_go_on.set()
            emptied.result(60)

        other.set_busy_handler(wait_for_readers)
        emptied = thread.submit(other.wal_checkpoint, mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        assert holds.wait(60)
        monkeypatch.setattr("time.sleep", let_go)
        try:
            with access.use_with_timeout() as connection:
                access.erase_remains((), connection)
        finally:
            let_go(0)
    assert size_of_log(path) == 0


def test_erased_data_that_somebody_reads_for_too_long_is_told_of(access, path, monkeypatch):
    monkeypatch.setattr(database, "BUSY_SECONDS", 0)
    access.connection.set_busy_timeout(0)
    with another_connection(path) as reader:
        reader.execute("BEGIN; SELECT count(*) FROM words")
        with pytest.raises(StoreError, match=r"another process kept reading: call vacuum\(\)"):
            access.erase_remains((), access.connection)


class Impatient(Waits):
    """Waits for nobody, so that the test need not."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self.asked: list[int] = []

    def set_busy_timeout(self, milliseconds: int) -> None:
        self.asked.append(milliseconds)
        super().set_busy_timeout(min(milliseconds, 0))


@pytest.mark.parametrize(
    ("commits", "times"),
    [
        ([CHECKPOINT_PAGES - 1], 0),
        ([CHECKPOINT_PAGES], 1),
        ([CHECKPOINT_PAGES, CHECKPOINT_PAGES + 1, 2 * CHECKPOINT_PAGES - 1], 1),
        ([CHECKPOINT_PAGES, 2 * CHECKPOINT_PAGES], 2),
        ([2 * CHECKPOINT_PAGES, 10, CHECKPOINT_PAGES], 2),  # it was moved in between
    ],
)
def test_a_checkpoint_is_asked_for_each_time_the_log_has_grown_by_so_many_pages(access, asked, commits, times):
    for pages in commits:
        assert access._on_commit(access.connection, "main", pages) == apsw.SQLITE_OK
    assert asked.times == times


def test_a_connection_that_was_closed_is_opened_anew_and_not_used_without_waiting_before(access, path):
    assert access.get_if_idle() is access.connection
    access.close()
    assert access.get_if_idle() is None
    assert not access.is_open
    access.checkpoint()  # of nothing
    with access.use_with_timeout() as connection:
        assert connection.execute("SELECT word FROM words").get == "one"


def test_a_log_that_another_process_left_is_written_again_before_anything_is_added(access, path):
    left = WriteConnection(str(path), None, Asked())
    left.get_or_open()
    assert left.get_if_idle() is None  # what it holds may never have reached the disk
    with left.use_with_timeout() as connection:
        assert left.get_if_idle() is connection
    left.close()


def test_only_who_asks_for_it_waits_for_another_process(access: WriteConnection) -> None:
    """An event loop may write over a connection that a reader has opened, and must not wait then."""

    def milliseconds() -> object:
        return access.get_or_open().execute("PRAGMA busy_timeout").get

    assert milliseconds() == 0
    with access.use_with_timeout():
        assert milliseconds() == 30_000
    assert milliseconds() == 0


def is_closed(connection: Any) -> bool:
    try:
        connection.execute("SELECT 1")
    except apsw.ConnectionClosedError:
        return True
    return False


def test_commits_wait_for_the_disk_only_when_they_are_told_to(access: WriteConnection) -> None:
    connection = access.get_or_open()

    def mode() -> object:
        return connection.execute("PRAGMA synchronous").get

    normal, full = 1, 2
    assert mode() == normal
    for every_commit in (True, True, False, False, True):
        access.set_sync(connection, every_commit=every_commit)
        assert mode() == (full if every_commit else normal)
    assert access.get_if_idle() is connection  # who does not wait for others does not wait for the disk either
    assert mode() == normal
    access.set_sync(connection, every_commit=True)
    access.close()
    connection = access.get_or_open()
    assert mode() == normal
    access.set_sync(connection, every_commit=True)
    assert mode() == full


@pytest.mark.skipif(not CAN_SYNC_WAL, reason="SQLite itself syncs its log here")
def test_an_error_of_the_disk_closes_the_connection_and_any_other_does_not(access: WriteConnection, path: Any) -> None:
    connection = access.get_or_open()
    access.open_wal()
    assert access.wal is not None
    with pytest.raises(StoreError), access.use_with_timeout():
        raise apsw.FullError("no space")
    assert (access.connection, is_closed(connection), access.wal is None) == (connection, False, False)
    with pytest.raises(StoreError, match="the disk reported an error"), access.use_with_timeout():
        raise apsw.IOError("the disk is on fire")
    state: tuple[object, ...] = (access.connection, is_closed(connection), access.wal, access.is_open)
    assert state == (None, True, None, False)
    assert path.with_name("sessions.db-wal").exists()
    with access.use_with_timeout() as again:
        assert again.execute("SELECT word FROM words").get == "one"


def test_a_log_is_written_again_whole_after_an_error_of_the_disk_and_the_file_is_checked(
    access: WriteConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[Any, ...]] = []

    class Log:
        content = bytes(range(25))

        def __init__(self, *place: Any) -> None:
            calls.append(("open", *place))

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            calls.append(("close",))

        def xFileSize(self) -> int:  # noqa: N802 - SQLite's name
            return len(self.content)

        def xRead(self, count: int, offset: int) -> bytes:  # noqa: N802 - SQLite's name
            return self.content[offset : offset + count]

        def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
            calls.append((data, offset))

        def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
            calls.append(("sync", flags))

    access.to_store_error(apsw.IOError("the disk is on fire"))
    connection = Waits(access.get_or_open())
    access._connection = connection
    checked: list[str] = []

    def execute(statement: str, *values: Any) -> Any:
        checked.extend([statement] if "quick_check" in statement else [])
        return connection.connection.execute(statement, *values)

    connection.execute = execute  # type: ignore[attr-defined]
    monkeypatch.setattr(connections, "open_wal_file", Log)
    monkeypatch.setattr(connections, "_CHUNK", 10)
    content = Log.content
    for _ in range(2):
        with access.use_with_timeout():
            assert calls == [
                ("open", access.path, None),
                (content[:10], 0),
                (content[10:20], 10),
                (content[20:], 20),
                ("sync", apsw.SQLITE_SYNC_FULL),
                ("close",),
            ]
            assert checked == ["PRAGMA quick_check(1)"]  # once, and then it is relied on again
    assert access.get_if_idle() is connection


def test_a_file_that_is_damaged_after_an_error_of_the_disk_is_not_used(access: WriteConnection) -> None:
    access.to_store_error(apsw.IOError("the disk is on fire"))
    connection = access.get_or_open()

    class Damaged(Waits):
        def execute(self, statement: str, *values: Any) -> Any:
            found = "SELECT 'row 7 missing'" if "quick_check" in statement else statement
            return connection.execute(found, *values)

    access._connection = Damaged(connection)
    for _ in range(2):
        with pytest.raises(StoreError) as damaged, access.use_with_timeout():
            pytest.fail("it is damaged")
        assert str(damaged.value) == (
            f"the store {access.path!r} is damaged since the disk failed (row 7 missing): keep a copy, then restore a "
            "backup or try `sqlite3 FILE .recover`"
        )
    assert access.get_if_idle() is None


@pytest.mark.skipif(not CAN_SYNC_WAL, reason="SQLite itself syncs its log here")
def test_a_log_is_opened_to_be_synced_only_with_its_connection_and_synced_only_while_it_is_open(
    access: WriteConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    access.open_wal()
    first = access.wal
    assert first is not None
    access.open_wal()
    assert access.wal is first
    access.sync_wal(first)
    access.close()
    assert access.wal is None
    access.open_wal()
    assert access.wal is None
    access.get_or_open()
    access.open_wal()
    assert access.wal is not None
    with pytest.raises(StoreError, match="the log was closed after an error"):
        access.sync_wal(first)
    assert (access.connection, access.wal) == (None, None)

    def fail(*_: object) -> None:
        raise OSError(24, "Too many open files")

    access.get_or_open()
    monkeypatch.setattr(connections, "WalSync", fail)
    access.open_wal()
    assert access.wal is None  # SQLite syncs then


def test_a_connection_is_closed_with_its_log_moved_into_the_file_or_with_a_warning(
    access: WriteConnection, path: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    connection = access.get_or_open()
    access.close()
    assert is_closed(connection)
    assert not path.with_name("sessions.db-wal").exists()
    access.get_or_open()
    assert caplog.messages == []

    def fail(connection: Any) -> None:
        connection.close()
        raise apsw.IOError("the disk is on fire")

    monkeypatch.setattr(connections, "close_and_checkpoint", fail)
    access.close()
    access.close()
    assert caplog.messages == [f"the store {access.path!r} could not be closed in good order: the disk is on fire"]
    assert access.connection is None


def test_a_checkpoint_that_the_disk_refuses_closes_the_connection(
    access: WriteConnection, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Waits):
        def wal_checkpoint(self, **_: Any) -> None:
            raise apsw.IOError("the disk is on fire")

    connection = access.get_or_open()
    failing: Any = Failing(connection)
    access._connection = failing
    access.checkpoint()
    assert (access.connection, is_closed(connection)) == (None, True)
    text = f"the log of {access.path!r} could not be moved into the database yet: the disk is on fire"
    assert caplog.messages == [text]


def test_sqlite_tells_of_the_growth_of_its_log_after_each_commit(
    access: WriteConnection, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CHECKPOINT_PAGES", 3)
    connection = access.get_or_open()
    asked.times = 0
    for _ in range(9):
        connection.execute("INSERT INTO words VALUES ('more')")
    assert asked.times >= 3
    access._on_commit(connection, "main", 6)
    access.close()
    access.get_or_open()
    asked.times = 0
    access._on_commit(connection, "main", 3)  # a new log
    assert asked.times == 1

    def fail() -> None:
        raise RuntimeError("cannot start a thread at the end of the interpreter")

    ending = WriteConnection(access.path, None, fail)
    assert ending._on_commit(connection, "main", 3) == apsw.SQLITE_OK


def test_a_file_that_was_replaced_is_told_and_its_connection_closed(access: WriteConnection, path: Any) -> None:
    connection = access.get_or_open()
    assert access.get_or_open() is connection
    path.rename(path.with_suffix(".moved"))
    assert not access.is_open
    with pytest.raises(StoreError) as replaced:
        access.get_or_open()
    assert str(replaced.value) == (
        f"the store {str(path)!r} was deleted or replaced while it was open, and what it held may be gone with it: put "
        "it back, or open the session again to begin anew"
    )
    assert (access.connection, is_closed(connection)) == (None, True)
