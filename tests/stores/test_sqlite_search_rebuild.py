"""Processes that rebuild one search index at the same time: one of them does it, and nobody's search fails."""

import os
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure import StoreError
from perdure._stores.checks import SearchRequest
from perdure._stores.sqlite.file_system import ReadOnlyStoreError
from perdure._stores.sqlite.search.index import SearchIndex, StaleIndexError, StampMismatchError
from perdure._stores.sqlite.search.log_reader import LogReaderForSearch
from perdure._stores.sqlite.search.query import MAX_DAMAGES, MAX_MISMATCHES, LogSearch
from perdure.stores import SqliteStore
from tests.stores.material import another_connection, child
from tests.stores.search_material import found, keep, lines

LONG = os.environ.get("PERDURE_SEARCH") == "long"
MISMATCH = "it does not belong to the log as it is now"


@pytest.fixture
async def searches(path: Path, store: SqliteStore) -> AsyncIterator[list[LogSearch]]:
    """The searches of two processes, which have indexed a log."""
    await keep(store, "s", *lines(20, "rain"))
    made = [LogSearch(str(path), None, store._get_writer().submit) for _ in range(2)]
    for each in made:
        assert count_hits(each) == 18
    yield made
    for each in made:
        each.close()


@pytest.fixture
def emptied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How the index was emptied or rewritten so far."""
    done: list[str] = []

    def note(name: str) -> None:
        method = getattr(SearchIndex, name)

        def call(index: SearchIndex) -> None:
            done.append(name)
            method(index)

        monkeypatch.setattr(SearchIndex, name, call)

    for name in ("recreate_tables", "rewrite_pages", "clear"):
        note(name)
    return done


def count_hits(search: LogSearch, word: str = "rain") -> int:
    return len(search.search(SearchRequest(word, limit=100)))


def read_stamps(path: Path) -> tuple[int, int]:
    """The stamps of the log and of its index."""
    with another_connection(path) as log:
        kept = log.execute("SELECT value FROM meta WHERE name = 'search'").get
    return kept, read_index(path, "SELECT stamp FROM state")


def read_index(path: Path, query: str) -> Any:
    index = apsw.Connection(f"{path}-search")
    try:
        return index.execute(query).get
    finally:
        index.close()


def set_stamp(path: Path, change: str) -> None:
    read_index(path, f"UPDATE state SET stamp = {change}")


def test_an_index_of_another_log_is_emptied_in_a_transaction(path, searches, emptied, caplog):
    one, two = searches
    set_stamp(path, "stamp + 1")
    assert (count_hits(one), count_hits(two)) == (18, 18)
    assert emptied == ["recreate_tables", "rewrite_pages"]
    assert caplog.messages == [f"the search index '{path}-search' is made anew: {MISMATCH}"]
    log, index = read_stamps(path)
    assert log == index > 0


def test_an_index_that_another_process_has_made_anew_meanwhile_stays_as_it_is(path, searches, emptied, caplog):
    one, two = searches
    set_stamp(path, "stamp + 1")
    assert count_hits(two) == 18
    before = read_stamps(path)
    emptied.clear()
    one._rebuild_index(StampMismatchError("seen before"))
    one._rebuild_index(StaleIndexError("something in it was wrong"), before[0] - 1)
    assert (emptied, read_stamps(path), len(caplog.messages)) == ([], before, 1)
    one._rebuild_index(StaleIndexError("something in it is wrong"), before[0])
    assert emptied == ["recreate_tables", "rewrite_pages"]
    assert caplog.messages[1:] == [f"the search index '{path}-search' is made anew: something in it is wrong"]
    assert count_hits(two) == 18


def test_that_an_index_is_made_anew_by_another_process_is_seen_under_its_lock(path, searches, emptied, monkeypatch):
    one, two = searches
    set_stamp(path, "stamp + 1")
    write_transaction = SearchIndex.write_transaction

    def overtaken(index: SearchIndex) -> Any:
        monkeypatch.setattr(SearchIndex, "write_transaction", write_transaction)
        assert count_hits(two) == 18
        return write_transaction(index)

    monkeypatch.setattr(SearchIndex, "write_transaction", overtaken)
    assert count_hits(one) == 18
    assert emptied.count("recreate_tables") == 1


def test_an_index_whose_file_another_process_has_cleared_is_not_cleared_once_more(path, searches, emptied):
    one, two = searches
    two._index.clear()
    assert (count_hits(one), count_hits(two)) == (18, 18)
    assert emptied == ["clear", "recreate_tables", "rewrite_pages"]


def test_an_index_that_others_clear_again_and_again_is_waited_for(path, searches, emptied, monkeypatch):
    one, two = searches
    recreate_tables, times = SearchIndex.recreate_tables, [0]

    def recreate_and_lose(index: SearchIndex) -> None:
        recreate_tables(index)
        times[0] += 1
        if times[0] < MAX_DAMAGES:
            raise apsw.SQLError("no such table: state")

    monkeypatch.setattr(SearchIndex, "recreate_tables", recreate_and_lose)
    set_stamp(path, "stamp + 1")
    assert (count_hits(one), count_hits(two)) == (18, 18)
    assert emptied.count("clear") == MAX_DAMAGES - 2  # the first time, a new connection is tried


def test_an_index_that_was_emptied_after_everything_was_indexed_is_searched_again(path, searches, monkeypatch):
    one, two = searches
    find_ranges, stamp = LogSearch._find_ranges, read_stamps(path)[0]

    def find_late(search: LogSearch, request: SearchRequest) -> Any:
        monkeypatch.undo()
        two._rebuild_index(StaleIndexError("something in it is wrong"), stamp)
        return find_ranges(search, request)

    monkeypatch.setattr(LogSearch, "_find_ranges", find_late)
    assert count_hits(one) == 18


async def test_a_batch_that_another_process_has_emptied_again_is_indexed_again(path, store, searches, monkeypatch):
    one, two = searches
    await keep(store, "t", *lines(20, "rain"))
    record_indexed, stamp = LogReaderForSearch.record_indexed, read_stamps(path)[0]

    def record_late(log: LogReaderForSearch, *noted: Any) -> None:
        monkeypatch.undo()
        two._rebuild_index(StaleIndexError("something in it is wrong"), stamp)
        record_indexed(log, *noted)

    monkeypatch.setattr(LogReaderForSearch, "record_indexed", record_late)
    assert count_hits(one) == 36


def test_what_a_process_that_died_has_not_rewritten_is_rewritten_by_the_next_one(path, searches, emptied, caplog):
    one, two = searches
    before = read_stamps(path)
    set_stamp(path, "-stamp")
    assert (count_hits(one), one.is_rewriting_due, emptied) == (18, True, [])  # a search does not wait for it
    assert (one.index_batch(), two.index_batch()) == (0, 0)
    assert (emptied, read_stamps(path), caplog.messages) == (["rewrite_pages"], before, [])
    assert (count_hits(one), one.is_rewriting_due) == (18, False)


def test_what_another_process_has_just_rewritten_is_not_called_unfinished(path, searches, monkeypatch):
    one, _ = searches
    before, index_batch = read_stamps(path), LogSearch._index_batch

    def index_and_be_overtaken(search: LogSearch, most: int) -> int:
        entries = index_batch(search, most)
        set_stamp(path, "-stamp")
        return entries

    monkeypatch.setattr(LogSearch, "_index_batch", index_and_be_overtaken)
    set_stamp(path, "-stamp")
    assert one.index_batch() == 0
    assert read_stamps(path) == before


def test_an_index_is_only_called_rewritten_when_no_byte_is_left(path, searches, monkeypatch):
    one, _ = searches
    stamp, _ = read_stamps(path)
    set_stamp(path, "-stamp")

    def fail(_: SearchIndex) -> None:
        raise apsw.BusyError("database is locked")

    for name in ("rewrite_pages", "truncate_wal"):
        with monkeypatch.context() as patched:
            patched.setattr(SearchIndex, name, fail)
            with pytest.raises(StoreError, match="locked"):
                one.index_batch()
        assert read_stamps(path) == (stamp, -stamp)
    assert one._index.query("PRAGMA secure_delete", {}) == [(1,)]
    one.index_batch()
    assert read_stamps(path) == (stamp, stamp)


def test_an_index_that_cannot_be_written_is_searched_before_its_file_is_rewritten(path, searches, emptied, monkeypatch):
    one, _ = searches
    set_stamp(path, "-stamp")
    monkeypatch.setattr(SearchIndex, "is_writable", False)
    assert (count_hits(one), one.index_batch(), emptied) == (18, 0, [])
    set_stamp(path, "stamp + 1")
    with pytest.raises(ReadOnlyStoreError):
        count_hits(one)
    assert emptied == []


@pytest.mark.parametrize("change", ["0", "stamp + 5"])
def test_a_process_that_was_overtaken_does_not_trust_the_index(path, searches, monkeypatch, change):
    one, _ = searches
    rewrite_pages = SearchIndex.rewrite_pages

    def rewrite_late(index: SearchIndex) -> None:
        monkeypatch.undo()
        rewrite_pages(index)
        set_stamp(path, change)

    monkeypatch.setattr(SearchIndex, "rewrite_pages", rewrite_late)
    set_stamp(path, "-stamp")
    stamp, _ = read_stamps(path)
    one._finish_rewriting(stamp)
    assert read_stamps(path)[1] != stamp
    assert count_hits(one) == 18  # after it was made anew
    log, index = read_stamps(path)
    assert log == index > 0


def test_a_search_waits_for_a_log_from_which_others_remove_again_and_again(path, searches, monkeypatch):
    one, _ = searches
    compare_stamp, differences = LogSearch._compare_stamp, [0]

    def differ(search: LogSearch, stamp: int) -> None:
        differences[0] += 1
        if differences[0] <= 2 * MAX_MISMATCHES:  # each attempt looks twice
            raise StampMismatchError(MISMATCH)
        compare_stamp(search, stamp)

    monkeypatch.setattr(LogSearch, "_compare_stamp", differ)
    assert count_hits(one) == 18
    differences[0] = -2
    with pytest.raises(StoreError) as raised:
        count_hits(one)
    assert str(raised.value) == (
        f"the search index '{path}-search' was made anew, and still does not match the log ({MISMATCH}): try again; "
        "if that does not help, delete this file alone, and it is made once more"
    )


def test_what_is_damaged_again_at_once_is_told(path, searches, emptied, monkeypatch):
    one, _ = searches

    def fail(*_: Any) -> None:
        raise StaleIndexError("words are left")

    monkeypatch.setattr(LogSearch, "_find_hits", fail)
    with pytest.raises(StoreError, match=r"still does not match the log \(words are left\)"):
        count_hits(one)
    assert emptied == ["recreate_tables", "rewrite_pages"] * (MAX_DAMAGES - 1)


@pytest.mark.parametrize("change", ["-stamp", "stamp + 1"])
async def test_a_session_is_deleted_from_an_index_that_another_process_has_left(path, store, searches, emptied, change):
    await keep(store, "gone", "xyzzyword")
    assert await found(store, "xyzzyword") == [("gone", 1)]
    set_stamp(path, change)
    await store.delete("gone")
    assert [each for each in emptied if each != "rewrite_pages"] == ["recreate_tables"] * (change != "-stamp")
    assert "rewrite_pages" in emptied
    log, index = read_stamps(path)
    assert log == index
    assert await found(store, "xyzzyword") == []
    assert count_hits(searches[0]) == 18


async def test_a_process_that_dies_while_it_deletes_leaves_a_note_that_bytes_may_be_left(
    path, store, searches, monkeypatch
):
    one, _ = searches
    await keep(store, "gone", *lines(3, "xyzzyword"))
    await keep(store, "many", *lines(3000, "sun"))
    assert count_hits(one, "xyzzyword") == 3

    def die(_: SearchIndex) -> None:
        raise apsw.IOError("died")

    with monkeypatch.context() as patched:
        patched.setattr(SearchIndex, "truncate_wal", die)
        with pytest.raises(StoreError, match="died"):
            await store.delete("gone")
    log, index = read_stamps(path)
    assert index == -log
    assert (count_hits(one, "xyzzyword"), count_hits(one)) == (0, 18)
    assert one.index_batch() == 0
    assert read_stamps(path) == (log, log)
    assert all(b"xyzzyword" not in each.read_bytes() for each in path.parent.glob("*-search*"))


async def test_nothing_is_deleted_if_the_index_is_outdated_and_cannot_be_written(path, store, searches, monkeypatch):
    await keep(store, "gone", "xyzzyword")
    set_stamp(path, "stamp + 1")
    with monkeypatch.context() as patched:
        patched.setattr(SearchIndex, "is_writable", False)
        with pytest.raises(ReadOnlyStoreError):
            await store.delete("gone")
    assert len(await store.read("gone")) == 1


async def test_a_text_leaves_the_log_before_an_index_that_is_damaged_is_made_anew(path, store, monkeypatch):
    """Otherwise another process could index it again in between."""
    await keep(store, "gone", "xyzzyword")
    await keep(store, "kept", "rain")
    assert await found(store, "xyzzyword") == [("gone", 1)]
    run_removal, kept = LogReaderForSearch.run_removal, []

    def look_and_remove(log: LogReaderForSearch, job: Any) -> Any:
        kept.append(read_index(path, "SELECT count(*) FROM doc"))
        return run_removal(log, job)

    def fail(*_: Any) -> None:
        raise StaleIndexError("its texts cannot be read")

    monkeypatch.setattr(LogReaderForSearch, "run_removal", look_and_remove)
    monkeypatch.setattr(LogSearch, "_indexed_texts", fail)
    await store.delete("gone")
    assert kept == [2]
    assert await found(store, "xyzzyword") == []
    assert await found(store, "rain") == [("kept", 1)]


def leave_none(_: Path) -> None:
    """It is made at the first search."""


def be_of_another_version(index: Path) -> None:
    connection = apsw.Connection(str(index))
    connection.execute("PRAGMA user_version = 99")
    connection.close()


def garble(index: Path) -> None:
    content = index.read_bytes()
    index.write_bytes(content[:4096] + b"x" * (len(content) - 4096))


def be_no_database(index: Path) -> None:
    index.write_bytes(b"x" * 8192)


@pytest.mark.faults
@pytest.mark.parametrize("damage", [leave_none, be_of_another_version, garble, be_no_database])
async def test_processes_that_search_at_the_same_moment_all_find_what_they_said(path, store_at, damage):
    names, rounds = ("one", "two", "three"), 500 if LONG else 12
    for number in range(rounds if damage is not leave_none else 0):
        store = store_at(f"{path}-{number}")
        await keep(store, "before", "said before")
        assert await found(store, "said") == [("before", 1)]
        await store.aclose()
        damage(Path(f"{path}-{number}-search"))
    with ExitStack() as stack:
        processes = [
            stack.enter_context(child("first_search", path, name, rounds, programs="search_children")) for name in names
        ]
        told = [each.stdout.read() for each in processes]
        codes = [each.wait(60) for each in processes]
        assert codes == [0, 0, 0], "".join([each.stderr.read() for each in processes])
    assert told == ["done\n"] * 3
