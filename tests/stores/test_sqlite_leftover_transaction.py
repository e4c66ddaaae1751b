"""A transaction that an interrupt has left open in an SQLite file: nothing is acknowledged inside of it."""

import asyncio
from typing import Any

import apsw
import pytest

from perdure.events import Custom, Entry
from perdure.stores import SqliteStore
from tests.stores.material import another_connection


def test_a_transaction_that_somebody_left_open_is_rolled_back_before_anything_is_acknowledged(tmp_path):
    store = SqliteStore(path := tmp_path / "sessions.db")

    async def drive_despite_leftover() -> None:
        lease = await store.acquire("s")
        await store.append(lease, [Entry(1, 1.0, Custom("data", 1), "e-1")], sync=True)
        writer: Any = store._writer
        writer._access.connection.execute("BEGIN IMMEDIATE")
        for seq in (2, 3):
            new = [Entry(seq, 1.0, Custom("data", seq), f"e-{seq}")]
            if not store.append_now(lease, new, sync=False):
                await store.append(lease, new, sync=seq == 3)

    asyncio.run(drive_despite_leftover())
    with another_connection(path) as connection:
        assert connection.execute("SELECT head FROM session").get == 3
        try:
            connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            pytest.fail("the file is still locked")
