"""Programs that the tests of stores run as processes of their own: python -m tests.stores.children NAME ARGUMENT…"""

import asyncio
import os
import random
import signal
import sys

from perdure import SessionBusy, StoreError
from perdure._core.values import faults
from perdure.events import Custom, Entry
from perdure.stores import FileStore, Lease, SqliteStore


def tell(*words: object) -> None:
    """To the test that started us."""
    print(*words, flush=True)  # noqa: T201


def store_at(path: str) -> SqliteStore | FileStore:
    """The kind of store that a path is for."""
    return SqliteStore(path) if path.endswith(".db") else FileStore(path)


async def race(path: str, sessions: str) -> None:
    """Try for each session, all at once with whoever else is started; hold what was won until stdin ends."""
    store = store_at(path)
    tell("ready")
    sys.stdin.readline()
    for number in range(int(sessions)):
        try:
            await store.acquire(f"s{number}")
        except SessionBusy:
            continue
        tell(f"s{number}")
    tell("done")
    sys.stdin.read()


async def fork(path: str) -> None:
    """Use a store in a forked child, which must be refused there, and harmless here."""
    store = store_at(path)
    lease = await store.acquire("s")
    await store.append(lease, [Entry(1, 0.0, Custom("before"), "e-1")], sync=False)
    if (pid := os.fork()) == 0:
        os._exit(in_forked_child(store, path))
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])  # noqa: ASYNC222 - there is nothing else to do meanwhile
    await store.append(lease, [Entry(2, 0.0, Custom("after"), "e-2")], sync=True)
    tell(status, len(await store.read("s")))
    await store.aclose()


async def leave_child(path: str) -> None:
    """Hold a session, and fork a child that does nothing until stdin ends."""
    store = store_at(path)
    await store.acquire("s")
    if os.fork() == 0:
        sys.stdin.read()
        os._exit(0)
    tell("forked")
    sys.stdin.read()


def in_forked_child(inherited: SqliteStore | FileStore, path: str) -> int:
    """0 when the inherited store is refused, and a new one works."""
    try:
        inherited.append_now(Lease("s", 1), [Entry(2, 0.0, Custom("child"), "c-2")], sync=False)
        return 1
    except StoreError as error:
        if "fork" not in str(error):
            return 2

    async def use_both() -> int:
        await inherited.aclose()
        store = store_at(path)
        entries = await store.read("s")
        try:
            await store.acquire("s")
        except SessionBusy:
            await store.aclose()
            return 0 if len(entries) == 1 else 3
        return 4

    asyncio.set_event_loop(None)
    asyncio.events._set_running_loop(None)  # the parent's, in the middle of which we are
    return asyncio.run(use_both())


def kill_rounds(path: str, rounds: str, seed: str) -> None:
    """Kill a driver again and again, at random times and at the fault points; each next one takes the session over.

    Drivers are forked from this process, which has no store open. Prints how many entries were acknowledged.
    """
    chance = random.Random(seed)
    acknowledged = 0
    for number in range(int(rounds)):
        point = [None, *faults.list_fault_points()[-2:]][number % 3]
        reader, writer = os.pipe()
        if (pid := os.fork()) == 0:
            os.close(reader)
            if point:
                faults.arm({point: f"kill@{chance.randint(1, 40)}"})
            asyncio.run(drive(path, acknowledged, writer, random.Random(f"{seed} {number}")))
        os.close(writer)
        acknowledged = until_killed(pid, reader, acknowledged, None if point else chance.randint(1, 60))
    tell(acknowledged)


async def drive(path: str, acknowledged: int, pipe: int, chance: random.Random) -> None:
    """Append for ever, telling the number of the last entry after each append; first, nothing may be missing."""
    store = store_at(path)
    lease = await store.acquire("s")
    found = [(entry.seq, entry.id) for entry in await store.read("s")]
    if found != [(seq, f"e-{seq}") for seq in range(1, len(found) + 1)] or len(found) < acknowledged:
        os.write(pipe, f"LOST: {len(found)} entries of {acknowledged}\n".encode())
        os._exit(1)
    seq = len(found)
    while True:
        size = chance.randint(1, 3)
        batch = [Entry(seq + place, 0.0, Custom("data", "x" * 500), f"e-{seq + place}") for place in range(1, size + 1)]
        sync = chance.random() < 0.2
        if not store.append_now(lease, batch, sync=sync):
            await store.append(lease, batch, sync=sync)
        seq += size
        os.write(pipe, b"%d\n" % seq)


def until_killed(pid: int, reader: int, acknowledged: int, enough: int | None) -> int:
    """The last number that the driver told before it died; after `enough` of them it is killed, else it dies alone."""
    told = 0
    with os.fdopen(reader) as lines:
        for line in lines:
            if not line.strip().isdecimal():
                sys.exit(line)
            if line.endswith("\n"):
                acknowledged = int(line)
            told += 1
            if told == enough:
                os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status != -signal.SIGKILL:
        sys.exit(f"the driver ended by itself, with {status}")
    return acknowledged


if __name__ == "__main__":
    program, *arguments = sys.argv[1:]
    result = globals()[program](*arguments)
    if asyncio.iscoroutine(result):
        asyncio.run(result)
