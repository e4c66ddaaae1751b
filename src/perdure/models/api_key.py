"""API key of a provider, read from its environment variable only when a request needs it.

Its presence is checked when a model is opened, so that a missing key is reported there. Each request reads the
environment again, so that a key can be changed while the program runs.
"""

import os
from collections.abc import Mapping

from perdure.core.error import AuthFailed

from .auth import TokenSource, fetch_token

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
