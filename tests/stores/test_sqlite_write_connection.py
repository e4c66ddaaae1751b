"""The connection that writes: when its write-ahead log is moved into the database, and whom it waits for then."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import apsw
import pytest

from perdure.core.error import StoreError
from perdure.stores.sqlite import database_file, write_connection
from perdure.stores.sqlite.write_connection import CHECKPOINT_PAGES, WriteConnection
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
    monkeypatch.setattr(write_connection, "MAX_WAL_BYTES", size)  # exactly the limit
    access._connection = waits = Waits(access.connection)
    access.checkpoint()
    assert (waits.milliseconds, size_of_log(path)) == ([0, 0], size)


def test_a_log_that_is_too_long_waits_a_second_for_readers_and_is_emptied(access, path, monkeypatch):
    monkeypatch.setattr(write_connection, "MAX_WAL_BYTES", size_of_log(path) - 1)
    access._connection = waits = Waits(access.connection)
    access.checkpoint()
    assert (waits.milliseconds, size_of_log(path)) == ([1000, 0], 0)  # and whoever cannot wait finds it so


def test_a_log_that_somebody_reads_is_left_for_later_and_nothing_is_lost(access, path, monkeypatch, caplog):
    monkeypatch.setattr(write_connection, "MAX_WAL_BYTES", 0)
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
                access.erase_wal(connection)
        finally:
            let_go(0)
    assert size_of_log(path) == 0


def test_erased_data_that_somebody_reads_for_too_long_is_told_of(access, path, monkeypatch):
    monkeypatch.setattr(database_file, "BUSY_SECONDS", 0)
    access.connection.set_busy_timeout(0)
    with another_connection(path) as reader:
        reader.execute("BEGIN; SELECT count(*) FROM words")
        with pytest.raises(StoreError, match=r"another process kept reading: call vacuum\(\)"):
            access.erase_wal(access.connection)


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
