"""The connections of one event loop to a PostgreSQL database. Above: `store.py`. Below: psycopg and
`schema.py`.

There are few of them, they are made when they are needed, and made anew when they break: whoever needs one waits for
the server, up to a deadline. Nothing outlives a transaction on the server, so a pooler of transactions may stand
between us and it.
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

from .address import FORM
from .error import is_passing, store_error, unreachable
from .schema import bring_up_to_date, is_up_to_date

T = TypeVar("T")
Settings: TypeAlias = dict[str, Any]
"""How to connect, by libpq's own names."""

CONNECT_SECONDS: Final = 10
"""How long one attempt to connect may take; another may follow."""

_PAUSES: Final = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Seconds between attempts; the last one for all that follow."""

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


def settings_of(address: str, place: str) -> Settings:
    """How to connect to an address."""
    try:
        return {**_DEFAULTS, **conninfo_to_dict(address)}
    except psycopg.ProgrammingError:  # its text, and so the whole chain, may hold the password
        raise ConfigError(f"PostgreSQL does not understand the address {place!r}: write '{FORM}'") from None


class Pool:
    """Up to `size` connections. Belongs to the event loop on which it is made."""

    def __init__(self, settings: Settings, place: str, *, size: int, patience: float) -> None:
        self._settings = settings
        self._place = place
        self._size = size
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._turns = asyncio.Semaphore(size)
        self._idle: list[AsyncConnection] = []
        self._is_ready = False
        self._is_closed = False

    async def run(
        self, work: Callable[[AsyncConnection], Awaitable[T]], *, patience: float | None = None, hurried: bool = True
    ) -> T:
        """Do some work with a connection. It may be done twice, and must bear that.

        While the server is away we try again, until `patience` seconds have passed; then work that is `hurried` is
        broken off as well. Raises `StoreError`.
        """
        patience = self._patience if patience is None else patience
        deadline = self._loop.time() + patience
        attempt = 0
        while True:
            try:
                return await self._attempt(work, deadline, hurried=hurried)
            except psycopg.Error as error:
                pause = _PAUSES[min(attempt, len(_PAUSES) - 1)]
                if not is_passing(error):
                    raise store_error(error, self._place) from error
                if self._loop.time() + pause >= deadline:
                    raise unreachable(error, self._place, patience) from error
            attempt += 1
            await asyncio.sleep(pause)

    def close(self) -> None:
        """Let go of the connections: of idle ones now, of others when they are given back. From any thread."""
        self._is_closed = True
        while self._idle:
            _close(self._idle.pop())

    async def _attempt(self, work: Callable[[AsyncConnection], Awaitable[T]], deadline: float, *, hurried: bool) -> T:
        await self._turn(deadline)
        try:
            connection = await self._connection(deadline)
            cut_off = self._loop.call_at(deadline, partial(_cut, connection))
            try:
                if not self._is_ready and not await is_up_to_date(connection, self._place):
                    cut_off.cancel()  # it takes as long as it takes: when it is broken off, it begins anew
                    await bring_up_to_date(connection, self._place)
                self._is_ready = True
                if not hurried:
                    cut_off.cancel()
                return await work(connection)
            finally:
                cut_off.cancel()
                self._give_back(connection)
        finally:
            self._turns.release()

    async def _turn(self, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await self._turns.acquire()
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

    def _give_back(self, connection: AsyncConnection) -> None:
        """Keep a connection that is as good as new. One that broke takes the others along: they broke with it."""
        if connection.closed:
            while self._idle:
                _close(self._idle.pop())
        elif self._is_closed or connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            _close(connection)
        else:
            self._idle.append(connection)


def _close(connection: AsyncConnection) -> None:
    """As the connection's own `close`, where there is no event loop to do it."""
    connection.pgconn.finish()


def _cut(connection: AsyncConnection) -> None:
    """End a call that hangs. Whoever waits for the server finds the connection lost."""
    with contextlib.suppress(OSError, psycopg.Error), _line(connection) as line:
        line.shutdown(socket.SHUT_RDWR)


def _line(connection: AsyncConnection) -> socket.socket:
    return socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM)
