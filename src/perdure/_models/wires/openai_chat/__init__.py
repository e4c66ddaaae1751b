"""Wire (API format) of OpenAI's chat completions and the many servers compatible with it. No I/O.

`encode` turns a request into bytes, `decode` turns the bytes of the response into events, `lint` checks a body against
the provider's rules offline, and `dialect` is a table of how the compatible servers differ.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from perdure._core.model.protocol import Request
from perdure._models.endpoint.memo import EncodingMemo
from perdure._models.endpoint.profile import Profile
from perdure._models.endpoint.wire import EncodedRequest

from .decode import ChatDecoder
from .encode import encode
from .lint import lint

__all__ = ["WIRE", "OpenAIChatWire"]


class OpenAIChatWire:
    """Wire (API format) of chat completions: encodes requests, decodes responses and checks request bodies."""

    name = "openai_chat"

    def encode(self, request: Request, profile: Profile, memo: EncodingMemo) -> EncodedRequest:
        """Encode a request as the HTTP request of a chat completions call."""
        return encode(request, profile, memo)

    def decoder(self, profile: Profile, media_type: str) -> ChatDecoder:  # noqa: ARG002 - the first byte is more reliable
        """Return a decoder for one response, streamed or whole."""
        return ChatDecoder(profile)

    def lint(self, body: Mapping[str, Any], profile: Profile) -> Sequence[str]:
        """Return a sentence for each rule of the provider that a request body breaks."""
        return lint(body, profile)


WIRE = OpenAIChatWire()
"""The shared instance; it has no state."""
