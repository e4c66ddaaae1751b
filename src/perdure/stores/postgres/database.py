"""One database as one store uses it, and how sessions change in it. Above: `store.py`, which waits.
Below: `pool.py`, `lease.py`, and the modules that speak SQL.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import msgspec
from psycopg import AsyncConnection

from perdure.core import faults
from perdure.core.clock import Clock, new_id
from perdure.core.error import Conflict, Fenced, SessionBusy, SessionExists, SessionNotFound, StoreError
from perdure.core.store import Hit, Lease, Post, StoreSize
from perdure.stores.holder import parse_holder, this_process
from perdure.stores.refusal import check_fork
from perdure.stores.search_query import Asked

from . import upkeep as postgres_upkeep
from .erasure import Erasure, sweep
from .fork import Fork, fork
from .lease import Grip, Held, Leases, fenced
from .mailbox import Mailbox
from .pool import Pool, settings_of
from .row import Row, follow_one_another
from .search import query_of, search
from .statement import Found, Statements

T = TypeVar("T")

UNSYNCED_BYTES: Final = 8 * 1024 * 1024
"""When this much was stored since the last barrier, the next append is one: we keep it in memory until then."""

_TRIES: Final = 5
"""How often a session may change under our hands while we look at who holds it."""

_LARGEST: Final = 2**63 - 1

_log = logging.getLogger("perdure.stores")


class Database:
    """Made at first use, in the process that uses it."""

    def __init__(
        self, address: str, place: str, tenant: str, *, connections: int, lease: float, patience: float, clock: Clock
    ) -> None:
        self._settings = settings_of(address, place)
        self._place = place
        self._connections = connections
        self._lease = lease
        self._patience = patience
        self._clock = clock
        self._process = os.getpid()
        self._pools: dict[asyncio.AbstractEventLoop, Pool] = {}
        self._tenant = tenant
        self._erasure = Erasure(tenant, lease)
        self.statements = Statements(tenant, lease)
        self.mailbox = Mailbox(tenant)
        self.leases = Leases(self._settings, tenant, lease, clock)

    @property
    def is_inherited(self) -> bool:
        """Whether this process is a fork of the one that made it: then it must not be touched."""
        return self._process != os.getpid()

    async def run(
        self, work: Callable[[AsyncConnection], Awaitable[T]], *, patience: float | None = None, hurried: bool = True
    ) -> T:
        """Do some work, which may be done twice, with a connection of the running event loop."""
        if self.is_inherited:
            raise StoreError(
                f"the store {self._place!r} was opened by process {self._process}, of which this one, {os.getpid()}, "
                "is a fork: make a new store object here"
            )
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop) or self._new_pool(loop)
        return await pool.run(work, patience=patience, hurried=hurried)

    def new_grip(self) -> str:
        """What we write into a session that we take."""
        holder = msgspec.structs.asdict(this_process(self._clock.now()))
        return msgspec.json.encode(Grip(**holder, token=new_id())).decode()

    def new_token(self) -> str:
        """What we know something by that we have made, when nobody told us that it was done."""
        return new_id()

    async def take(self, session_id: str, grip: str, *, take_over: bool) -> Held:
        """Take a session, which is made if it is new. Raises `SessionBusy`, unless it is taken over."""
        held = await self.run(partial(self._take, session_id, grip, take_over=take_over))
        self.leases.add(held)
        return held

    async def give_back(self, held: Sequence[Held]) -> None:
        """Leases end by themselves, so this is not tried for long."""
        if held:
            await self.run(partial(self.statements.give_back, held=held), patience=min(self._patience, self._lease / 3))

    async def append(self, held: Held, rows: Sequence[Row], *, sync: bool) -> None:
        """Add rows to a log, all or none. Raises `Conflict` or `Fenced`."""
        sync = sync or held.unsynced_bytes >= UNSYNCED_BYTES
        await self.run(partial(self._append, held, rows, sync=sync))

    async def post(self, session_id: str, post: Post, token: str) -> bool:
        """Keep a post. `token` is not used for another one: by it we know our own when nobody told us of it."""
        return await self.run(partial(self.mailbox.post, session_id=session_id, post=post, token=token))

    async def fork(self, session_id: str, new_id: str, at: int | None, token: str) -> None:
        """Make a fork. Raises `SessionNotFound`, `SessionExists` or `ConfigError`."""
        fits = at is None or (type(at) is int and 0 < at <= _LARGEST)
        wanted = Fork(self._tenant, session_id, new_id, at if fits else 0, token, self._clock.now())
        head, is_made = await self.run(partial(fork, wanted=wanted))
        if is_made:
            return
        if not head:
            raise SessionNotFound(f"there is no session {session_id!r} to fork: list() shows which there are")
        check_fork(session_id, at, head)
        raise SessionExists(f"there is a session {new_id!r} already: fork {session_id!r} to another id")

    async def redact(self, held: Held, row: Row) -> None:
        """Put a row in the place of another one. Raises `Conflict` or `Fenced`."""
        await self.run(partial(self._redact, held, row))
        await self._sweep(held.lease.session_id)

    async def delete(self, session_id: str) -> None:
        """Delete a session, if there is one. Raises `SessionBusy`."""
        if await self.run(partial(self._delete, session_id)):
            await self._sweep(session_id)

    async def search(self, asked: Asked) -> list[Hit]:
        """What was said. Raises `ConfigError`."""
        query = query_of(asked)
        if not query.text:
            return []
        return await self.run(lambda connection: search(connection, self._tenant, asked, query))

    async def size(self) -> StoreSize:
        """What the tables take."""
        return await self.run(partial(postgres_upkeep.size, tenant=self._tenant))

    async def vacuum(self) -> None:
        """Give back what is not used, however long that takes."""
        await self.run(postgres_upkeep.vacuum, hurried=False)

    def close(self) -> None:
        """Let go of all connections."""
        while self._pools:
            self._pools.popitem()[1].close()

    def _new_pool(self, loop: asyncio.AbstractEventLoop) -> Pool:
        for other in [other for other in self._pools if other.is_closed()]:
            self._pools.pop(other).close()
        pool = Pool(self._settings, self._place, size=self._connections, patience=self._patience)
        self._pools[loop] = pool
        return pool

    async def _sweep(self, session_id: str) -> None:
        """What was taken out is out; that it also leaves the disk is tried, and told if it fails."""
        try:
            await self.run(sweep)
        except StoreError as error:
            _log.warning("what was erased in session %r is still on the disk as a dead row: %s", session_id, error)

    # -- work that may be done twice -----------------------------------------------------------------------------------

    async def _take(self, session_id: str, grip: str, connection: AsyncConnection, *, take_over: bool) -> Held:
        dead: list[str] = []
        for _ in range(_TRIES):
            sent_at = self._clock.monotonic()
            taken = await self.statements.take(
                connection, session_id, grip, dead, self._clock.now(), take_over=take_over
            )
            if taken:
                fence, head, shared = taken
                return Held(Lease(session_id, fence), grip, head, sent_at, is_fork=shared > 0)
            dead = _dead_holder(session_id, await self.statements.find(connection, session_id))
        raise SessionBusy(f"session {session_id!r} changes hands all the time: try again")

    async def _delete(self, session_id: str, connection: AsyncConnection) -> bool:
        dead: list[str] = []
        for _ in range(_TRIES):
            is_gone = await self._erasure.forget(connection, session_id, dead)
            if is_gone is not None:
                return is_gone
            dead = _dead_holder(session_id, await self.statements.find(connection, session_id))
        raise SessionBusy(f"session {session_id!r} changes hands all the time: try again")

    async def _append(self, held: Held, rows: Sequence[Row], connection: AsyncConnection, *, sync: bool) -> None:
        faults.point("store.append.before_commit")
        sent_at = self._clock.monotonic()
        if not await self.statements.append(connection, held, rows, sync=sync):
            rows, sync = await self._settle(connection, held, rows, sync=sync)
        held.note_stored(rows, sync=sync, sent_at=sent_at)

    async def _settle(
        self, connection: AsyncConnection, held: Held, rows: Sequence[Row], *, sync: bool
    ) -> tuple[Sequence[Row], bool]:
        """Rows that did not fit are there already, or else it is said why they do not fit.

        Gives the rows that are stored now, and whether they are on disk.
        """
        lease, first, last = held.lease, rows[0].seq, rows[-1].seq
        found = await self.statements.find(connection, lease.session_id)
        if found is None or (found.fence, found.holder) != (lease.fence, held.grip):
            held.is_lost = True
            raise fenced(lease)
        if found.head < held.head:
            return await self._put_back(connection, held, found, rows)
        names = await self.statements.names(connection, lease, first, last)
        if names != [(row.seq, row.id) for row in rows] or not all(row.id for row in rows):
            if found.head == first - 1:
                raise Conflict(
                    f"session {lease.session_id!r} already holds one of these entries, elsewhere in the log: read it "
                    "again, and leave that one out"
                )
            raise Conflict(
                f"session {lease.session_id!r} ends at entry {found.head}, and entries from {first} on were to be "
                "added: read it again, and go on from its end"
            )
        if sync:  # they may have been written without
            await self.statements.sync(connection, held)
        return rows, sync

    async def _redact(self, held: Held, row: Row, connection: AsyncConnection) -> None:
        if held.unsynced:  # or else a server that crashes now would get the old entry from us once more
            await self._append(held, [*held.unsynced], connection, sync=True)
        lease, sent_at = held.lease, self._clock.monotonic()
        is_replaced = await self._erasure.redact(connection, held, row)
        if is_replaced is None:
            held.is_lost = True
            raise fenced(lease)
        if not is_replaced:
            raise Conflict(
                f"session {lease.session_id!r} has no entry numbered {row.seq}: read it again, and redact one it has"
            )
        held.note_synced(sent_at=sent_at)

    async def _put_back(
        self, connection: AsyncConnection, held: Held, found: Found, rows: Sequence[Row]
    ) -> tuple[Sequence[Row], bool]:
        """The server has lost entries that it had acknowledged. What came after the last barrier is stored again."""
        rows = [*[row for row in held.unsynced if found.head < row.seq < rows[0].seq], *rows]
        fits = rows[0].seq == found.head + 1 and follow_one_another(rows)
        if fits and await self.statements.append(connection, held, rows, sync=True):
            return rows, True
        held.is_lost = True
        raise Fenced(
            f"session {held.lease.session_id!r} ends at entry {found.head}, but entry {held.head} was stored and "
            "acknowledged: the database was set back, or a standby took over that had not received it. Stop, look what "
            "became of the last entries, and open the session again"
        )


def _dead_holder(session_id: str, found: Found | None) -> list[str]:
    """Who holds a session and is known to have died; nobody, if nobody holds it. Raises `SessionBusy` otherwise."""
    if found is None or found.holder is None:
        return []
    holder = parse_holder(found.holder)
    if holder is not None and holder.has_ended:
        return [found.holder]
    raise SessionBusy(
        f"session {session_id!r} is being driven by {holder or 'somebody else'}: end that run, or open another session"
    )
