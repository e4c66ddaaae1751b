"""Connection pool to a PostgreSQL database, one for each event loop. Broken connections are replaced.

There are few of them, opened when needed, and opened again when they break: a call waits for the server, up to a
deadline. No state on the server outlives a transaction, so a transaction pooler may be in between.
"""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor
from psycopg.conninfo import conninfo_to_dict

from perdure.core.error import ConfigError, StoreError

from .database_url import URL_FORM
from .errors import build_unreachable_error, is_transient, to_store_error
from .schema_setup import create_schema, has_current_schema

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
