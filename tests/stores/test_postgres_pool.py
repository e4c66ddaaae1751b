"""How long a pool waits between two attempts to reach its server."""

import asyncio

import psycopg
import pytest

from perdure.core.error import StoreError
from perdure.stores.postgres import pool as postgres_pool
from perdure.stores.postgres.pool import ConnectionPool

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
