"""Connection pool to a PostgreSQL database, one for each event loop, and the translation of the driver's errors."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor, errors
from psycopg.conninfo import conninfo_to_dict

from perdure._core.values.error import ConfigError, Conflict, StoreError

from .schema import create_schema, has_current_schema
from .url import URL_FORM

# By SQLSTATE: what may be over soon, whatever ended it.
_PASSING: Final = frozenset(
    {
        "25006",  # read only: a standby, or a primary that is being replaced
        "25P03",  # idle in a transaction for too long: we were paused
        "40001",  # could not be put in order with another transaction
        "40P01",  # a deadlock
        "53300",  # too many connections
        "55P03",  # a lock was not to be had in time
        "57014",  # cancelled, by an administrator or a timeout
        "57P01",  # the server is being shut down
        "57P02",  # the server crashed
        "57P03",  # the server is starting
        "57P05",  # idle for too long
    }
)
_CONNECTION: Final = "08"

# A server that refuses a connection reports it as text only, before there is a connection that could have an SQLSTATE.
_REFUSALS: Final = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "does not exist",
    "permission denied",
    "is not permitted to log in",
    "server does not support SSL",
)

_ADVICE: Final[dict[type[psycopg.Error], str]] = {
    errors.DiskFull: "its disk is full, and nothing of this was stored: make room, then go on",
    errors.InsufficientPrivilege: "this user may not do that: grant it the schema 'perdure' with its tables",
    errors.DuplicateTable: "its schema 'perdure' holds tables that are not ours: choose another database",
    errors.UndefinedTable: "its tables are gone: restore a backup, or open the store again to begin anew",
    errors.InvalidSchemaName: "its tables are gone: restore a backup, or open the store again to begin anew",
    errors.UndefinedColumn: "a newer version has brought its tables up to date: upgrade perdure, and start again",
    errors.UndefinedFunction: "a newer version has brought its tables up to date: upgrade perdure, and start again",
    errors.ProgramLimitExceeded: "an entry is larger than PostgreSQL can hold: keep such data elsewhere",
}


# What a setting of the role, or of the database, forbids for as long as it is there.
_SETTINGS: Final = {
    "25006": "the role may be set to only read (default_transaction_read_only); if not, see",
    "57014": "the role may have a statement_timeout that is too short; if not, see",
}


def is_transient(error: psycopg.Error) -> bool:
    """Return True if a database error is transient: a retry on another connection may succeed."""
    state = error.sqlstate
    if state is not None:
        return state.startswith(_CONNECTION) or state in _PASSING
    return isinstance(error, psycopg.OperationalError) and not any(words in str(error) for words in _REFUSALS)


def to_store_error(error: psycopg.Error, place: str) -> StoreError:
    """Build a `StoreError` with advice from a database error that is not transient, so that a retry would not help."""
    if isinstance(error, errors.UniqueViolation):
        return Conflict(f"the store {place!r} already holds one of these entries, elsewhere in the log: read it again")
    if error.sqlstate is None and isinstance(error, psycopg.OperationalError):
        return StoreError(
            f"the store {place!r} does not let us in ({format_error_line(error)}): check user, password and database"
        )
    advice = next(
        (advice for kind, advice in _ADVICE.items() if isinstance(error, kind)), "unexpected error; please report it"
    )
    return StoreError(f"the store {place!r} failed: {advice} ({type(error).__name__}: {format_error_line(error)})")


def build_unreachable_error(error: psycopg.Error, place: str, seconds: float) -> StoreError:
    """Build the `StoreError` that says that the server could not be reached for this many seconds."""
    return StoreError(
        f"the store {place!r} could not be used for {seconds:g} s "
        f"({type(error).__name__}: {format_error_line(error)}): {_SETTINGS.get(error.sqlstate or '', 'see')} "
        "that the server runs and can be reached, then try again"
    )


def format_error_line(error: psycopg.Error) -> str:
    """Return the message of a database error on one line."""
    return " ".join(str(error).split())


T = TypeVar("T")
Settings: TypeAlias = dict[str, Any]
"""Connection parameters, by libpq's names."""

CONNECT_SECONDS: Final = 10
"""The time limit of one attempt to connect; another may follow."""

