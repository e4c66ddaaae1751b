"""A wire: how one family of providers is spoken to. Pure: no network, no clock. Above: `endpoint.py`. Below: `core`.

    encode      a request -> the bytes to be posted
    decoder     the bytes of the answer, as they come -> events
    lint        the rules of the provider, checked offline: nothing that breaks one is ever sent

Each wire is a package beside this module. What differs between providers of one wire is in their `Profile`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from perdure.core.event import ModelEvent
from perdure.core.model import Request

from .memo import Memo
from .profile import Profile


class Sending(Struct, frozen=True):
    """What is to be posted."""

    path: str
    """Where, below the base address; it begins with a slash, and may hold a query."""
    body: bytes
    headers: Mapping[str, str] = {}
    """What the wire itself wants to say there; keys are added by `auth`."""


class Decoder(Protocol):
    """One answer. It is given the bytes as they come, in pieces of any size."""

    @property
    def done(self) -> bool:
        """Whether the provider has said its last word: what may still come says nothing. Not all of them have one."""
        ...

    def feed(self, data: bytes) -> Iterable[ModelEvent]:
        """More bytes: what they say. Raises a classified `ModelError` for an error that is told in the stream."""
        ...

    def end(self) -> Iterable[ModelEvent]:
        """The bytes are over: what is left to say, a `ReplyFinished` last. Raises `ReplyCutOff` when there is more to
        come, so that nothing unfinished ever counts as an answer.
        """
        ...


class Wire(Protocol):
    """How one family of providers is spoken to."""

    @property
    def name(self) -> str: ...

    def encode(self, request: Request, profile: Profile, memo: Memo) -> Sending:
        """The request as this wire says it. Raises `BadRequest` when it breaks a rule of the provider."""
        ...

    def decoder(self, profile: Profile, media_type: str) -> Decoder:
        """For one answer of this media type, streamed or whole."""
        ...

    def lint(self, body: Mapping[str, Any], profile: Profile) -> Sequence[str]:
        """Which rules of the provider a whole body breaks, each in a sentence. Nothing when it would be accepted."""
        ...
