"""Processes that rebuild one search index at the same time: one of them does it, and nobody's search fails."""

import os
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure.core.error import StoreError
from perdure.stores.search_request_validation import SearchRequest
from perdure.stores.sqlite.log_reader_for_search import LogReaderForSearch
from perdure.stores.sqlite.search import MAX_MISMATCHES, LogSearch
from perdure.stores.sqlite.search_index import SearchIndex, StaleIndexError, StampMismatchError
from perdure.stores.sqlite.store import SqliteStore
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
    assert (emptied, read_stamps(path), len(caplog.messages)) == ([], before, 1)
    one._rebuild_index(StaleIndexError("something in it is wrong"))
    assert emptied == ["recreate_tables", "rewrite_pages"]
    assert caplog.messages[1:] == [f"the search index '{path}-search' is made anew: something in it is wrong"]
    assert count_hits(two) == 18


def test_what_a_process_that_died_has_not_rewritten_is_rewritten_by_the_next_one(path, searches, emptied, caplog):
    one, two = searches
    before = read_stamps(path)
    set_stamp(path, "-stamp")
    assert (count_hits(one), count_hits(two)) == (18, 18)
    assert (emptied, read_stamps(path), caplog.messages) == (["rewrite_pages"], before, [])


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
        f"the search index '{path}-search' was made anew, and still does not match the log ({MISMATCH}): search again; "
        "if that does not help, delete this file alone, and it is made once more"
    )


def test_what_is_damaged_again_at_once_is_told(path, searches, emptied, monkeypatch):
    one, _ = searches

    def fail(*_: Any) -> None:
        raise StaleIndexError("words are left")

    monkeypatch.setattr(LogSearch, "_find_hits", fail)
    with pytest.raises(StoreError, match=r"still does not match the log \(words are left\)"):
        count_hits(one)
    assert emptied == ["recreate_tables", "rewrite_pages"]


async def test_a_session_is_deleted_from_an_index_that_another_process_makes_anew(path, store, searches, emptied):
    await keep(store, "gone", "xyzzyword")
    assert await found(store, "xyzzyword") == [("gone", 1)]
    set_stamp(path, "-stamp")
    await store.delete("gone")
    assert emptied[0] == "rewrite_pages"
    assert "recreate_tables" not in emptied
    assert await found(store, "xyzzyword") == []
    assert count_hits(searches[0]) == 18


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


@pytest.mark.faults
def test_processes_that_search_a_new_store_at_the_same_moment_all_find_what_they_said(path):
    names, rounds = ("one", "two", "three"), 1_000 if LONG else 40
    with ExitStack() as stack:
        processes = [
            stack.enter_context(child("first_search", path, name, rounds, programs="search_children")) for name in names
        ]
        told = [each.stdout.read() for each in processes]
        codes = [each.wait(60) for each in processes]
        assert codes == [0, 0, 0], "".join([each.stderr.read() for each in processes])
    assert told == ["done\n"] * 3