_PAUSES: Final = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Seconds between attempts; the last one is repeated."""

# What the address does not say. A peer that has silently gone is noticed by the system after some twenty seconds.
_DEFAULTS: Final[Settings] = {
    "connect_timeout": CONNECT_SECONDS,
    "fallback_application_name": "perdure",
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "client_encoding": "UTF8",
}


def parse_connection_settings(address: str, place: str) -> Settings:
    """Parse a PostgreSQL URL into connection parameters. Raises `ConfigError` if it is invalid.

    `place` is the URL without secrets, for the error message.
    """
    try:
        return {**_DEFAULTS, **conninfo_to_dict(address)}
    except psycopg.ProgrammingError:  # its text, and so the whole chain, may contain the password
        raise ConfigError(f"PostgreSQL does not understand the address {place!r}: write '{URL_FORM}'") from None


class ConnectionPool:
    """Up to `size` connections to a PostgreSQL database, used by the event loop on which the pool is created."""

    def __init__(self, settings: Settings, place: str, *, size: int, patience: float, owner: str = "") -> None:
        self._settings = settings
        self._place = place
        self._owner = owner
        self._size = size
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(size)
        self._idle: list[AsyncConnection] = []
        self._is_ready = False
        self._is_closed = False

    async def run(
        self,
        work: Callable[[AsyncConnection], Awaitable[T]],
        *,
        patience: float | None = None,
        has_deadline: bool = True,
    ) -> T:
        """Run a function with a connection from the pool; if the connection breaks, run it again with another one.

        While the server is unreachable it is retried, until `patience` seconds have passed; then work with
        `has_deadline` is aborted as well. Raises `StoreError`.
        """
        patience = self._patience if patience is None else patience
        deadline = self._loop.time() + patience
        attempt = 0
        while True:
            try:
                return await self._attempt(work, deadline, has_deadline=has_deadline)
            except psycopg.Error as error:
                pause = _PAUSES[min(attempt, len(_PAUSES) - 1)]
                if not is_transient(error):
                    raise to_store_error(error, self._place) from error
                if self._loop.time() + pause >= deadline:
                    raise build_unreachable_error(error, self._place, patience) from error
            attempt += 1
            await asyncio.sleep(pause)

    def close(self) -> None:
        """Close the connections: idle ones now, others when they are no longer in use. Callable from any thread."""
        self._is_closed = True
        while self._idle:
            _close(self._idle.pop())

    async def _attempt(
        self, work: Callable[[AsyncConnection], Awaitable[T]], deadline: float, *, has_deadline: bool
    ) -> T:
        await self._wait_for_slot(deadline)
        try:
            connection = await self._connection(deadline)
            cut_off = self._loop.call_at(deadline, partial(_abort_call, connection))
            try:
                if not self._is_ready and not await has_current_schema(connection, self._place, self._owner):
                    cut_off.cancel()  # it takes as long as it takes: when it is broken off, it begins anew
                    await create_schema(connection, self._place, self._owner)
                self._is_ready = True
                if not has_deadline:
                    cut_off.cancel()
                return await work(connection)
            finally:
                cut_off.cancel()
                self._return_connection(connection)
        finally:
            self._slots.release()

    async def _wait_for_slot(self, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await self._slots.acquire()
        except TimeoutError:
            raise StoreError(
                f"all {self._size} connections to {self._place!r} stayed in use: make the store with more of them, "
                "or do less at once"
            ) from None

    async def _connection(self, deadline: float) -> AsyncConnection:
        if self._idle:
            return self._idle.pop()
        try:
            async with asyncio.timeout_at(deadline):
                return await AsyncConnection.connect(
                    **self._settings,
                    autocommit=True,
                    prepare_threshold=None,  # a prepared statement stays with a connection that a pooler may exchange
                    cursor_factory=AsyncRawCursor,
                )
        except TimeoutError as error:
            raise psycopg.OperationalError("no connection was made in time") from error

    def _return_connection(self, connection: AsyncConnection) -> None:
        """Keep a connection for reuse. If it is broken, close the idle ones too: they broke with it."""
        if connection.closed:
            while self._idle:
                _close(self._idle.pop())
        elif self._is_closed or connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            _close(connection)
        else:
            self._idle.append(connection)


def _close(connection: AsyncConnection) -> None:
    """Close a connection from outside its event loop."""
    connection.pgconn.finish()


def _abort_call(connection: AsyncConnection) -> None:
    """Abort a call that hangs, by shutting down its socket: it then fails as if the connection was lost."""
    with contextlib.suppress(OSError, psycopg.Error), _socket_of(connection) as line:
        line.shutdown(socket.SHUT_RDWR)


def _socket_of(connection: AsyncConnection) -> socket.socket:
    return socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM)
