"""A process that writes to an SQLite store all the time, beside a thread that never rests: to be stopped."""

import asyncio
import os
import sys
import threading

from perdure.events import Custom, Entry
from perdure.stores import SqliteStore


def spin() -> None:
    """Take the GIL whenever it is free."""
    while True:
        pass


async def write(path: str) -> None:
    """Append for ever, in three sessions."""
    store = SqliteStore(path)

    async def drive(session_id: str) -> None:
        lease = await store.acquire(session_id)
        seq = 0
        while True:
            seq += 1
            new = [Entry(seq, 1.0, Custom("x" * 200), f"{session_id}-{seq}")]
            if not store.append_now(lease, new, sync=False):
                await store.append(lease, new, sync=False)
            if seq == 2:
                os.write(1, b"up\n")
            await asyncio.sleep(0.002)

    await asyncio.gather(*[drive(f"{os.getpid()}-{number}") for number in range(3)])


if __name__ == "__main__":
    threading.Thread(target=spin, daemon=True).start()
    asyncio.run(write(sys.argv[1]))
