"""Programs that the tests of the PostgreSQL store run as processes: python -m tests.stores.postgres_children NAME …"""

import asyncio
import os
import random
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from perdure import SessionBusy, StoreError
from perdure._core.values import faults
from perdure._stores.postgres import operations as postgres_database  # noqa: F401 - loaded once, and not in each forked child
from perdure.stores import Fenced, Lease, PostgresStore
from tests.stores.children import tell, until_killed
from tests.stores.material import entries

SHORT_LEASE_SECONDS = 2.0


async def race(address: str, tenant: str, sessions: str) -> None:
    """Try for each session, all at once with whoever else is started; hold what was won until stdin ends."""
    store = PostgresStore(address, tenant=tenant)
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
    await store.aclose()


async def hold(address: str, tenant: str, seconds: str) -> None:
    """Drive a session until we are killed."""
    await PostgresStore(address, tenant=tenant, lease_seconds=float(seconds)).acquire("s")
    tell("held")
    sys.stdin.read()


async def fork(address: str, tenant: str) -> None:
    """Use a store in a forked child, which must be refused there, and harmless here."""
    store = PostgresStore(address, tenant=tenant)
    lease = await store.acquire("s")
    await store.append(lease, entries(1), sync=False)
    if (pid := os.fork()) == 0:
        asyncio.set_event_loop(None)
        asyncio.events._set_running_loop(None)  # the parent's, in the middle of which we are
        os._exit(asyncio.run(in_forked_child(store, lease, PostgresStore(address, tenant=tenant))))
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])  # noqa: ASYNC222 - there is nothing else to do meanwhile
    await store.append(lease, entries(2), sync=True)
    tell(status, len(await store.read("s")))
    await store.aclose()


async def in_forked_child(inherited: PostgresStore, lease: Lease, new: PostgresStore) -> int:
    """0 when the inherited store is refused, and a new one works."""
    try:
        await inherited.append(lease, entries(2), sync=False)
        return 1
    except StoreError as error:
        if "fork" not in str(error):
            return 2
    await inherited.aclose()
    found = await new.read("s")
    await new.aclose()
    return 0 if len(found) == 1 else 3


# -- drivers that are killed, or paused --------------------------------------------------------------------------------


@contextmanager
def driver(
    address: str, tenant: str, acknowledged: int, seed: str, *, fault: str = "", lease: float = 15
) -> Iterator[tuple[int, int]]:
    """A process that appends for ever, forked from this one, which has no store open: its number, and its words."""
    reader, writer = os.pipe()
    if (pid := os.fork()) == 0:
        os.close(reader)
        faults.arm_from_text(fault)
        store = PostgresStore(address, tenant=tenant, lease_seconds=lease)
        os._exit(asyncio.run(drive(store, acknowledged, writer, random.Random(seed))))
    os.close(writer)
    yield pid, reader


async def drive(store: PostgresStore, acknowledged: int, pipe: int, chance: random.Random) -> int:
    """Append for ever, telling the number of the last entry after each append; first, nothing may be missing."""
    lease = await store.acquire("s")
    found = [(entry.seq, entry.id) for entry in await store.read("s")]
    if found != [(seq, f"e-{seq}") for seq in range(1, len(found) + 1)] or len(found) < acknowledged:
        os.write(pipe, f"LOST: {len(found)} entries of {acknowledged}\n".encode())
        return 1
    seq = len(found)
    try:
        while True:
            size = chance.randint(1, 3)
            await store.append(lease, entries(seq + 1, size), sync=chance.random() < 0.2)
            seq += size
            os.write(pipe, b"%d\n" % seq)
    except Fenced:
        os.write(pipe, b"fenced\n")
        return 0


def kill_rounds(address: str, tenant: str, rounds: str, seed: str) -> None:
    """Kill a driver again and again, at random times and at the fault points; each next one takes the session over.

    Prints how many entries were acknowledged.
    """
    chance = random.Random(seed)
    acknowledged = 0
    for number in range(int(rounds)):
        point = ["", "store.append.before_commit", "store.append.after_commit"][number % 3]
        fault = f"{point}=kill@{chance.randint(1, 30)}" if point else ""
        with driver(address, tenant, acknowledged, f"{seed} {number}", fault=fault) as (pid, reader):
            acknowledged = until_killed(pid, reader, acknowledged, None if point else chance.randint(1, 40))
    tell(acknowledged)


def pause_rounds(address: str, tenant: str, rounds: str, seed: str) -> None:
    """Pause a driver, take its session over, let it go on: it must find itself fenced. Prints how often it did."""
    chance = random.Random(seed)
    for number in range(int(rounds)):
        started = driver(address, tenant, 0, f"{seed} {number}", lease=SHORT_LEASE_SECONDS)
        with started as (pid, reader), os.fdopen(reader) as lines:
            told = [lines.readline() for _ in range(chance.randint(1, 20))]
            os.kill(pid, signal.SIGSTOP)
            asyncio.run(take_over(address, tenant, int(told[-1]), pid, by_force=number % 2 == 0))
            if lines.read().splitlines()[-1:] != ["fenced"] or os.waitpid(pid, 0)[1] != 0:
                sys.exit("the driver went on after its session was taken over")
    tell(rounds)


async def take_over(address: str, tenant: str, acknowledged: int, pid: int, *, by_force: bool) -> None:
    """Get the session of a paused driver, grow it while that one wakes, and see that nobody else does."""
    store = PostgresStore(address, tenant=tenant, lease_seconds=30)
    lease = await (store.acquire("s", take_over=True) if by_force else patiently_acquired(store))
    head = len(await store.read("s"))
    if head < acknowledged:
        sys.exit(f"LOST: {head} entries of {acknowledged}")
    os.kill(pid, signal.SIGCONT)
    for seq in range(head + 1, head + 6):
        await store.append(lease, entries(seq), sync=False)
    found = [entry.id for entry in await store.read("s")]
    if found != [f"e-{seq}" for seq in range(1, head + 6)]:
        sys.exit(f"the log was mixed up: {found[-10:]}")
    await store.aclose()


async def patiently_acquired(store: PostgresStore) -> Lease:
    """The lease, as soon as the database lets it go."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await store.acquire("s")
            except SessionBusy:
                await asyncio.sleep(0.02)


if __name__ == "__main__":
    program, *arguments = sys.argv[1:]
    result = globals()[program](*arguments)
    if asyncio.iscoroutine(result):
        asyncio.run(result)
