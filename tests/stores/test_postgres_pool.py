"""How long a pool waits between two attempts to reach its server."""

import asyncio
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection, AsyncRawCursor

from perdure import StoreError
from perdure._stores.postgres import pool as postgres_pool
from perdure._stores.postgres.pool import ConnectionPool
from tests.doubles import SECONDS

PAUSES = [0.0, 0.05, 0.1, 0.2, 0.4, 0.8]


class Unreachable(ConnectionPool):
    """A pool whose server answers after so many attempts."""

    def __init__(self, failures: int, patience: float = 30.0) -> None:
        super().__init__({}, "postgresql://host/db", size=1, patience=patience)
        self.failures = failures

    async def _attempt(self, work, deadline, *, has_deadline):
        if self.failures:
            self.failures -= 1
            raise psycopg.OperationalError("the server is not there")
        return await work(None)


@pytest.fixture
def pauses(monkeypatch):
    """The pauses that were made, which take no time."""
    made = []

    class Quick:
        def __getattr__(self, name):
            return getattr(asyncio, name)

        async def sleep(self, seconds):
            made.append(seconds)

    monkeypatch.setattr(postgres_pool, "asyncio", Quick())
    return made


async def answer(_connection):
    return "done"


async def test_the_pauses_grow_and_the_last_one_is_repeated(pauses):
    assert await Unreachable(9).run(answer) == "done"
    assert pauses == [*PAUSES, 0.8, 0.8, 0.8]


async def test_a_server_that_answers_at_once_is_not_waited_for(pauses):
    assert await Unreachable(0).run(answer) == "done"
    assert pauses == []


async def test_who_has_no_more_patience_than_the_next_pause_is_told_at_once(pauses):
    with pytest.raises(StoreError, match="postgresql://host/db"):
        await Unreachable(9, patience=0.0).run(answer)
    assert pauses == []


# -- connections -------------------------------------------------------------------------------------------------------


class Connection:
    """A connection that can break, or be left in the middle of a transaction."""

    def __init__(self) -> None:
        self.closed = False
        self.status = psycopg.pq.TransactionStatus.IDLE
        self.is_finished = False
        self.pgconn = self
        self.info = self

    @property
    def transaction_status(self) -> psycopg.pq.TransactionStatus:
        return self.status

    def finish(self) -> None:
        self.is_finished = True


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Connection]:
    """The connections that were made. The tables are there."""
    made: list[Connection] = []

    async def connect(**settings: Any) -> Connection:
        named = {"host": "box", "autocommit": True, "prepare_threshold": None, "cursor_factory": AsyncRawCursor}
        assert settings == named
        made.append(Connection())
        return made[-1]

    async def has_tables(_connection: Connection, place: str, _owner: str) -> bool:
        assert place == "postgresql://box"
        return True

    monkeypatch.setattr(AsyncConnection, "connect", connect)
    monkeypatch.setattr(postgres_pool, "has_current_schema", has_tables)
    return made


def a_pool(size: int = 2, patience: float = 30.0) -> ConnectionPool:
    return ConnectionPool({"host": "box"}, "postgresql://box", size=size, patience=patience)


async def identify(connection: Any) -> Any:
    return connection


async def test_a_connection_is_used_again_and_others_are_made_while_it_is_in_use(connections: list[Connection]) -> None:
    pool = a_pool()
    assert await pool.run(identify) is await pool.run(identify) is connections[0]
    meet = asyncio.Barrier(2)

    async def meet_and_identify(connection: Any) -> Any:
        await meet.wait()
        return connection

    async with asyncio.timeout(SECONDS):
        both = await asyncio.gather(pool.run(meet_and_identify), pool.run(meet_and_identify))
    assert set(both) == set(connections)
    assert len(connections) == 2


async def test_one_that_is_left_in_a_transaction_is_closed(connections: list[Connection]) -> None:
    async def leave_open(connection: Any) -> str:
        connection.status = psycopg.pq.TransactionStatus.INTRANS
        return "done"

    pool = a_pool()
    assert await pool.run(leave_open) == "done"
    assert connections[0].is_finished
    assert await pool.run(identify) is connections[1]


