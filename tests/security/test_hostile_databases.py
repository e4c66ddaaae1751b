"""A store or a file of memories that somebody else has made: nothing in its schema runs when it is used."""

from pathlib import Path

import apsw
import pytest

from perdure import StoreError, user
from perdure._stores.sqlite.format.pages import find_checksum_vfs
from perdure.context import LongTermMemory
from perdure.events import Entry, MessageAdded
from perdure.stores import Post, SqliteStore, restore

TABLES = ("session", "pack", "post", "label", "blob", "meta")


def plant(path, *statements) -> None:
    """Change the schema of a file as its maker would, with checksums that are right."""
    connection = apsw.Connection(str(path), vfs=find_checksum_vfs(None))
    connection.execute("CREATE TABLE noted(what TEXT)")
    for statement in statements:
        connection.execute(statement)
    connection.close()


def triggers(tables) -> list[str]:
    return [
        f"CREATE TRIGGER {table}_{place}_{when} {place} {when} ON {table} BEGIN "
        f"INSERT INTO noted VALUES('{table} {when}'); END"
        for table in tables
        for place in ("BEFORE", "AFTER")
        for when in ("INSERT", "UPDATE", "DELETE")
    ]


def noted(path) -> list[str]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=find_checksum_vfs(None))
    try:
        return [what for (what,) in connection.execute("SELECT what FROM noted")]
    finally:
        connection.close()


def said(*numbers: int) -> list[Entry]:
    return [
        Entry(number, 1.0, MessageAdded(user(f"hello {number} " + "x" * 5000)), f"e-{number}") for number in numbers
    ]


async def use(store) -> None:
    """Everything that changes a store."""
    lease = await store.acquire("new")
    await store.append(lease, said(1, 2), sync=True)
    await store.redact(lease, said(2)[0])
    await store.post("new", Post("p", "steer", {}, 1.0))
    await store.fork("new", "f")
    assert await store.search("hello")
    await store.release(lease)
    await store.delete("f")
    await store.vacuum()
    assert [entry.id for entry in await store.read("new")] == ["e-1", "e-2"]


async def make_store(path: Path) -> None:
    """Make a store with one session, and close it."""
    store = SqliteStore(path)
    lease = await store.acquire("old")
    await store.append(lease, said(1), sync=True)
    await store.release(lease)
    await store.aclose()


@pytest.mark.parametrize("is_restored", [False, True])
async def test_triggers_that_were_planted_in_a_store_do_not_run(tmp_path, is_restored):
    path = tmp_path / "given.db"
    await make_store(path)
    plant(path, *triggers(TABLES))
    if is_restored:
        await restore(path, f"sqlite:{tmp_path}/mine.db")
        path = tmp_path / "mine.db"
    store = SqliteStore(path)
    await use(store)
    await store.aclose()
    assert noted(path) == []


async def test_a_view_in_the_place_of_a_table_is_not_asked(tmp_path):
    path = tmp_path / "given.db"
    await make_store(path)
    plant(path, "ALTER TABLE session RENAME TO kept", "CREATE VIEW session AS SELECT * FROM kept")
    store = SqliteStore(path)
    with pytest.raises(StoreError):
        await store.read("old")
    await store.aclose()


async def test_triggers_that_were_planted_in_a_file_of_memories_do_not_run(tmp_path):
    path = tmp_path / "memory.db"
    async with LongTermMemory(path) as memory:
        await memory.remember("the harbour is old")
    connection = apsw.Connection(str(path))
    tables = [
        name
        for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        if not name.startswith(("sqlite_", "search_"))
    ]
    connection.execute("CREATE TABLE noted(what TEXT)")
    for statement in triggers(tables):
        connection.execute(statement)
    connection.close()
    async with LongTermMemory(path) as memory:
        await memory.remember("the lantern is new")
        assert await memory.recall("lantern")
    connection = apsw.Connection(str(path))
    assert len(tables) > 1
    assert connection.execute("SELECT what FROM noted").fetchall() == []
    connection.close()
