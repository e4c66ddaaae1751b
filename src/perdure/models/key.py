"""A key that is read when it is needed. Above: `opening.py`. Below: `auth.py`.

It is looked for when a model is opened, so that its absence is told where the model is described; what is sent is what
the environment holds when a request is made, so that a key can be changed while the program runs.
"""

import os
from collections.abc import Mapping

from perdure.core.error import AuthFailed

_HEADERS: Mapping[str, str] = {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}


def header_for(wire: str) -> str:
    """The header that a key goes into, where nothing else is known."""
    return _HEADERS.get(wire, "authorization")


class Key:
    """The key of one provider, given or in the environment, in the header where it belongs."""

    def __init__(self, variables: tuple[str, ...] = (), *, header: str = "authorization", given: str = "") -> None:
        self._variables = variables
        self._header = header
        self._given = given

    @property
    def found(self) -> str:
        """The name of the variable that holds it; empty when it was given, or is nowhere."""
        return "" if self._given else next((each for each in self._variables if os.environ.get(each)), "")

    def __bool__(self) -> bool:
        return bool(self._read())

    @property
    def identity(self) -> str:
        """Names the key without giving it away."""
        key = self._read()
        if not key:
            return ""
        from hashlib import sha256

        return sha256(key.encode()).hexdigest()[:16]

    async def headers(self, url: str, body: bytes) -> Mapping[str, str]:  # noqa: ARG002 - what others need
        """The key in its header. Nothing when there is none, for servers that ask for none."""
        key = self._read()
        if not key:
            return {}
        if not key.isascii() or not key.isprintable():
            raise AuthFailed(f"the key in {self.found or 'api_key'} has characters that no key has: copy it once more")
        return {self._header: f"Bearer {key}" if self._header == "authorization" else key}

    async def renew(self) -> bool:
        """There is no other key."""
        return False

    def _read(self) -> str:
        return (self._given or os.environ.get(self.found, "")).strip()

    def __repr__(self) -> str:
        where = "given" if self._given else self.found or "none"
        return f"Key({where})"