async def test_one_that_breaks_takes_the_idle_ones_with_it_and_the_work_is_done_again(
    connections: list[Connection], pauses: list[float]
) -> None:
    pool = a_pool()
    meet = asyncio.Barrier(2)

    async def wait(_connection: Any) -> None:
        await meet.wait()

    async with asyncio.timeout(SECONDS):
        await asyncio.gather(pool.run(wait), pool.run(wait))

    async def break_once(connection: Any) -> Any:
        if len(connections) == 2:
            connection.closed = True
            raise psycopg.OperationalError("the connection is lost")
        return connection

    assert await pool.run(break_once) is connections[2]
    assert sorted((each.closed, each.is_finished) for each in connections[:2]) == [(False, True), (True, False)]
    assert pauses == [0.0]


async def test_an_error_that_does_not_end_by_itself_is_raised_at_once(
    connections: list[Connection], pauses: list[float]
) -> None:
    async def fail(_connection: Any) -> None:
        raise psycopg.errors.DiskFull("no room")

    pool = a_pool(size=1)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"'postgresql://box' failed: its disk is full.*\(DiskFull: no room\)"):
            await pool.run(fail)
    assert pauses == []
    assert len(connections) == 1  # it is as good as before


@pytest.mark.usefixtures("connections")
async def test_who_waits_too_long_for_a_connection_is_told_how_many_there_are() -> None:
    pool = a_pool(size=1, patience=30.0)
    entered, leave = asyncio.Event(), asyncio.Event()

    async def stay(_connection: Any) -> None:
        entered.set()
        await leave.wait()

    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as group:
        group.create_task(pool.run(stay))
        await entered.wait()
        with pytest.raises(StoreError) as refused:
            await pool.run(identify, patience=0.0)
        leave.set()
    assert str(refused.value) == (
        "all 1 connections to 'postgresql://box' stayed in use: make the store with more of them, or do less at once"
    )
    assert await pool.run(identify)


async def test_a_closed_pool_keeps_no_connection(connections: list[Connection]) -> None:
    pool = a_pool()
    await pool.run(identify)

    async def close_and_identify(connection: Any) -> Any:
        pool.close()
        return connection

    assert await pool.run(close_and_identify) is connections[0]
    assert connections[0].is_finished
    other = a_pool()
    await other.run(identify)
    other.close()
    assert connections[1].is_finished


async def test_tables_are_looked_at_once_and_made_if_they_are_not_there(
    connections: list[Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def has_tables(_connection: Any, place: str, _owner: str) -> bool:
        asked.append(f"look at {place}")
        return False

    async def make_tables(_connection: Any, place: str, _owner: str) -> None:
        asked.append(f"make {place}")

    monkeypatch.setattr(postgres_pool, "has_current_schema", has_tables)
    monkeypatch.setattr(postgres_pool, "create_schema", make_tables)
    pool = a_pool()
    await pool.run(identify)
    await pool.run(identify)
    assert asked == ["look at postgresql://box", "make postgresql://box"]
    assert len(connections) == 1


@pytest.mark.parametrize("has_deadline", [True, False])
@pytest.mark.usefixtures("connections")
async def test_work_is_broken_off_when_its_time_is_over_unless_it_has_none(
    monkeypatch: pytest.MonkeyPatch, has_deadline: bool
) -> None:
    broken_off = asyncio.Event()
    monkeypatch.setattr(postgres_pool, "_abort_call", lambda _: broken_off.set())

    async def wait(_connection: Any) -> bool:
        for _ in range(3):
            await asyncio.sleep(0)
        return broken_off.is_set()

    pool = a_pool()
    await pool.run(identify)
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(pool, "_wait_for_slot", lambda _: pool._slots.acquire())  # which is free
    monkeypatch.setattr(loop, "call_at", lambda _when, work: loop.call_soon(work))
    assert await (pool.run(wait) if has_deadline else pool.run(wait, has_deadline=False)) is has_deadline


async def test_no_connection_in_time_is_a_server_that_was_not_reached(
    connections: list[Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(**_: Any) -> None:
        raise TimeoutError

    monkeypatch.setattr(AsyncConnection, "connect", hang)
    with pytest.raises(StoreError) as refused:
        await a_pool().run(identify, patience=0.01)
    assert str(refused.value) == (
        "the store 'postgresql://box' could not be used for 0.01 s (OperationalError: no connection was made in time): "
        "see that the server runs and can be reached, then try again"
    )
    assert connections == []
