"""Indexing in the background: nobody who appends notices anything of it."""

import asyncio

import apsw
import pytest

from perdure._stores.sqlite.search import thread as sqlite_search_thread
from perdure._stores.sqlite.search.query import LogSearch
from perdure._stores.sqlite.search.thread import LATEST_SECONDS, QUIET_SECONDS, IndexingDelay
from perdure.stores import SqliteStore
from tests.doubles import SECONDS
from tests.stores.material import another_connection
from tests.stores.search_material import found, keep, lines, logged


def index_of(path):
    return path.with_name(f"{path.name}-search")


@pytest.fixture
def impatient(monkeypatch):
    """Indexes at once whatever comes."""
    monkeypatch.setattr(sqlite_search_thread, "QUIET_SECONDS", 0.0)


async def until(is_true) -> None:
    """Wait for something that is done on another thread."""
    async with asyncio.timeout(30):
        while not is_true():  # noqa: ASYNC110 - nobody tells when it is
            await asyncio.sleep(0.01)


def count_of(path) -> int:
    """How many texts are in the index."""
    if not index_of(path).exists():
        return 0
    with another_connection(index_of(path)) as connection:
        connection.set_busy_timeout(5000)
        if not connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'doc'").get:
            return 0
        return connection.execute("SELECT count(*) FROM doc").get


@pytest.mark.usefixtures("impatient")
async def test_what_is_appended_is_indexed_before_anybody_searches(path, store):
    await keep(store, "s", *lines(20))
    await until(lambda: count_of(path) == 18)
    await keep(store, "s", *lines(20, "more"), first=21)
    await until(lambda: count_of(path) == 36)


@pytest.mark.usefixtures("impatient")
async def test_more_than_a_batch_is_indexed_to_the_end(path, store, monkeypatch):
    monkeypatch.setattr("perdure._stores.sqlite.search.query.BATCH_ENTRIES", 7)
    await keep(store, "s", *lines(60))
    await keep(store, "t", *lines(60))
    await until(lambda: count_of(path) == 108)


async def test_while_it_is_not_quiet_nothing_is_indexed(path, store):
    await keep(store, "s", "rain")
    assert not index_of(path).exists()


async def test_appending_goes_on_while_the_index_is_locked(path, store):
    lease = await store.acquire("s")
    await store.append(lease, logged("rain"), sync=False)
    assert await found(store, "rain") == [("s", 1)]
    with another_connection(index_of(path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        await store.append(lease, logged("snow", first=2), sync=True)
        searching = asyncio.ensure_future(store.search("snow"))
        await store.append(lease, logged("snow", first=3), sync=True)
        await until(lambda: store.append_now(lease, logged("snow", first=4), sync=False))
        assert not searching.done()
        connection.execute("ROLLBACK")
    assert [hit.seq for hit in await searching][-1] == 2
    assert await found(store, "snow") == [("s", 2), ("s", 3), ("s", 4)]


@pytest.mark.usefixtures("impatient")
async def test_an_index_that_cannot_be_made_fails_in_the_background_alone(path, store, caplog):
    index_of(path).mkdir()
    lease = await store.acquire("s")
    await store.append(lease, logged("rain"), sync=True)
    await until(lambda: "could not be brought up to date" in caplog.text)
    await store.append(lease, logged("snow", first=2), sync=True)
    index_of(path).rmdir()
    assert await found(store, "snow") == [("s", 2)]


async def test_a_store_that_was_closed_can_be_searched_again(path, store):
    await keep(store, "s", "rain")
    assert await found(store, "rain") == [("s", 1)]
    await store.aclose()
    assert sorted(file.name for file in path.parent.iterdir()) == [path.name, f"{path.name}-search"]
    assert await found(store, "rain") == [("s", 1)]


async def test_a_search_that_is_cancelled_leaves_the_others_alone(store):
    await keep(store, "s", *lines(100))
    first = asyncio.ensure_future(store.search("number1"))
    second = asyncio.ensure_future(store.search("number2"))
    await asyncio.sleep(0)
    first.cancel()
    assert [hit.seq for hit in await second] == [2]
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_searches_of_several_tasks_are_all_answered(store):
    await keep(store, "s", *lines(30))
    hits = await asyncio.gather(*[store.search(f"number{number}") for number in range(1, 10)])
    assert [hit.seq for (hit,) in hits] == list(range(1, 10))


# -- how long to wait --------------------------------------------------------------------------------------------------


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_with_nothing_new_there_is_nothing_to_wait_for():
    assert IndexingDelay(Clock()).remaining_seconds() is None


def test_it_waits_until_it_has_been_quiet():
    clock = Clock()
    pause = IndexingDelay(clock)
    pause.start(1)
    assert pause.remaining_seconds() == QUIET_SECONDS
    clock.now += QUIET_SECONDS
    assert pause.remaining_seconds() == 0
    assert not pause.is_over(2)  # one more has come
    assert pause.remaining_seconds() == QUIET_SECONDS
    clock.now += QUIET_SECONDS
    assert pause.is_over(2)
    pause.stop()
    assert pause.remaining_seconds() is None


def test_it_does_not_wait_for_ever():
    clock = Clock()
    pause = IndexingDelay(clock)
    pause.start(1)
    appends = 1
    while not pause.is_over(appends := appends + 1):
        seconds = pause.remaining_seconds()
        assert seconds is not None
        clock.now += seconds
        pause.start(appends)
    assert clock.now == 100 + LATEST_SECONDS


async def test_an_index_that_cannot_be_closed_does_not_keep_the_store_open(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_search: LogSearch) -> None:
        raise apsw.IOError("the disk is on fire")

    await keep(store, "s", "rain")
    assert await found(store, "rain") == [("s", 1)]
    monkeypatch.setattr(LogSearch, "close", fail)
    async with asyncio.timeout(SECONDS):
        await store.aclose()
    assert caplog.messages == ["the search index could not be closed: the disk is on fire"]
