"""Authenticate requests to a provider: the `Auth` protocol, and authentication by fixed headers.

Keys are read when they are needed, and never stored in a session, a log or a message.
"""

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Protocol, TypeAlias

from perdure.core.error import AuthFailed

TokenSource: TypeAlias = Callable[[], str | Awaitable[str]]
"""Function that returns a key or an access token that is valid now, or an awaitable of one. Called for each request."""


async def fetch_token(source: TokenSource) -> str:
    """Call the function that supplies a token, and return the token. Raises `AuthFailed` if it returns none."""
    told = source()
    token: object = await told if isawaitable(told) else told
    if not isinstance(token, str) or not token.strip():
        raise AuthFailed("the function that was given as api_key returned no token: it has to return a str")
    return token.strip()


class Auth(Protocol):
    """Protocol of an object that authenticates requests to one provider, by an API key, a login or a signature."""

    @property
    def identity(self) -> str:
        """Name that identifies the key without revealing it. Models with the same name share rate limits."""
        ...

    async def headers(self, url: str, body: bytes) -> Mapping[str, str]:
        """Return the authentication headers for this request."""
        ...

    async def renew(self) -> bool:
        """Try to get a new key after the provider rejected this one. Return True if the request is worth repeating."""
        ...


class FixedHeaders:
    """Authentication that sends the same headers with every request, as most providers need."""

    def __init__(self, headers: Mapping[str, str], identity: str = "") -> None:
        self._headers = dict(headers)
        self._identity = identity

    @property
    def identity(self) -> str:
        """Name of the key as given to the constructor, or else a hash of the headers."""
        if self._identity or not self._headers:
            return self._identity
        from hashlib import sha256

        return sha256(repr(sorted(self._headers.items())).encode()).hexdigest()[:16]

    async def headers(self, url: str, body: bytes) -> Mapping[str, str]:  # noqa: ARG002 - part of the protocol
        """Return the headers given to the constructor."""
        return self._headers

    async def renew(self) -> bool:
        """Return False: fixed headers cannot be renewed."""
        return False

    def __repr__(self) -> str:
        return f"FixedHeaders({sorted(self._headers)})"
