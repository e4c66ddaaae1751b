"""The contract of stores finds what is wrong with a store, and says what."""

import pytest

from windlass.core.error import Conflict
from windlass.core.store import Lease
from windlass.stores.memory import MemoryStore
from windlass.testing.contracts import check_store


class Forgetful(MemoryStore):
    async def append(self, lease, entries, *, sync):
        if not sync:
            await super().append(lease, entries, sync=sync)


class Unnumbered(MemoryStore):
    async def append(self, lease, entries, *, sync):
        session = self._sessions[lease.session_id]
        session.entries.extend(entries)


class Unfenced(MemoryStore):
    async def append(self, lease, entries, *, sync):
        session = self._sessions[lease.session_id]
        await super().append(Lease(lease.session_id, session.fence), entries, sync=sync)


class Impatient(MemoryStore):
    async def append(self, lease, entries, *, sync):
        if entries and len(await self.read(lease.session_id)) >= entries[0].seq:
            raise Conflict("seen before")
        await super().append(lease, entries, sync=sync)


class Generous(MemoryStore):
    async def acquire(self, session_id):
        if session_id in self._sessions:
            self._sessions[session_id].driven = False
        return await super().acquire(session_id)


class Delicate(MemoryStore):
    async def append(self, lease, entries, *, sync):
        for entry in entries:
            repr(entry).encode("ascii")
            if "NUL" in repr(entry):
                raise ValueError("cannot encode this")
        await super().append(lease, entries, sync=sync)


class Disorderly(MemoryStore):
    async def list(self, *, prefix="", limit=50, offset=0):
        found = await super().list(prefix=prefix, limit=limit, offset=offset)
        return sorted(found, key=lambda info: info.session_id)


class Clinging(MemoryStore):
    async def delete(self, session_id):
        if session_id not in self._sessions:
            raise KeyError(session_id)
        await super().delete(session_id)


class Eager(MemoryStore):
    def append_now(self, lease, entries, *, sync):
        super().append_now(lease, entries, sync=sync)
        return False

    async def append(self, lease, entries, *, sync):
        super().append_now(lease, entries, sync=sync)


@pytest.mark.parametrize(
    ("kind", "promise"),
    [
        (Forgetful, "all entries as they were appended"),
        (Unnumbered, "raises Conflict, and it did not"),
        (Unfenced, "with a lease that was replaced raises Fenced"),
        (Impatient, "seen before"),
        (Generous, "raises SessionBusy, and it did not"),
        (Delicate, "cannot encode this"),
        (Disorderly, "the most recently used session first"),
        (Clinging, "deleted"),
        (Eager, "that returns False has done nothing"),
    ],
)
async def test_a_store_that_breaks_a_promise_is_told_which(kind, promise):
    with pytest.raises(Exception, match=promise):
        await check_store(kind)


async def test_each_store_that_was_made_is_closed():
    closed = []

    class Closing(MemoryStore):
        async def aclose(self):
            closed.append(self)

    made = []

    def make():
        made.append(Closing())
        return made[-1]

    await check_store(make)
    assert made == closed
    assert len(made) > 5
