"""Work for a store whose disk loses power, of every kind that there is. For `test_power.py`."""

import asyncio
from random import Random

import apsw

from perdure import user
from perdure._stores.sqlite.format.pages import find_checksum_vfs
from perdure.events import Entry, MessageAdded
from perdure.stores import Lease, Post, SearchableStore
from tests.faults.account import WORD
from tests.faults.disk import Disk
from tests.faults.outage import DATABASE
from tests.faults.power import NAME
from tests.faults.witness import Witness

SESSIONS = ("a", "b", "c")
SIZES = (10, 40, 300, 300, 3000, 20_000)
"""How many letters an entry has: from far less than a page to several."""


class Mixed:
    """Drives several sessions, each step a random one."""

    def __init__(self, store: Witness, chance: Random) -> None:
        self.store = store
        self.leases: dict[str, Lease] = {}
        self.made = 0
        self.numbered: dict[tuple[str, int], int] = {}
        """The last number that each driver of a session has used."""
        self._chance = chance

    async def step(self) -> None:
        """Do something."""
        chance = self._chance
        adding = (self.append, self.together, self.post, self.take, self.fork)
        others = (self.redact, self.delete, self.search, self.reopen)
        (step,) = chance.choices((*adding, *others), (10, 2, 2, 2, 2, 1, 1, 1, 1))
        await step(chance.choice(SESSIONS))

    async def append(self, session_id: str, names: tuple[str, ...] = ()) -> None:
        """Some entries, the first of which take the posts of these names."""
        chance = self._chance
        lease = await self.lease(session_id)
        head = len(await self.store.read(session_id))
        count = max(len(names), chance.choice((1, 1, 1, 2, 5)))
        ids = [*names, *self.choose_ids(lease, count - len(names))]
        entries = [Entry(seq, 1.0, self.said(), name) for seq, name in enumerate(ids, head + 1)]
        sync = chance.random() < 0.3
        if not (chance.random() < 0.5 and self.store.append_now(lease, entries, sync=sync)):
            await self.store.append(lease, entries, sync=sync)

    async def together(self, _session_id: str) -> None:
        """Entries for all sessions at the same time, some of them synced."""
        await asyncio.gather(*[self.append(session_id) for session_id in SESSIONS])

    async def post(self, session_id: str) -> None:
        """Something for the driver."""
        name = f"post-{self.number()}"
        assert await self.store.post(session_id, Post(name, "steer", name, 1.0))

    async def take(self, session_id: str) -> None:
        """Take what was posted."""
        waiting = await self.store.posts(session_id)
        if waiting:
            await self.append(session_id, tuple(post.id for post in waiting[:2]))

    async def fork(self, session_id: str) -> None:
        """Begin another session like this one."""
        head = len(await self.store.read(session_id))
        if head:
            await self.store.fork(session_id, f"{session_id}-{self.number()}", at=self._chance.randint(1, head))

    async def redact(self, session_id: str) -> None:
        """Put something harmless in the place of an entry."""
        lease = await self.lease(session_id)
        log = await self.store.read(session_id)
        if log:
            old = self._chance.choice(log)
            await self.store.redact(lease, Entry(old.seq, old.at, MessageAdded(user("Redacted.")), old.id))

    async def delete(self, session_id: str) -> None:
        """Forget a session, or one of its forks."""
        forks = [info.session_id for info in await self.store.list(prefix=f"{session_id}-")]
        session_id = self._chance.choice([session_id, *forks])
        if session_id in self.leases:
            await self.store.release(self.leases.pop(session_id))
        await self.store.delete(session_id)

    async def search(self, _session_id: str) -> None:
        """Look for what every entry says."""
        if isinstance(self.store.store, SearchableStore):
            await self.store.store.search(WORD)

    async def reopen(self, _session_id: str) -> None:
        """Close the store, which opens again at its next use."""
        self.leases.clear()
        await self.store.aclose()

    async def lease(self, session_id: str) -> Lease:
        """The right to drive a session."""
        if session_id not in self.leases:
            self.leases[session_id] = await self.store.acquire(session_id)
        return self.leases[session_id]

    def choose_ids(self, lease: Lease, count: int) -> list[str]:
        """Ids that were never used: mostly as drivers number theirs, which stores append in fewer steps."""
        if self._chance.random() < 0.2:
            return [f"{self.number()}" for _ in range(count)]
        driver = (lease.session_id, lease.fence)
        first = self.numbered.get(driver, 0) + 1
        self.numbered[driver] = first + count - 1
        return [f"{lease.session_id}.{lease.fence}-{number}" for number in range(first, first + count)]

    def said(self) -> MessageAdded:
        """A message of some length, with a word that all of them have in common."""
        return MessageAdded(user(f"{WORD} {self._chance.randbytes(self._chance.choice(SIZES) // 2).hex()}"))

    def number(self) -> int:
        """One that was never used."""
        self.made += 1
        return self.made


async def mixed(store: Witness, disk: Disk, chance: Random, steps: int = 25) -> None:
    """Many kinds of work on several sessions, while somebody else moves the log of SQLite into the database."""
    work = Mixed(store, chance)
    for _ in range(steps):
        await work.step()
        if chance.random() < 0.15 and (disk.folder / DATABASE).exists():
            checkpoint(disk, chance)


def checkpoint(disk: Disk, chance: Random) -> None:
    """As another process does it."""
    connection = apsw.Connection(str(disk.folder / DATABASE), vfs=find_checksum_vfs(NAME))
    try:
        connection.pragma("wal_checkpoint", chance.choice(("PASSIVE", "FULL", "RESTART", "TRUNCATE")))
    except apsw.BusyError:
        pass
    finally:
        connection.close()
