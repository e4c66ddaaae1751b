"""Logs in a PostgreSQL database, which many machines may share. Above: `open_store`. Below: `database.py`.

Each change is one statement, and so one transaction that needs nothing of us once it is sent: a driver that is paused
in the middle of it keeps nobody waiting. Each can be repeated: when a connection breaks before the answer is there, it
is sent again, and what it finds done is not done twice.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar, Unpack

from perdure.core import faults
from perdure.core.clock import SYSTEM_CLOCK, Clock
from perdure.core.error import ConfigError, Conflict, StoreError, Unsupported
from perdure.core.event import Entry
from perdure.core.store import Hit, Lease, Narrowed, Post, SessionInfo, StoreSize, insisted
from perdure.stores.listing import check_count, check_page, check_session_id
from perdure.stores.refusal import check_post
from perdure.stores.search_query import asked

from .address import check_driver, checked_address, driver_missing, shown
from .row import follow_one_another, row_of

if TYPE_CHECKING:
    from .database import Database

LEASE_SECONDS: Final = 15.0
"""How long a session stays with a driver of whom nothing is heard."""
PATIENCE_SECONDS: Final = 30.0
"""How long a call waits for a server that is away."""
CONNECTIONS: Final = 8
"""The most connections of one event loop."""

T = TypeVar("T")

_log = logging.getLogger("perdure.stores")


class PostgresStore:
    """Keeps sessions in a database. A `Store`, `Searchable` and `Maintained`. Needs `pip install 'perdure[postgres]'`.

    `tenant` stands in front of every session's id: tenants do not see one another's sessions. Each event loop has up to
    `connections` of its own. A driver of whom nothing is heard loses its session after `lease_seconds`, and stops by
    itself after two thirds of them. While the server is away, a call waits for it up to `patience_seconds`, and raises
    `StoreError` then.
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
    ) -> None:
        self._address = checked_address(address)
        check_session_id(tenant, what="a tenant")
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
        self._database: Database | None = None

    def __repr__(self) -> str:
        tenant = f", tenant={self._tenant!r}" if self._tenant else ""
        return f"PostgresStore({shown(self._address)!r}{tenant})"

    async def acquire(self, session_id: str, *, take_over: bool = False) -> Lease:
        """The lease of a session, which is made if it is new.

        One whose lease has ended, or whose holder has died on this machine, is taken over, and with `take_over` any
        other one as well. Raises `SessionBusy` naming the process that holds it.
        """
        check_session_id(session_id)
        database = self._opened()
        grip = database.new_grip()
        held, cancelled = await insisted(lambda: database.take(session_id, grip, take_over=take_over))
        if cancelled:
            await insisted(lambda: self.release(held.lease))
            raise asyncio.CancelledError
        return held.lease

    async def release(self, lease: Lease) -> None:
        """Give the lease back; one that was lost already is not an error."""
        database = self._database
        held = database.leases.remove(lease) if database else None
        if database and held:
            await _to_the_end(lambda: database.give_back([held]))

    async def append(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> None:
        """Add entries, numbered from the log's end, all or none."""
        if not entries:
            return
        database = self._opened()
        held = database.leases.checked(lease)
        rows = [row_of(entry) for entry in entries]
        if not follow_one_another(rows):
            raise Conflict(
                f"entries for session {lease.session_id!r} must be numbered one by one, from {rows[0].seq} on"
            )
        await _to_the_end(lambda: database.append(held, rows, sync=sync))
        faults.point("store.append.after_commit")

    async def read(self, session_id: str, *, after: int = 0) -> list[Entry]:
        """The entries numbered above `after`, in order; none for a session that is not there."""
        check_session_id(session_id)
        check_count("after", after)
        database = self._opened()
        return await database.run(lambda connection: database.statements.read(connection, session_id, after))

    async def info(self, session_id: str) -> SessionInfo | None:
        """The line of one session in the list; `None` when there is none, or it holds nothing."""
        check_session_id(session_id)
        database = self._opened()
        return await database.run(lambda connection: database.statements.info(connection, session_id))

    async def post(self, session_id: str, post: Post) -> bool:
        """Keep a post until the session's driver takes it; `False` when one of this id was there already.

        When the connection breaks, it is sent again and still counts as new, unless a driver has taken it and gone in
        that very moment: then nobody can tell whose it was, and this is `False`.
        """
        check_session_id(session_id)
        check_post(post)
        database = self._opened()
        token = database.new_token()
        return await _to_the_end(lambda: database.post(session_id, post, token))

    async def posts(self, session_id: str) -> list[Post]:
        """The posts that nobody has taken, in the order in which they came."""
        check_session_id(session_id)
        database = self._opened()
        return await database.run(lambda connection: database.mailbox.posts(connection, session_id))

    async def fork(self, session_id: str, new_id: str, *, at: int | None = None) -> None:
        """Make a session that begins with the first `at` entries of another (all of them, when it is not said)."""
        check_session_id(session_id)
        check_session_id(new_id)
        database = self._opened()
        token = database.new_token()
        await _to_the_end(lambda: database.fork(session_id, new_id, at, token))

    async def redact(self, lease: Lease, entry: Entry) -> None:
        """Put `entry` in the place of the one with its number, here and in all sessions that share that one.

        No query finds the old one from then on. Its dead row leaves the table by a `VACUUM` that follows at once, if
        this user may do that and no older transaction is open. What PostgreSQL keeps elsewhere is its administrator's:
        the write-ahead log until it is recycled, replicas and backups, unused space of a page until it is written
        again (`VACUUM FULL` leaves none), and single words in the index of the search until `vacuum` builds it anew.
        """
        database = self._opened()
        held, row = database.leases.checked(lease), row_of(entry)
        await _to_the_end(lambda: database.redact(held, row))

    async def delete(self, session_id: str) -> None:
        """Forget a session; one that is not there is not an error. Raises `SessionBusy` while it is being driven.

        What its forks need stays, under no name, until the last of them is deleted. What `redact` says of bytes on the
        disk holds here too.
        """
        check_session_id(session_id)
        database = self._opened()
        await _to_the_end(lambda: database.delete(session_id))

    async def search(self, query: str, **narrowed: Unpack[Narrowed]) -> list[Hit]:
        """What people, models and tools have said, the best hits first; everything that was appended is found.

        A word is a run of letters and digits. With `syntax="query"` it is PostgreSQL's `websearch_to_tsquery`:
        `"words together"`, `or`, `-without`. What forks share is found once, in the session where it was said. Of a
        text with more different words than PostgreSQL can index, which is a megabyte of them, the first half is found.
        """
        question = asked(query, narrowed)
        return await self._opened().search(question)

    async def size(self) -> StoreSize:
        """What the tables take, with those of other tenants; `sessions` are this tenant's.

        `free_bytes` is an estimate by the server's own counts of dead rows.
        """
        return await self._opened().size()

    async def vacuum(self) -> None:
        """Remove dead rows, whose room is used again, and build the index of the search anew. Nobody has to wait.

        Tables do not shrink by that: `VACUUM FULL` makes them, and locks them meanwhile.
        """
        await self._opened().vacuum()

    async def backup(self, path: str) -> None:
        """Not from here: raises `Unsupported`."""
        raise Unsupported(
            f"a database cannot be written to {path!r} by one of its users: use pg_dump --schema=perdure, "
            "or the backups of your server"
        )

    async def aclose(self) -> None:
        """Give back the leases that are out, and let go of the connections. The next use makes new ones."""
        database, self._database = self._database, None
        if database is None or database.is_inherited:
            return
        held = database.leases.remove_all()
        try:
            await _to_the_end(lambda: database.give_back(held))
        except StoreError as error:
            _log.warning("%d leases were not given back, and end by themselves: %s", len(held), error)
        finally:
            database.close()

    async def list(self, *, prefix: str = "", limit: int = 50, offset: int = 0) -> list[SessionInfo]:
        """Sessions whose id begins with `prefix` and that hold something, the most recently used first."""
        check_page(prefix, limit, offset)
        database = self._opened()
        return await database.run(lambda connection: database.statements.list(connection, prefix, limit, offset))

    def _opened(self) -> "Database":
        database = self._database
        if database is None:
            try:
                from .database import Database
            except ImportError as error:
                raise driver_missing() from error
            database = self._database = Database(
                self._address,
                shown(self._address),
                self._tenant,
                connections=self._connections,
                lease=self._lease_seconds,
                patience=self._patience_seconds,
                clock=self._clock,
            )
        return database


async def _to_the_end(work: Callable[[], Awaitable[T]]) -> T:
    """Await what must not be left undone, and only then obey a cancel."""
    result, cancelled = await insisted(work)
    if cancelled:
        raise asyncio.CancelledError
    return result
