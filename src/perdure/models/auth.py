"""How an endpoint knows us. Above: `endpoint.py`, the catalogue. Below: nothing.

Keys are read when they are needed, never kept in a session, a log or a message.
"""

from collections.abc import Mapping
from typing import Protocol


class Auth(Protocol):
    """Says who is asking."""

    @property
    def identity(self) -> str:
        """Names the key without giving it away: what limits per key are shared by."""
        ...

    async def headers(self, url: str, body: bytes) -> Mapping[str, str]:
        """What to send with this request."""
        ...

    async def renew(self) -> bool:
        """The provider does not know us any more: try to get a new key. Whether it is worth asking again."""
        ...


class Fixed:
    """The same headers every time: what most providers want."""

    def __init__(self, headers: Mapping[str, str], identity: str = "") -> None:
        self._headers = dict(headers)
        self._identity = identity

    @property
    def identity(self) -> str:
        """The name that it was given, or one made of the headers, from which they cannot be told."""
        if self._identity or not self._headers:
            return self._identity
        from hashlib import sha256

        return sha256(repr(sorted(self._headers.items())).encode()).hexdigest()[:16]

    async def headers(self, url: str, body: bytes) -> Mapping[str, str]:  # noqa: ARG002 - what others need
        """The headers that it was made with."""
        return self._headers

    async def renew(self) -> bool:
        """There is no other key."""
        return False

    def __repr__(self) -> str:
        return f"Fixed({sorted(self._headers)})"
