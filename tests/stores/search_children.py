"""Processes that share a search index: python -m tests.stores.search_children (busy|open_new) PATH NAME COUNT

`busy` fills, searches and empties a store; `open_new` opens one new index after another, each at the same moment as a
second process does.
"""

import asyncio
import sys
import time
from pathlib import Path

from perdure.stores.sqlite import search_thread as sqlite_search_thread
from perdure.stores.sqlite.search_index import SearchIndex
from perdure.stores.sqlite.store import SqliteStore
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


def open_new(path: str, name: str, count: str) -> None:
    """Open new indexes, each as soon as the processes `one` and `two` are both ready for it."""
    for number in range(int(count)):
        place = f"{path}-{number}"
        Path(f"{place}.{name}").touch()
        other = Path(f"{place}.{'two' if name == 'one' else 'one'}")
        until = time.monotonic() + 60
        while not other.exists():
            assert time.monotonic() < until, "the other process has ended"
        index = SearchIndex(place)
        assert index.stamp == 0
        index.close()
    print("done", flush=True)  # noqa: T201


if __name__ == "__main__":
    sqlite_search_thread.QUIET_SECONDS = 0.0  # type: ignore[misc] # so that the background is at work as well
    if sys.argv[1] == "busy":
        asyncio.run(busy(*sys.argv[2:]))
    else:
        open_new(*sys.argv[2:])
