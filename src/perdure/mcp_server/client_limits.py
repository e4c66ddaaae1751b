"""Limits for each client of an MCP server: calls and HTTP requests per minute, and how many may be in progress."""

from collections.abc import Generator
from contextlib import contextmanager

from msgspec import Struct

from perdure.core import argument_checks
from perdure.core.clock_and_ids import Clock
from perdure.core.error import UsageError

SECONDS_PER_MINUTE = 60.0


class ClientLimits(Struct, frozen=True, kw_only=True):
    """Limits that apply to each client of an MCP server: calls, HTTP requests, sessions, and the size of a message."""

    calls_per_minute: int = 600
    """Tool calls within a minute; more are refused with an error that says when to try again."""
    calls_at_once: int = 32
    """Tool calls that are carried out or wait for their turn at the same time; more are refused."""
    requests_per_minute: int = 3_000
    """HTTP requests within a minute, of every kind; more get status 429."""
    requests_at_once: int = 64
    """HTTP requests and open streams at the same time; more get status 429."""
    sessions_at_once: int = 100
    """Open sessions of the protocol, for clients that begin with a handshake; one more gets status 503."""
    max_body_bytes: int = 4 * 1024 * 1024
    """The largest message: an HTTP body, or a line on stdio."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            argument_checks.require_int("ClientLimits", name, getattr(self, name), 1)


class TooManyCalls(UsageError):
    """Raised when a client of an MCP server has reached one of its limits."""


class RateLimiter:
    """Rate limiter (token bucket): allows `per_minute` uses at once, and then as many again per minute."""

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._left = float(per_minute)
        self._at = clock.monotonic()

    def take(self) -> float:
        """Use one token and return 0; if none is left, return the seconds until the next one."""
        now = self._clock.monotonic()
        per_second = self._per_minute / SECONDS_PER_MINUTE
        self._left = min(float(self._per_minute), self._left + (now - self._at) * per_second)
        self._at = now
        if self._left < 1:
            return (1 - self._left) / per_second
        self._left -= 1
        return 0.0


class ClientRequestLimiter:
    """Counter of one client's calls or requests; raises `TooManyCalls` above its rate, or with too many in progress."""

    def __init__(self, per_minute: int, at_once: int, clock: Clock, what: str) -> None:
        self._rate = RateLimiter(per_minute, clock)
        self._at_once = at_once
        self._what = what
        self.in_progress = 0
        """The number in progress."""

    @contextmanager
    def use(self) -> Generator[None]:
        """Count one call as in progress during a `with` block. Raises `TooManyCalls` if a limit is reached."""
        if self.in_progress >= self._at_once:
            raise TooManyCalls(f"this client has {self._at_once} {self._what} in progress already: wait for one to end")
        if seconds := self._rate.take():
            raise TooManyCalls(f"this client makes too many {self._what}: try again in {seconds:.0f} s or later")
        self.in_progress += 1
        try:
            yield
        finally:
            self.in_progress -= 1
