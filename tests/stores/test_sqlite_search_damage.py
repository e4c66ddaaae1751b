"""An index that is damaged, deleted, of another time or of another log is made anew; the log never suffers from it."""

import os
import shutil
import zlib
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from perdure import StoreError
from perdure._stores.sqlite.file_system import ReadOnlyStoreError
from perdure._stores.sqlite.log import EntryRange
from perdure._stores.sqlite.search import index as search_index
from perdure._stores.sqlite.search.index import IndexedText, SearchIndex, StaleIndexError
from perdure._stores.sqlite.search.log_reader import LogReaderForSearch
from perdure._stores.sqlite.search.query import LogSearch
from perdure.events import Custom, Entry
from perdure.stores import SqliteStore
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


@pytest.mark.parametrize("syntax", ["words", "query"])
@pytest.mark.parametrize("damage", [drop_table, delete_from_shadow_table, delete])
async def test_an_index_that_is_found_to_be_damaged_by_a_search_is_made_anew(
    store: SqliteStore, index: Any, damage: Any, syntax: str
) -> None:
    await keep(store, "s", *lines(20))
    assert await found(store, "number17") == [("s", 17)]
    await store.aclose()
    damage(index)
    assert await found(store, "number17", syntax=syntax) == [("s", 17)]


async def test_a_session_that_can_be_read_no_more_leaves_the_index_all_the_same(
    path: Any, store: SqliteStore, index: Any
) -> None:
    await keep(store, "gone", *lines(20, "xyzzyword"))
    await keep(store, "kept", "rain")
    await store.search("rain")
    with another_connection(path) as connection:
        connection.execute("UPDATE pack SET body = x'93' WHERE session = (SELECT key FROM session WHERE id = 'gone')")
    await store.delete("gone")
    assert b"xyzzyword" not in index.read_bytes()
    assert await found(store, "rain") == [("kept", 1)]


