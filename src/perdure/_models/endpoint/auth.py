"""Authenticate requests to a provider: the `Auth` protocol, fixed headers, and API keys from the environment."""

import os
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Protocol, TypeAlias

from perdure._core.values.error import AuthFailed

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


_HEADERS: Mapping[str, str] = {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}


def key_header_for(wire: str) -> str:
    """Return the name of the header that an API format (`wire`) uses for the API key."""
    return _HEADERS.get(wire, "authorization")


class ApiKey:
    """API key of one provider, given or in an environment variable, sent in the provider's header.

    A given key may be a function, which is called for each request: for tokens that expire.
    """

    def __init__(
        self, variables: tuple[str, ...] = (), *, header: str = "authorization", given: str | TokenSource = ""
    ) -> None:
        self._variables = variables
        self._header = header
        self._given = given

    @property
    def variable_name(self) -> str:
        """Name of the environment variable with the key; empty if the key was given, or is missing."""
        return "" if self._given else next((each for each in self._variables if os.environ.get(each)), "")

    def __bool__(self) -> bool:
        return callable(self._given) or bool(self._read_key())

    @property
    def identity(self) -> str:
        """Hash of the key, to name it without revealing it."""
        if callable(self._given):
            return f"function {id(self._given)}"
        key = self._read_key()
        if not key:
            return ""
        from hashlib import sha256

        return sha256(key.encode()).hexdigest()[:16]

    async def headers(self, url: str, body: bytes) -> Mapping[str, str]:  # noqa: ARG002 - part of the protocol
        """Return the header with the key; empty if there is no key, for servers that need none."""
        key = await fetch_token(self._given) if callable(self._given) else self._read_key()
        if not key:
            return {}
        if not key.isascii() or not key.isprintable():
            raise AuthFailed(f"the key in {self.variable_name or 'api_key'} has invalid characters: copy it again")
        return {self._header: f"Bearer {key}" if self._header == "authorization" else key}

    async def renew(self) -> bool:
        """Return True if the key is a function, which may return another one now. A fixed key cannot be renewed."""
        return callable(self._given)

    def _read_key(self) -> str:
        given = self._given if isinstance(self._given, str) else ""
        return (given or os.environ.get(self.variable_name, "")).strip()

    def __repr__(self) -> str:
        where = "given" if self._given else self.variable_name or "none"
        return f"Key({where})"
