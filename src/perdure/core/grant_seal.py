"""Seals of remembered approvals: they prove that a process with the user's key has written them, and not somebody else.

Whoever can write to a store could write an approval into it. So each that lasts has a seal: an HMAC over all that gives
it power, by a key that lies outside of the store. A seal has a number of its own, so that no two are the same.
"""

from typing import Any, Final, Protocol

import msgspec

from .clock_and_ids import new_id
from .event import PermissionDecided
from .jsonable import replace_surrogates

_VERSION: Final = "1"
_PURPOSE: Final = "grant"
_SEALED_FIELDS: Final = (
    *("call_id", "tool", "action", "target", "arguments_hash", "allow", "reason", "scope", "tool_identity", "by"),
    *("covers", "target_kind", "binding", "level", "at", "run_id"),
)


class SealKey(Protocol):
    """A secret key, with which a message is signed for a purpose."""

    def sign(self, purpose: str, message: bytes) -> str:
        """Return the signature of a message for a purpose."""
        ...

    def is_signed(self, purpose: str, message: bytes, signature: str) -> bool:
        """Return True if a signature is that of a message for a purpose; compared in constant time."""
        ...


def make_seal(sealed: Any, key: SealKey) -> str:
    """Return a new seal for a plain value."""
    number = new_id()
    return f"{_VERSION}.{number}.{key.sign(_PURPOSE, _encode(sealed, number))}"


def is_seal_of(seal: str, sealed: Any, key: SealKey) -> bool:
    """Return True if a seal was made for exactly this value, with this key."""
    version, _, rest = seal.partition(".")
    number, _, given = rest.partition(".")
    return version == _VERSION and key.is_signed(_PURPOSE, _encode(sealed, number), given)


def list_sealed_fields(decision: PermissionDecided) -> list[Any]:
    """Return what of a decision is sealed, as a plain value: all that says what it is for, and who gave it."""
    return ["decision", *[_to_plain(getattr(decision, name)) for name in _SEALED_FIELDS]]


def list_sealed_values(value: msgspec.Struct) -> list[Any]:
    """Return all fields of a value as a plain list: of equal values, it is equal."""
    return [_to_plain(each) for each in msgspec.structs.astuple(value)]


def _to_plain(value: Any) -> Any:
    if isinstance(value, str):
        return replace_surrogates(value)
    return list_sealed_values(value) if isinstance(value, msgspec.Struct) else value


def _encode(sealed: Any, number: str) -> bytes:
    return msgspec.json.encode([replace_surrogates(number), sealed], order="sorted")
