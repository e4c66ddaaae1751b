"""An index that is damaged, deleted, of another time or of another log is made anew; the log never suffers from it."""

import os
import shutil

import pytest

from perdure.core.event import Custom, Entry
from perdure.stores.sqlite.store import SqliteStore
from tests.seeds import chance
from tests.stores.material import another_connection
from tests.stores.search_material import found, keep, lines, logged


@pytest.fixture
def index(path):
    return path.with_name(f"{path.name}-search")


def garble_header(index) -> None:
    index.write_bytes(b"x" * 100 + index.read_bytes()[100:])


def garble_tables(index) -> None:
    dice = chance("index")
    data = bytearray(index.read_bytes())
    for page in range(1, len(data) // 4096):
        data[page * 4096 : page * 4096 + 300] = dice.randbytes(300)
    index.write_bytes(data)


def cut_short(index) -> None:
    os.truncate(index, 5000)


def empty(index) -> None:
    os.truncate(index, 0)


def delete(index) -> None:
    index.unlink()


def write_prose(index) -> None:
    index.write_text("This is no database at all. " * 100, encoding="utf-8")


def be_another_program(index) -> None:
    index.unlink()
    with another_connection(index) as connection:
        connection.execute("CREATE TABLE theirs(x); PRAGMA application_id = 7")


def drop_table(index) -> None:
    with another_connection(index) as connection:
        connection.execute("DROP TABLE search")


def delete_from_shadow_table(index) -> None:
    with another_connection(index) as connection:
        connection.execute("DELETE FROM search_data")


def be_of_another_version(index) -> None:
    with another_connection(index) as connection:
        connection.execute("PRAGMA user_version = 99")


def forget_what_it_is_about(index) -> None:
    with another_connection(index) as connection:
        connection.execute("UPDATE state SET stamp = 7")


DAMAGES = [
    garble_header,
    garble_tables,
    cut_short,
    empty,
    delete,
    write_prose,
    be_another_program,
    drop_table,
    delete_from_shadow_table,
    be_of_another_version,
    forget_what_it_is_about,
]


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_index_is_made_anew(store, index, damage):
    await keep(store, "s", *lines(200))
    assert await found(store, "number117") == [("s", 117)]
    await store.aclose()
    damage(index)
    await keep(store, "s", "and more", first=201)
    assert await found(store, "number117") == [("s", 117)]
    assert await found(store, "more") == [("s", 201)]
    assert len(await store.search("line", limit=100)) == 100


@pytest.mark.parametrize("damage", DAMAGES)
async def test_with_a_damaged_index_a_session_can_be_deleted(path, store, index, damage):
    await keep(store, "gone", *lines(50, "xyzzyword"))
    await keep(store, "kept", "rain")
    await store.search("rain")
    await store.aclose()
    damage(index)
    await store.delete("gone")
    assert b"xyzzyword" not in index.read_bytes()
    assert await found(store, "xyzzyword") == []
    assert await found(store, "rain") == [("kept", 1)]


@pytest.mark.parametrize("damage", [garble_tables, delete, be_another_program])
async def test_an_index_that_is_damaged_while_it_is_open_is_made_anew(store, index, damage, caplog):
    await keep(store, "s", *lines(50))
    assert await found(store, "number17") == [("s", 17)]
    damage(index)
    lease = await store.acquire("s")
    await store.append(lease, logged("and more", first=51), sync=True)
    assert await found(store, "more") == [("s", 51)]
    assert await found(store, "number17") == [("s", 17)]


async def test_that_an_index_is_made_anew_is_told_but_not_for_a_new_one(store, index, caplog):
    await keep(store, "s", "rain")
    await store.search("rain")
    assert caplog.text == ""
    await store.aclose()
    garble_header(index)
    await store.search("rain")
    assert "is made anew" in caplog.text


async def test_an_older_log_in_the_place_of_a_newer_one_is_noticed(path, store, tmp_path):
    await keep(store, "s", "rain one")
    await store.search("rain")
    await store.aclose()
    shutil.copy(path, tmp_path / "backup")
    await keep(store, "s", "snow", "snow", first=2)
    assert await found(store, "snow") == [("s", 2), ("s", 3)]
    await store.aclose()
    shutil.copy(tmp_path / "backup", path)
    assert await found(store, "snow") == []
    await keep(store, "s", "hail", first=2)
    assert await found(store, "hail") == [("s", 2)]
    assert await found(store, "rain") == [("s", 1)]


async def test_another_log_in_the_same_place_is_noticed(path, store, tmp_path):
    other = SqliteStore(tmp_path / "other.db")
    await keep(other, "t", "hail")
    assert await found(other, "hail") == [("t", 1)]
    await other.aclose()
    await keep(store, "s", "rain")
    assert await found(store, "rain") == [("s", 1)]
    await store.aclose()
    shutil.copy(tmp_path / "other.db", path)
    assert await found(store, "hail") == [("t", 1)]
    assert await found(store, "rain") == []


async def test_a_process_that_dies_between_log_and_index_leaves_no_trace_in_the_index(path, store, index):
    """It has deleted the session, and not yet what is indexed of it."""
    await keep(store, "gone", *lines(30, "xyzzyword"))
    await keep(store, "kept", "rain")
    await store.search("rain")
    before = index.read_bytes()
    await store.aclose()
    before = index.read_bytes()
    await store.delete("gone")
    await store.aclose()
    index.write_bytes(before)
    assert b"xyzzyword" in index.read_bytes()
    assert await found(store, "xyzzyword") == []
    await store.aclose()
    assert b"xyzzyword" not in index.read_bytes()
    assert await found(store, "rain") == [("kept", 1)]


async def test_every_loss_of_text_is_noted_in_the_log_so_that_no_index_of_before_is_trusted(path, store):
    def losses() -> int:
        with another_connection(path) as connection:
            return int(connection.execute("SELECT value FROM meta WHERE name = 'search'").get)

    await keep(store, "s", "rain", "hail")
    await keep(store, "t", "rain")
    await store.search("rain")
    before = losses()
    await store.delete("s")
    assert losses() == before + 1
    lease = await store.acquire("t")
    await store.redact(lease, Entry(1, 1.0, Custom("clean"), "clean"))
    assert losses() == before + 2


async def test_what_was_indexed_and_not_noted_in_the_log_is_not_indexed_twice(path, store):
    await keep(store, "s", "rain", "rain")
    await store.search("rain")
    await store.aclose()
    with another_connection(path) as connection:
        connection.execute("UPDATE session SET indexed = 0")
    assert await found(store, "rain") == [("s", 1), ("s", 2)]


async def test_entries_that_nobody_can_read_are_left_out(path, store):
    await keep(store, "s", "rain")
    await keep(store, "t", "rain")
    with another_connection(path) as connection:
        connection.execute("UPDATE pack SET body = x'93' WHERE session = (SELECT key FROM session WHERE id = 't')")
    assert await found(store, "rain") == [("s", 1)]
    await store.delete("t")
    assert await found(store, "rain") == [("s", 1)]
