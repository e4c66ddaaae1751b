"""The `Wire` protocol: an API format, which encodes requests to a group of providers and decodes their responses.

    encode      a request -> the bytes to be posted; messages in an order that would be refused are never sent
    decoder     the bytes of the response, as they arrive -> events
    lint        the rules of the provider for a whole body, checked offline: they explain a request that was refused

Each wire is a package or module in `wires`, and `load_wire` finds it by its name. Differences between providers of one
wire are in their `Profile`.
"""

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, Protocol

from msgspec import Struct

from perdure._core.model.protocol import Request
from perdure._core.values import checks
from perdure._core.values.event import ModelEvent

from .memo import EncodingMemo
from .profile import Profile

WIRES: Final = ("anthropic", "bedrock", "codex", "gemini", "ollama", "openai_chat", "openai_responses", "vertex")
"""The names of our wires, each a package or module that is imported at its first use."""


class EncodedRequest(Struct, frozen=True):
    """Encoded model request, ready to be posted over HTTP: path, body and headers."""

    path: str
    """Path below the base URL; it begins with a slash, and may have a query."""
    body: bytes
    headers: Mapping[str, str] = {}
    """Headers that the wire needs; those with keys are added by `auth`."""


class Decoder(Protocol):
    """Protocol for the decoder of one HTTP response into model events; it is fed the bytes as they arrive."""

    @property
    def done(self) -> bool:
        """True once the provider has sent its end marker, which ends the content. Not all providers send one."""
        ...

    def feed(self, data: bytes) -> Iterable[ModelEvent]:
        """Decode more bytes into events. Raises a classified `ModelError` for an error inside the stream."""
        ...

    def end(self) -> Iterable[ModelEvent]:
        """Finish decoding after the last byte: return the remaining events, a `ReplyFinished` last.

        Raises `ReplyCutOff` if the reply is incomplete, so that no partial reply counts as an answer.
        """
        ...


class Wire(Protocol):
    """Protocol for the API format of a group of providers: encodes requests, decodes responses, checks bodies."""

    @property
    def name(self) -> str: ...

    def encode(self, request: Request, profile: Profile, memo: EncodingMemo) -> EncodedRequest:
        """Encode a request as an HTTP request. Raises `BadRequest` if it breaks a rule of the provider."""
        ...

    def decoder(self, profile: Profile, media_type: str) -> Decoder:
        """Return a decoder for one response of this media type, streamed or whole."""
        ...

    def lint(self, body: Mapping[str, Any], profile: Profile) -> Sequence[str]:
        """Return a sentence for each rule of the provider that a request body breaks; empty if it would be accepted."""
        ...


def load_wire(name: str) -> Wire:
    """Import and return the wire with this name, such as `openai_chat`. Raises `ConfigError` for an unknown name."""
    if name not in WIRES:
        near = checks.suggest_name(name, WIRES)
        checks.raise_config_error(
            "load_wire", "name", name, f"there is no such wire: {near}known are {', '.join(WIRES)}"
        )
    wire: Wire = import_module(f"perdure._models.wires.{name}").WIRE
    return wire
