"""Operations of a PostgreSQL store (append, read, fork, delete), on the connections and leases of this process.

Statements are repeated when a connection breaks.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import msgspec
from psycopg import AsyncConnection

from perdure._core.log.store import Hit, Lease, Post, StoreSize
from perdure._core.values import faults
from perdure._core.values.clock import Clock, new_id
from perdure._core.values.error import Conflict, Fenced, SessionBusy, SessionExists, SessionNotFound, StoreError
from perdure._stores.checks import SearchRequest, check_fork
from perdure._stores.lease_holder import describe_this_process, parse_holder

from . import erasure as postgres_upkeep
from .erasure import EraseStatements, ForkResult, TenantForkRequest, create_fork, vacuum_dead_rows
from .leases import ActiveLease, LeaseHolderWithToken, LeaseRenewer, build_fenced_error
from .pool import ConnectionPool, parse_connection_settings
from .rows import EntryRow, has_consecutive_numbers
from .statements import MailboxStatements, SessionState, SessionStatements, parse_search_query, search_entries

T = TypeVar("T")

UNSYNCED_BYTES: Final = 8 * 1024 * 1024
"""When this much was stored since the last sync, the next append syncs: the store keeps it in memory until then."""

_TRIES: Final = 5
"""The maximum number of attempts when the holder of a session changes between two statements."""

_LARGEST: Final = 2**63 - 1

_log = logging.getLogger("perdure.stores")


class PostgresOperations:
    """The connections, leases and operations of a PostgreSQL store in one process. `PostgresStore` creates it at first
    use.
    """

    def __init__(
        self,
        address: str,
        place: str,
        tenant: str,
        *,
        connections: int,
        lease: float,
        patience: float,
        clock: Clock,
        owner: str = "",
    ) -> None:
        self._owner = owner
        self._settings = parse_connection_settings(address, place)
        self._place = place
        self._connections = connections
        self._lease = lease
        self._patience = patience
        self._clock = clock
        self._process = os.getpid()
        self._pools: dict[asyncio.AbstractEventLoop, ConnectionPool] = {}
        self._tenant = tenant
        self._erasure = EraseStatements(tenant, lease)
        self.statements = SessionStatements(tenant, lease)
        self.mailbox = MailboxStatements(tenant)
        self.leases = LeaseRenewer(self._settings, tenant, lease, clock)

    @property
    def is_inherited(self) -> bool:
        """True in a forked child of the process that created the object, which must not be used there."""
        return self._process != os.getpid()

    async def run(
        self,
        work: Callable[[AsyncConnection], Awaitable[T]],
        *,
        patience: float | None = None,
        has_deadline: bool = True,
    ) -> T:
        """Run a function with a connection of the current event loop. It may run twice, if the connection breaks."""
        if self.is_inherited:
            raise StoreError(
                f"the store {self._place!r} was opened by process {self._process}, of which this one, {os.getpid()}, "
                "is a fork: make a new store object here"
            )
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop) or self._new_pool(loop)
        return await pool.run(work, patience=patience, has_deadline=has_deadline)

    def new_holder_json(self) -> str:
        """Return the JSON that marks this process as the lease holder of a session, with a unique token."""
        holder = msgspec.structs.asdict(describe_this_process(self._clock.now()))
        return msgspec.json.encode(LeaseHolderWithToken(**holder, token=new_id())).decode()

    def new_token(self) -> str:
        """Return a unique token, which lets a repeated statement detect that it has been executed already."""
        return new_id()

    async def acquire(self, session_id: str, grip: str, *, take_over: bool) -> ActiveLease:
        """Acquire the lease of a session, created if new. Raises `SessionBusy` if a process runs it, unless
        `take_over` is set.
        """
        try:
            held = await self.run(partial(self._try_acquire, session_id, grip, take_over=take_over))
        except SessionBusy:
            raise
        except StoreError:  # its answer may be lost
            self.leases.add_unreleased(session_id, grip)
            raise
        self.leases.forget_unreleased(session_id)
        self.leases.add(held)
        return held

    async def release(self, held: Sequence[ActiveLease]) -> None:
        """Release leases. A failure is retried only briefly, since leases expire by themselves, and this process may
        take them again before.
        """
        if not held:
            return
        try:
            await self.run(partial(self.statements.release, held=held), patience=min(self._patience, self._lease / 3))
        except StoreError:
            for each in held:
                self.leases.add_unreleased(each.lease.session_id, each.grip)
            raise

    async def holds(self, lease: Lease) -> bool:
        """Return True if a lease of this process is still valid, by its own clock and by the database."""
        try:
            held = self.leases.get_valid(lease)
        except Fenced:
            return False
        return await self.run(partial(self.statements.holds, held=held))

    async def append(self, held: ActiveLease, rows: Sequence[EntryRow], *, sync: bool) -> None:
        """Append rows to a session's log, all or none. Raises `Conflict` or `Fenced`."""
        sync = sync or held.unsynced_bytes >= UNSYNCED_BYTES
        await self.run(partial(self._append, held, rows, sync=sync))

    async def post(self, session_id: str, post: Post, token: str) -> bool:
        """Store a post (a message to a session). By the unique `token`, a repeated call finds its own post."""
        return await self.run(partial(self.mailbox.add, session_id=session_id, post=post, token=token))

    async def fork(self, session_id: str, new_id: str, at: int | None, token: str) -> None:
        """Create a fork. Raises `SessionNotFound`, `SessionExists` or `ConfigError`."""
        fits = at is None or (type(at) is int and 0 < at <= _LARGEST)
        wanted = TenantForkRequest(self._tenant, session_id, new_id, at if fits else 0, token, self._clock.now())
        head, is_made = await self.run(partial(self._fork, wanted))
        if is_made:
            return
        if not head:
            raise SessionNotFound(f"there is no session {session_id!r} to fork: list() shows which there are")
        check_fork(session_id, at, head)
        raise SessionExists(f"there is a session {new_id!r} already: fork {session_id!r} to another id")

    async def redact(self, held: ActiveLease, row: EntryRow) -> None:
        """Replace the row of an entry in a session's log. Raises `Conflict` or `Fenced`."""
        await self.run(partial(self._redact, held, row))
        await self._vacuum_dead_rows(held.lease.session_id)

    async def delete(self, session_id: str) -> None:
        """Delete a session; a missing one is not an error. Raises `SessionBusy` while a process runs it."""
        if await self.run(partial(self._delete, session_id)):
            await self._vacuum_dead_rows(session_id)

    async def search(self, asked: SearchRequest) -> list[Hit]:
        """Search the entries of the tenant, the best hits first. Raises `ConfigError` for a query without terms."""
        query = parse_search_query(asked)
        if not query.text:
            return []
        return await self.run(lambda connection: search_entries(connection, self._tenant, asked, query))

    async def size(self) -> StoreSize:
        """Return how many bytes the tables take, and the size of each session of the tenant."""
        return await self.run(partial(postgres_upkeep.measure_sizes, tenant=self._tenant))

    async def vacuum(self) -> None:
        """Remove dead rows and rebuild the search index, without a time limit."""
        await self.run(postgres_upkeep.vacuum_tables, has_deadline=False)

    def close(self) -> None:
        """Close all connections."""
        while self._pools:
            self._pools.popitem()[1].close()

    def _new_pool(self, loop: asyncio.AbstractEventLoop) -> ConnectionPool:
        for other in [other for other in self._pools if other.is_closed()]:
            self._pools.pop(other).close()
        pool = ConnectionPool(
            self._settings, self._place, size=self._connections, patience=self._patience, owner=self._owner
        )
        self._pools[loop] = pool
        return pool

    async def _vacuum_dead_rows(self, session_id: str) -> None:
        """Vacuum redacted rows from the disk; log a warning if that fails, since they can no longer be read anyway."""
        try:
            await self.run(vacuum_dead_rows)
        except StoreError as error:
            _log.warning("what was erased in session %r is still on the disk as a dead row: %s", session_id, error)

    # -- work that may be done twice -----------------------------------------------------------------------------------

    async def _try_acquire(
        self, session_id: str, grip: str, connection: AsyncConnection, *, take_over: bool
    ) -> ActiveLease:
        dead = [*self.leases.find_unreleased(session_id)]
        for _ in range(_TRIES):
            sent_at = self._clock.monotonic()
            taken = await self.statements.acquire(
                connection, session_id, grip, dead, self._clock.now(), take_over=take_over
            )
            if taken:
                fence, head, shared = taken
                return ActiveLease(Lease(session_id, fence), grip, head, sent_at, is_fork=shared > 0)
            dead = _find_dead_holder(session_id, await self.statements.find(connection, session_id))
        raise SessionBusy(f"session {session_id!r} changes hands all the time: try again")

    async def _fork(self, wanted: TenantForkRequest, connection: AsyncConnection) -> ForkResult:
        result = await create_fork(connection, wanted)
        if result.is_made or not result.head:
            return result
        found = await self.statements.find(connection, wanted.new_id)
        holder = None if found is None or found.head or found.holder is None else parse_holder(found.holder)
        if found is None or holder is None or not holder.has_ended:
            return result
        return await create_fork(connection, wanted._replace(dead_holders=[str(found.holder)]))

    async def _delete(self, session_id: str, connection: AsyncConnection) -> bool:
        dead: list[str] = []
        for _ in range(_TRIES):
            is_gone = await self._erasure.delete(connection, session_id, dead)
            if is_gone is not None:
                return is_gone
            dead = _find_dead_holder(session_id, await self.statements.find(connection, session_id))
        raise SessionBusy(f"session {session_id!r} changes hands all the time: try again")

    async def _append(
        self, held: ActiveLease, rows: Sequence[EntryRow], connection: AsyncConnection, *, sync: bool
    ) -> None:
        faults.fault_point("store.append.before_commit")
        sent_at = self._clock.monotonic()
        if not await self.statements.append(connection, held, rows, sync=sync):
            rows, sync = await self._resolve_failed_append(connection, held, rows, sync=sync)
        held.record_stored(rows, sync=sync, sent_at=sent_at)

    async def _resolve_failed_append(
        self, connection: AsyncConnection, held: ActiveLease, rows: Sequence[EntryRow], *, sync: bool
    ) -> tuple[Sequence[EntryRow], bool]:
        """Handle rows that could not be appended: accept them if they are stored already, else raise the reason.

        Returns the rows that are stored now, and whether they are synced.
        """
        lease, first, last = held.lease, rows[0].seq, rows[-1].seq
        found = await self.statements.find(connection, lease.session_id)
        if found is None or (found.fence, found.holder) != (lease.fence, held.grip):
            held.is_lost = True
            raise build_fenced_error(lease)
        if found.head < held.head:
            return await self._restore_lost_rows(connection, held, found, rows)
        names = await self.statements.read_ids(connection, lease, first, last)
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

    async def _redact(self, held: ActiveLease, row: EntryRow, connection: AsyncConnection) -> None:
        if held.unsynced:  # or else a server that crashes now would get the old entry from us once more
            await self._append(held, [*held.unsynced], connection, sync=True)
        lease, sent_at = held.lease, self._clock.monotonic()
        is_replaced = await self._erasure.redact(connection, held, row)
        if is_replaced is None:
            held.is_lost = True
            raise build_fenced_error(lease)
        if not is_replaced:
            raise Conflict(
                f"session {lease.session_id!r} has no entry numbered {row.seq}: read it again, and redact one it has"
            )
        held.record_synced(sent_at=sent_at)

    async def _restore_lost_rows(
        self, connection: AsyncConnection, held: ActiveLease, found: SessionState, rows: Sequence[EntryRow]
    ) -> tuple[Sequence[EntryRow], bool]:
        """Store entries again that the server acknowledged after the last sync, and then lost."""
        rows = [*[row for row in held.unsynced if found.head < row.seq < rows[0].seq], *rows]
        fits = rows[0].seq == found.head + 1 and has_consecutive_numbers(rows)
        if fits and await self.statements.append(connection, held, rows, sync=True):
            return rows, True
        held.is_lost = True
        raise Fenced(
            f"session {held.lease.session_id!r} ends at entry {found.head}, but entry {held.head} was stored and "
            "acknowledged: the database was set back, or a standby took over that had not received it. Stop, look what "
            "became of the last entries, and open the session again"
        )


def _find_dead_holder(session_id: str, found: SessionState | None) -> list[str]:
    """Return the holder of a session if its process is known to have died; nothing if it is free. Raises `SessionBusy`
    otherwise.
    """
    if found is None or found.holder is None:
        return []
    holder = parse_holder(found.holder)
    if holder is not None and holder.has_ended:
        return [found.holder]
    raise SessionBusy(
        f"session {session_id!r} is being driven by {holder or 'another process'}: end that run, or open another "
        "session"
    )
