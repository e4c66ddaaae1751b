"""Jobs of the writer of an SQLite store: several in one transaction, of which one that fails takes no other with it."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import apsw
import pytest

from perdure._stores.sqlite.database import run_in_transaction
from perdure._stores.sqlite.driver import Connection
from perdure._stores.sqlite.write.jobs import WriterJob, fail_jobs, run_jobs
from tests.stores.material import another_connection


@pytest.fixture
def connection() -> Iterator[Connection]:
    with another_connection(":memory:") as connection:
        connection.execute("CREATE TABLE words(word UNIQUE)")
        yield connection


def adding(word: str) -> WriterJob[str]:
    """A job that adds a word, and returns it in capitals."""

    def add(connection: Connection) -> str:
        connection.execute("INSERT INTO words VALUES(?)", (word,))
        return word.upper()

    return a_job(add)


def a_job(work: Callable[[Any], Any]) -> WriterJob[Any]:
    return WriterJob(work, sync=False, joins=True, loop=None)


def words(connection: Connection) -> list[str]:
    return [word for (word,) in connection.execute("SELECT word FROM words ORDER BY rowid").fetchall()]


def states(works: list[WriterJob[Any]]) -> list[tuple[bool, bool, Any]]:
    return [(work.is_done, work.is_settled, work.error and type(work.error)) for work in works]


def test_all_jobs_are_done_in_order_in_one_transaction(connection: Connection) -> None:
    works = [adding(word) for word in ("one", "two", "three")]
    assert states(works) == [(False, False, None)] * 3
    began: list[str] = []

    def note(_cursor: Any, sql: str, _values: Any) -> bool:
        began.append(sql)
        return True

    connection.exec_trace = note  # type: ignore[attr-defined]
    run_jobs(connection, works)
    connection.exec_trace = None  # type: ignore[attr-defined]
    assert [sql for sql in began if not sql.startswith("INSERT")] == ["BEGIN IMMEDIATE", "COMMIT"]
    assert states(works) == [(True, True, None)] * 3
    assert [work.result for work in works] == ["ONE", "TWO", "THREE"]
    assert words(connection) == ["one", "two", "three"]


def test_a_job_that_fails_fails_alone_and_what_it_did_is_undone(connection: Connection) -> None:
    def add_and_fail(connection: Connection) -> None:
        connection.execute("INSERT INTO words VALUES('half')")
        raise ZeroDivisionError

    works = [adding("one"), a_job(add_and_fail), adding("two"), adding("one"), adding("three")]
    run_jobs(connection, works)
    done, failed = (True, True, None), (False, True)
    assert states(works) == [done, (*failed, ZeroDivisionError), done, (*failed, apsw.ConstraintError), done]
    assert words(connection) == ["one", "two", "three"]
    assert not connection.in_transaction


def test_a_job_that_has_failed_before_is_not_run(connection: Connection) -> None:
    works = [adding("one"), adding("two")]
    works[0].error = ValueError("before")
    run_jobs(connection, works)
    assert words(connection) == ["two"]
    run_jobs(connection, [works[0]])
    run_jobs(connection, [])
    assert words(connection) == ["two"]


def test_a_transaction_that_was_left_open_acknowledges_nothing_and_is_rolled_back(connection: Connection) -> None:
    connection.execute("BEGIN")
    works = [adding("one")]
    with pytest.raises(apsw.SQLError):
        run_jobs(connection, works)
    assert not connection.in_transaction
    assert states(works) == [(False, False, None)]
    connection.execute("BEGIN")
    run_in_transaction(connection, lambda each: each.execute("SELECT 1").get)
    assert not connection.in_transaction


def test_what_stops_the_program_undoes_the_transaction(connection: Connection) -> None:
    def stop(_connection: Connection) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs(connection, [adding("one"), a_job(stop)])
    assert not connection.in_transaction
    assert words(connection) == []


def test_an_error_of_all_is_that_of_those_that_are_neither_done_nor_failed() -> None:
    done, failed, left = adding("one"), adding("two"), adding("three")
    done.is_done = True
    before, error = ValueError("before"), OSError("of all")
    failed.error = before
    fail_jobs([done, failed, left], error)
    assert [done.error, failed.error, left.error] == [None, before, error]


def test_a_future_gets_the_result_or_the_error_unless_nobody_waits_any_more() -> None:
    good, bad, left = adding("one"), adding("two"), adding("three")
    good.result, bad.error = "ONE", ValueError("bad")
    left.future.cancel()
    for work in (good, bad, left):
        assert isinstance(work.future, Future)
        work.resolve_future()
    assert good.future.result() == "ONE"
    assert isinstance(bad.future.exception(), ValueError)
    assert left.future.cancelled()


async def test_a_future_of_an_event_loop_is_resolved_there() -> None:
    work: WriterJob[str] = WriterJob(str, sync=True, joins=False, loop=asyncio.get_running_loop())
    assert (work.sync, work.joins) == (True, False)
    work.result = "done"
    work.resolve_future()
    work.resolve_future()  # which does nothing more
    assert isinstance(work.future, asyncio.Future)
    assert await work.future == "done"
