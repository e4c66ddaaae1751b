"""The Responses wire, which OpenAI made and others speak as well. Above: `endpoint.py`, `codex.py`. Below: `wire.py`.

    encode.py   tools.py             a request, and its tools
    items.py    content.py           its messages, and what is in them
    decode.py   reply.py             the answer: its events, its items
    mark.py                          what of an item is kept for the way back
    dialect.py                       how providers differ
    rules.py    lint.py              what would be refused

Nothing is kept by the provider: every request has the whole conversation, and reasoning comes back encrypted.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.core.model import Request
from perdure.models.memo import Memo
from perdure.models.profile import Profile
from perdure.models.wire import Decoder, Sending

from .decode import ResponsesDecoder
from .encode import encode
from .lint import lint

__all__ = ["WIRE", "ResponsesWire"]


class ResponsesWire:
    """How the providers of this wire are spoken to."""

    name = "openai_responses"

    def encode(self, request: Request, profile: Profile, memo: Memo) -> Sending:
        """The request as this wire says it."""
        return encode(request, profile, memo)

    def decoder(self, profile: Profile, media_type: str) -> Decoder:  # noqa: ARG002 - the bytes tell what they are
        """For one answer, streamed or whole."""
        return ResponsesDecoder(profile)

    def lint(self, body: Mapping[str, Any], profile: Profile) -> Sequence[str]:
        """Which rules of the provider a whole body breaks."""
        return lint(body, profile)


WIRE = ResponsesWire()
"""The wire itself: it has no state."""
