"""Bearer tokens by which an MCP server over HTTP recognizes its clients.

Only digests of the tokens are kept, and they are compared in constant time. The name of a token is the identity of its
client: sessions and limits belong to it, whatever the client says about itself.
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from typing import Final

from perdure.core import argument_checks
from perdure.core.error import ConfigError
from perdure.core.reserved_session_ids import check_part_not_reserved

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
            argument_checks.raise_config_error(
                "ClientTokens", "name", name, "use 1 to 64 letters, digits, '.', '_' and '-'"
            )
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
