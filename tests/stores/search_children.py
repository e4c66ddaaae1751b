"""Processes that share a search index: python -m tests.stores.search_children WHAT PATH NAME COUNT

`busy` fills, searches and empties a store; `open_new` opens one new index after another, each at the same moment as a
second process does; `first_search` searches one store after another, each at the same moment as two others do.
"""

import asyncio
import sys
import time
from pathlib import Path

from perdure._stores.sqlite.search import thread as sqlite_search_thread
from perdure._stores.sqlite.search.index import SearchIndex
from perdure.stores import SqliteStore
from tests.stores.search_material import found, keep


async def busy(path: str, name: str, count: str) -> None:
    """Keep sessions one by one, find each at once, delete every third; tell of each thing, of deletes also before."""
    store = SqliteStore(path)
    for number in range(int(count)):
        session_id, word = f"{name}-{number}", f"word{name}{number}"
        await keep(store, session_id, f"{word} said here", "and something else")
        print("kept", session_id, flush=True)  # noqa: T201
        assert await found(store, word) == [(session_id, 1)]
        if number % 3 == 2:
            print("deleting", session_id, flush=True)  # noqa: T201
            await store.delete(session_id)
            assert await found(store, word) == []
            print("deleted", session_id, flush=True)  # noqa: T201
    await store.aclose()
    print("done", flush=True)  # noqa: T201


async def first_search(path: str, name: str, count: str) -> None:
    """Search stores, each as soon as three processes are ready for it, and delete something."""
    for number in range(int(count)):
        store = SqliteStore(f"{path}-{number}")
        await keep(store, name, f"word{name} said here")
        await keep(store, f"{name}-gone", f"gone{name}")
        meet(f"{path}-{number}", name, "one", "two", "three")
        assert await found(store, f"word{name}") == [(name, 1)]
        await store.delete(f"{name}-gone")
        assert await found(store, f"gone{name}") == []
        assert await found(store, f"word{name}") == [(name, 1)]
        await store.aclose()
    print("done", flush=True)  # noqa: T201


def meet(place: str, name: str, *names: str) -> None:
    """Wait until the processes of all names are at the same place."""
    Path(f"{place}.{name}").touch()
    until = time.monotonic() + 60
    while not all(Path(f"{place}.{each}").exists() for each in names):
        assert time.monotonic() < until, "another process has ended"


def open_new(path: str, name: str, count: str) -> None:
    """Open new indexes, each as soon as the processes `one` and `two` are both ready for it."""
    for number in range(int(count)):
        place = f"{path}-{number}"
        meet(place, name, "one", "two")
        index = SearchIndex(place)
        assert index.stamp == 0
        index.close()
    print("done", flush=True)  # noqa: T201


if __name__ == "__main__":
    sqlite_search_thread.QUIET_SECONDS = 0.0  # type: ignore[misc] # so that the background is at work as well
    if sys.argv[1] == "busy":
        asyncio.run(busy(*sys.argv[2:]))
    elif sys.argv[1] == "first_search":
        asyncio.run(first_search(*sys.argv[2:]))
    else:
        open_new(*sys.argv[2:])
