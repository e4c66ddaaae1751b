"""The clients of an MCP server: bearer tokens that identify them, and limits on their calls and requests."""

import hashlib
import hmac
import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Final

from msgspec import Struct

from perdure._core.log.reserved_ids import check_part_not_reserved
from perdure._core.values import checks
from perdure._core.values.clock import Clock
from perdure._core.values.error import ConfigError, UsageError

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
            checks.require_int("ClientLimits", name, getattr(self, name), 1)


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


MIN_TOKEN_LENGTH: Final = 32
"""The fewest characters of a token; `secrets.token_urlsafe(32)` makes one of 43."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]+")


class ClientTokens:
    """Bearer tokens of the clients of an MCP server, by client name. A revoked token stops working at once."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        """Keep the digests of tokens.

        Args:
            tokens: Tokens by the name of their client. A token has at least 32 characters of those that a header may
                have, such as `secrets.token_urlsafe(32)`.
        """
        if not isinstance(tokens, Mapping) or not tokens:
            raise ConfigError(
                "a server over HTTP needs a token for each client, also on this machine: give "
                "tokens={'name': secrets.token_urlsafe(32)}"
            )
        self._digests: dict[str, bytes] = {}
        self._listeners: list[Callable[[str], None]] = []
        for name, token in tokens.items():
            self.add(name, token)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the clients."""
        return tuple(self._digests)

    def add(self, name: str, token: str) -> None:
        """Add the token of a client. Raises `ConfigError` if the name or the token cannot be used."""
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            checks.raise_config_error("ClientTokens", "name", name, "use 1 to 64 letters, digits, '.', '_' and '-'")
        check_part_not_reserved(name, "a client")
        if not isinstance(token, str) or len(token) < MIN_TOKEN_LENGTH or not _TOKEN.fullmatch(token):
            raise ConfigError(
                f"the token of {name!r} cannot be used: give {MIN_TOKEN_LENGTH} or more letters and digits that cannot "
                "be guessed, such as secrets.token_urlsafe(32)"
            )
        digest = _hash_token(token)
        if name in self._digests or digest in self._digests.values():
            raise ConfigError(f"the name or the token of {name!r} is there already: each client has its own")
        self._digests[name] = digest

    def find_client(self, token: str) -> str | None:
        """Return the name of the client with this token, or `None`; compared in constant time."""
        digest, found = _hash_token(token), None
        for name, known in self._digests.items():
            if hmac.compare_digest(digest, known):
                found = name
        return found

    def revoke(self, name: str) -> bool:
        """Revoke the token of a client: its requests are refused, and its open streams end. False if there is none."""
        if self._digests.pop(name, None) is None:
            return False
        for listener in list(self._listeners):
            listener(name)
        return True

    def on_revoked(self, listener: Callable[[str], None]) -> None:
        """Call a function with the name of each client whose token is revoked from now on."""
        self._listeners.append(listener)

    def __repr__(self) -> str:
        return f"ClientTokens({', '.join(self._digests)})"


def _hash_token(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
