"""`PostgresStore`: sessions in a PostgreSQL database, which many machines may share.

Each change is one statement, and so one transaction that needs nothing of the client once it is sent: a driver that is
paused in the middle of it blocks no other. Each can be repeated: when a connection breaks before the response arrives,
it is sent again, and has no effect if it was done before.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar, Unpack

from perdure._core.log.store import (
    Hit,
    InterruptedSession,
    Lease,
    Post,
    SearchOptions,
    SessionInfo,
    SessionPlace,
    StoreSize,
    restart_until_completed,
)
from perdure._core.values import faults
from perdure._core.values.clock import SYSTEM_CLOCK, Clock
from perdure._core.values.error import ConfigError, Conflict, StoreError, UnsupportedByStore
from perdure._core.values.event import Entry
from perdure._stores.checks import check_count, check_page, check_post, check_session_id, validate_search
from perdure._stores.texts import has_large_content

from .rows import EntryRow, encode_row, has_consecutive_numbers
from .url import build_driver_missing_error, check_driver, redact_url, validate_url

if TYPE_CHECKING:
    from .operations import PostgresOperations

LEASE_SECONDS: Final = 15.0
"""The time after which a session whose driver does not renew its lease is free."""
PATIENCE_SECONDS: Final = 30.0
"""The time that a call waits for an unreachable server."""
CONNECTIONS: Final = 8
"""The maximum number of connections of one event loop."""

T = TypeVar("T")

_log = logging.getLogger("perdure.stores")


class PostgresStore:
    """A store that keeps sessions in a PostgreSQL database, which several machines may share. It can be searched.

    A `Store`, `SearchableStore` and `MaintainableStore`. Needs `pip install 'perdure[postgres]'`.

    `tenant` is a prefix of every session's key: tenants do not see one another's sessions. Each event loop has up to
    `connections` connections. A driver that does not renew its lease loses its session after `lease_seconds`, and stops
    by itself after two thirds of them. While the server is unreachable, a call waits for it up to `patience_seconds`,
    and raises `StoreError` then. The tables may belong to the role of the address, the owner of the database or a
    superuser; `owner` names another role that is trusted with them.
    """

    def __init__(
        self,
        address: str,
        *,
        tenant: str = "",
        connections: int = CONNECTIONS,
        lease_seconds: float = LEASE_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
        clock: Clock = SYSTEM_CLOCK,
        owner: str = "",
    ) -> None:
        self._address = validate_url(address)
        check_session_id(tenant, what="a tenant")
        check_session_id(owner, what="the role that owns the tables")
        check_driver()
        if type(connections) is not int or connections < 1:
            raise ConfigError(f"connections={connections!r} is not possible: pass a whole number from 1")
        if not (lease_seconds > 0 and patience_seconds > 0):
            raise ConfigError(f"{lease_seconds=!r} and {patience_seconds=!r} are not possible: pass seconds above 0")
        self._tenant = tenant
        self._connections = connections
        self._lease_seconds = lease_seconds
        self._patience_seconds = patience_seconds
        self._clock = clock
        self._owner = owner
        self._database: PostgresOperations | None = None

    @property
    def identity(self) -> str:
        """The identity of the database and the tenant, which approvals of tool calls are bound to."""
        return f"{redact_url(self._address)}#{self._tenant}"

    def locate_session(self, session_id: str) -> SessionPlace:
        """Return the key of a session, which all store objects for this database and tenant share."""
        return ("postgres", self._address, self._tenant), session_id

    def __repr__(self) -> str:
        tenant = f", tenant={self._tenant!r}" if self._tenant else ""
        return f"PostgresStore({redact_url(self._address)!r}{tenant})"

    async def acquire(self, session_id: str, *, take_over: bool = False) -> Lease:
        """Acquire the lease of a session (the exclusive right to append to its log); create the session if it is new.

        A lease that has expired, or whose process has died on this machine, is taken over, and with `take_over` any
        lease. Raises `SessionBusy` naming the process that drives the session.
        """
        check_session_id(session_id)
        database = self._get_database()
        grip = database.new_holder_json()
        held, cancelled = await restart_until_completed(lambda: database.acquire(session_id, grip, take_over=take_over))
        if cancelled:
            await restart_until_completed(lambda: self.release(held.lease))
            raise asyncio.CancelledError
        return held.lease

    async def release(self, lease: Lease) -> None:
        """Release a lease; one that was lost already is not an error."""
        database = self._database
        held = database.leases.remove(lease) if database else None
        if database and held:
            await _finish_before_cancel(lambda: database.release([held]))

    async def holds(self, lease: Lease) -> bool:
        """Return True if the lease is still valid: neither released, nor expired, nor taken over by any process."""
        return await self._get_database().holds(lease)

    async def append(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> None:
        """Append entries to a session's log, all or none; their numbers must follow its last entry."""
        if not entries:
            return
        database = self._get_database()
        held = database.leases.get_valid(lease)
        rows = await asyncio.to_thread(_encode_all, entries) if has_large_content(entries) else _encode_all(entries)
        if not has_consecutive_numbers(rows):
            raise Conflict(
                f"entries for session {lease.session_id!r} must be numbered one by one, from {rows[0].seq} on"
            )
        await _finish_before_cancel(lambda: database.append(held, rows, sync=sync))
        faults.fault_point("store.append.after_commit")

    async def read(self, session_id: str, *, after: int = 0) -> list[Entry]:
        """Return the entries numbered above `after`, in order; an empty list if there is no such session."""
        check_session_id(session_id)
        check_count("after", after)
        database = self._get_database()
        return await database.run(lambda connection: database.statements.read(connection, session_id, after))

    async def info(self, session_id: str) -> SessionInfo | None:
        """Return title, times and entry count of a session; `None` if it does not exist or has no entries."""
        check_session_id(session_id)
        database = self._get_database()
        return await database.run(lambda connection: database.statements.info(connection, session_id))

    async def post(self, session_id: str, post: Post) -> bool:
        """Store a post (a message to a session) until the process that runs the session takes it. Return False if a
        post with this id was stored before.

        When the connection breaks, it is sent again and still counts as new, unless a driver has taken it and released
        the session in that very moment: then it cannot be recognized, and the result is False.
        """
        check_session_id(session_id)
        check_post(post)
        database = self._get_database()
        token = database.new_token()
        return await _finish_before_cancel(lambda: database.post(session_id, post, token))

    async def posts(self, session_id: str) -> list[Post]:
        """Return the posts (messages to a session) that the process running it has not taken yet, oldest first."""
        check_session_id(session_id)
        database = self._get_database()
        return await database.run(lambda connection: database.mailbox.read_pending(connection, session_id))

    async def fork(self, session_id: str, new_id: str, *, at: int | None = None) -> None:
        """Create a session that starts with the first `at` entries of another (by default all of them)."""
        check_session_id(session_id)
        check_session_id(new_id)
        database = self._get_database()
        token = database.new_token()
        await _finish_before_cancel(lambda: database.fork(session_id, new_id, at, token))

    async def redact(self, lease: Lease, entry: Entry) -> None:
        """Replace the entry that has the same number as `entry`, also in all sessions that share it.

        No query finds the old one from then on. Its dead row is removed from the table by a `VACUUM` that follows at
        once, if this user may do that and no older transaction is open. Other copies are up to the database's
        administrator: the write-ahead log until it is recycled, replicas and backups, unused space of a page until it
        is overwritten (`VACUUM FULL` leaves none), and single terms in the search index until `vacuum` rebuilds it.
        """
        database = self._get_database()
        held, row = database.leases.get_valid(lease), encode_row(entry)
        await _finish_before_cancel(lambda: database.redact(held, row))

    async def delete(self, session_id: str) -> None:
        """Delete a session; a missing one is not an error. Raises `SessionBusy` while a process runs it.

        Entries that its forks need are kept, without an id, until the last fork is deleted. For bytes on the disk, the
        same applies as for `redact`.
        """
        check_session_id(session_id)
        database = self._get_database()
        await _finish_before_cancel(lambda: database.delete(session_id))

    async def search(self, query: str, **narrowed: Unpack[SearchOptions]) -> list[Hit]:
        """Search the text of users, models and tools, the best hits first; everything that was appended is found.

        A search term is a sequence of letters and digits. With `syntax="query"` the query is parsed by PostgreSQL's
        `websearch_to_tsquery`: `"exact phrase"`, `or`, `-without`. Entries that forks share are found once, in the
        session that owns them. Of a text with more different terms than PostgreSQL can index, about a megabyte of them,
        the first half is indexed.
        """
        question = validate_search(query, narrowed)
        return await self._get_database().search(question)

    async def size(self) -> StoreSize:
        """Return how many bytes the tables take for all tenants together, and the size of each session of this tenant.

        `free_bytes` is an estimate from the server's counts of dead rows.
        """
        return await self._get_database().size()

    async def vacuum(self) -> None:
        """Remove dead rows, whose space is reused, and rebuild the search index. Other calls are not blocked.

        Tables do not shrink by that: `VACUUM FULL` shrinks them, and locks them meanwhile.
        """
        await self._get_database().vacuum()

    async def backup(self, path: str) -> None:
        """Raise `UnsupportedByStore`: use `pg_dump`, or the backups of the server."""
        raise UnsupportedByStore(
            f"a database cannot be written to {path!r} by one of its users: use pg_dump --schema=perdure, "
            "or the backups of your server"
        )

    async def aclose(self) -> None:
        """Release all leases and close the connections. The next use opens new ones."""
        database, self._database = self._database, None
        if database is None or database.is_inherited:
            return
        held = database.leases.remove_all()
        try:
            await _finish_before_cancel(lambda: database.release(held))
        except StoreError as error:
            _log.warning("%d leases were not given back, and end by themselves: %s", len(held), error)
        finally:
            database.close()

    async def list_interrupted(
        self, *, prefix: str = "", include_posts: bool = False, now: float | None = None
    ) -> list[InterruptedSession]:
        """Return the sessions whose last run can continue and that no living process drives, the longest idle first.

        One query on an index of the sessions whose run is not over. A process that has died on another machine counts
        as living until its lease ends.
        """
        check_session_id(prefix, what="a prefix")
        database, at = self._get_database(), self._clock.now() if now is None else now
        return await database.run(
            lambda connection: database.statements.read_interrupted(connection, prefix, at, include_posts=include_posts)
        )

    async def list(self, *, prefix: str = "", limit: int = 50, offset: int = 0) -> list[SessionInfo]:
        """Return a page of non-empty sessions whose id begins with `prefix`, the most recently used first."""
        check_page(prefix, limit, offset)
        database = self._get_database()
        return await database.run(lambda connection: database.statements.list(connection, prefix, limit, offset))

    def _get_database(self) -> "PostgresOperations":
        database = self._database
        if database is None:
            try:
                from .operations import PostgresOperations
            except ImportError as error:
                raise build_driver_missing_error() from error
            database = self._database = PostgresOperations(
                self._address,
                redact_url(self._address),
                self._tenant,
                connections=self._connections,
                lease=self._lease_seconds,
                patience=self._patience_seconds,
                clock=self._clock,
                owner=self._owner,
            )
        return database


async def _finish_before_cancel(work: Callable[[], Awaitable[T]]) -> T:
    """Await work that must be finished, and raise a cancellation only afterwards."""
    result, cancelled = await restart_until_completed(work)
    if cancelled:
        raise asyncio.CancelledError
    return result


def _encode_all(entries: Sequence[Entry]) -> list[EntryRow]:
    return [encode_row(entry) for entry in entries]
