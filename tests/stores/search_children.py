"""A process that fills, searches and empties a store: python -m tests.stores.search_children busy PATH NAME COUNT"""

import asyncio
import sys

from perdure.stores.sqlite import search_thread as sqlite_search_thread
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


if __name__ == "__main__":
    sqlite_search_thread.QUIET_SECONDS = 0.0  # type: ignore[misc] # so that the background is at work as well
    asyncio.run(busy(*sys.argv[2:]))