async def test_a_session_that_another_process_indexes_while_it_is_deleted_leaves_the_index(
    path: Any, store: SqliteStore, index: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await keep(store, "gone", *lines(20, "xyzzyword"))
    await keep(store, "kept", "rain")
    run_removal = LogReaderForSearch.run_removal

    def index_and_remove(log: LogReaderForSearch, job: Any) -> Any:
        monkeypatch.undo()
        search = LogSearch(str(path), None, log._submit)
        assert search.index_batch() == 21
        search.close()
        assert b"xyzzyword" in index.read_bytes()
        return run_removal(log, job)

    monkeypatch.setattr(LogReaderForSearch, "run_removal", index_and_remove)
    await store.delete("gone")
    assert b"xyzzyword" not in index.read_bytes()
    text = f"the search index {str(index)!r} is made anew: it was begun while something left the log"
    assert caplog.messages == [text]
    assert await store.read("gone") == []
    assert await found(store, "rain") == [("kept", 1)]


@pytest.fixture
def words(path: Any) -> Iterator[SearchIndex]:
    """An index of three texts."""
    words = SearchIndex(str(path))
    with words.write_transaction():
        words.add([IndexedText(1, seq, 0, 1.0, text) for seq, text in enumerate(("rain", "hail", "snow"), 1)])
    yield words
    words.close()


def matches(words: SearchIndex) -> list[int]:
    return [key for (key,) in words.query("SELECT rowid FROM search WHERE search MATCH 'rain OR hail OR snow'", {})]


def test_a_text_that_is_another_than_when_it_was_indexed_is_noticed(words: SearchIndex) -> None:
    problem = "^entry 2 of session 1 is another one than when it was indexed$"
    with pytest.raises(StaleIndexError, match=problem), words.write_transaction():
        words.add([IndexedText(1, 4, 0, 1.0, "fog"), IndexedText(1, 2, 0, 1.0, "rain")])
    for gone in ([(1, 1, "rain"), (1, 2, "rain")], [(1, 2, "")]):
        with pytest.raises(StaleIndexError, match=problem), words.write_transaction():
            words.remove(gone)
    with pytest.raises(StaleIndexError, match=r"^entry 9 of session 1 is"), words.write_transaction():
        words.remove([(1, 9, "rain")])
    assert words.find_indexed_seqs(1, 1, 9) == [1, 2, 3]
    assert matches(words) == [1, 2, 3]


def test_texts_that_are_indexed_again_change_nothing(words: SearchIndex) -> None:
    with words.write_transaction():
        words.add([IndexedText(1, 2, 0, 1.0, "hail"), IndexedText(2, 2, 0, 1.0, "rain")])
    assert matches(words) == [1, 2, 3, 4]
    checksums = [words.read_checksum(*place) for place in ((1, 2), (2, 2), (2, 1))]
    assert checksums == [zlib.crc32(b"hail"), zlib.crc32(b"rain"), None]
    assert [words.find_indexed_seqs(1, 2, 3), words.find_indexed_seqs(1, 2, 2)] == [[2, 3], [2]]


def test_an_index_that_cannot_be_written_is_not_made(path: Any, index: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_index, "is_read_only", lambda _: True)
    words = SearchIndex(str(path))
    with pytest.raises(ReadOnlyStoreError, match=f"^the store '{index}' can only be read here"):
        words.clear()
    assert not index.exists()
    index.touch()
    for _ in range(2):
        with pytest.raises(ReadOnlyStoreError, match=f"^the store '{index}' can only be read here"):
            words.query("SELECT 1", {})
    assert index.read_bytes() == b""


@pytest.mark.parametrize(("version", "is_read"), [(1, True), (2, False)])
def test_an_index_that_cannot_be_written_is_read_if_its_format_is_known(
    path: Any, words: SearchIndex, monkeypatch: pytest.MonkeyPatch, version: int, is_read: bool
) -> None:
    words.query(f"PRAGMA user_version = {version}", {})
    words.close()
    monkeypatch.setattr(search_index, "is_read_only", lambda _: True)
    reader = SearchIndex(str(path))
    if is_read:
        assert matches(reader) == [1, 2, 3]
    for _ in range(0 if is_read else 2):  # what was refused is not used at the second try
        with pytest.raises(StaleIndexError, match="the index has another format"):
            matches(reader)
    reader.close()


@pytest.mark.parametrize(
    ("block", "levels"),
    [
        ("00000000 00 00 00", []),
        ("00000000 01 01 05 00 01 01 01 01", [1]),
        ("00000000 02 02 05 00 01 01 01 01 00 02 02 01 8100 03 01 02", [1, 2]),
    ],
)
def test_the_structure_of_an_index_tells_how_many_segments_each_level_has(block: str, levels: list[int]) -> None:
    assert search_index._read_levels(bytes.fromhex(block)) == levels


def test_a_structure_that_ends_too_early_is_unknown() -> None:
    with pytest.raises(StaleIndexError) as unknown:
        search_index._read_levels(bytes.fromhex("00000000 02 01 05 00 01 01 01 01"))
    assert str(unknown.value) == "the structure of the index is unknown: 000000000201050001010101"


def test_an_index_in_which_words_of_removed_texts_may_be_left_is_not_trusted(
    words: SearchIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_index, "_may_hold_removed_words", lambda _: True)
    with pytest.raises(StaleIndexError, match=r"^words of removed texts are left in it$"), words.write_transaction():
        words.remove([(1, 1, "rain")])
    assert matches(words) == [1, 2, 3]


# -- the log, as the search reads it -----------------------------------------------------------------------------------


@pytest.fixture
async def log(path: Any, store: SqliteStore) -> AsyncIterator[LogReaderForSearch]:
    """A session of one entry, as the search reads it."""
    await keep(store, "s", "rain")
    await store.aclose()
    written: Future[None] = Future()
    written.set_result(None)
    log = LogReaderForSearch(str(path), None, lambda *_, **__: written)
    yield log
    log.close()


def test_an_entry_of_no_session_is_shown_under_no_name(log: LogReaderForSearch) -> None:
    assert [log.find_shown_session_id(1, 1), log.find_shown_session_id(2, 1)] == ["s", ""]
    assert log.ranges_of_session("nobody") == []
    assert log.ranges_under_prefix("nobody") == []


def test_what_fails_in_the_log_is_an_error_of_the_store(log: LogReaderForSearch, path: Any) -> None:
    assert log.read_stamp() == 0
    with another_connection(path) as connection:
        connection.execute("PRAGMA foreign_keys = OFF; DROP TABLE meta; DROP TABLE pack")
    problem = f"^the store '{path}' failed: unexpected error; please report it"
    with pytest.raises(StoreError, match=problem):
        log.read_stamp()
    with pytest.raises(StoreError, match=problem):
        log.read_texts(EntryRange(1, 0, 1))


def test_a_log_that_was_replaced_is_opened_again(log: LogReaderForSearch, path: Any) -> None:
    assert log.find_shown_session_id(1, 1) == "s"
    log.close_if_replaced()
    other = path.with_name("other.db")
    other.write_bytes(path.read_bytes())
    with another_connection(other) as connection:
        connection.execute("UPDATE session SET id = 't'")
    assert log.find_shown_session_id(1, 1) == "s"
    other.replace(path)
    log.close_if_replaced()
    assert log.find_shown_session_id(1, 1) == "t"


def test_what_is_taken_out_of_an_index_is_synced(
    path: Any, words: SearchIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, str | None]] = []
    monkeypatch.setattr(search_index, "sync_wal", lambda *place: synced.append(place))
    for take_out in (words.truncate_wal, words.clear, words.vacuum):
        take_out()
        assert synced == [(f"{path}-search", None)]
        synced.clear()
    assert path.with_name("sessions.db-search-wal").stat().st_size == 0
    assert matches(words) == []


async def test_a_vacuum_of_a_store_is_one_of_its_index_too(
    store: SqliteStore, index: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    vacuumed: list[str] = []
    monkeypatch.setattr(SearchIndex, "vacuum", lambda words: vacuumed.append(words.path))
    await keep(store, "s", "rain")
    await store.vacuum()
    assert vacuumed == []  # there is none yet
    await store.search("rain")
    await store.vacuum()
    assert vacuumed == [str(index)]


async def test_what_a_job_that_erases_returns_is_returned(path: Any, store: SqliteStore) -> None:
    await keep(store, "s", "rain")
    await store.search("rain")
    results = [
        await store._get_writer().indexer.run_with_index(
            lambda search: search.run_erasing_job("s", None, lambda connection: connection.execute("SELECT 7").get)
        )
    ]
    assert results == [7]
