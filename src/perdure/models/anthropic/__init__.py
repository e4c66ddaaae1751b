"""The Messages wire of Anthropic, which others speak as well. Above: `endpoint.py`. Below: `models/wire.py`.

block.py      what is said, as blocks
dialect.py    how generations of models differ
thinking.py   how much a model may think
encode.py     a request -> bytes
decode.py     bytes -> events
lint.py       the rules of the provider
"""

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.core.model import Request
from perdure.models.memo import Memo
from perdure.models.profile import Profile
from perdure.models.wire import Decoder, Sending

from .decode import MessagesDecoder
from .encode import encode
from .lint import lint

__all__ = ["WIRE", "AnthropicWire"]


class AnthropicWire:
    """How Anthropic is spoken to."""

    name = "anthropic"

    def encode(self, request: Request, profile: Profile, memo: Memo) -> Sending:
        """The request as this wire says it."""
        return encode(request, profile, memo)

    def decoder(self, profile: Profile, media_type: str) -> Decoder:  # noqa: ARG002 - the first byte tells
        """For one answer, streamed or whole."""
        return MessagesDecoder(profile)

    def lint(self, body: Mapping[str, Any], profile: Profile) -> Sequence[str]:  # noqa: ARG002 - one set of rules
        """Which rules a whole body breaks."""
        return lint(body)


WIRE = AnthropicWire()
