"""Wire (API format) of OpenAI's Responses API and the providers compatible with it.

`encode` turns a request into bytes, `decode` turns the bytes of the response into events, `lint` checks a body against
the provider's rules offline, and `dialect` is a table of how providers differ.

Nothing is stored by the provider: every request has the whole conversation, and reasoning is returned encrypted.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from perdure._core.model.protocol import Request
from perdure._models.endpoint.memo import EncodingMemo
from perdure._models.endpoint.profile import Profile
from perdure._models.endpoint.wire import Decoder, EncodedRequest

from .decode import ResponsesDecoder
from .encode import encode
from .lint import lint

__all__ = ["WIRE", "OpenAIResponsesWire"]


class OpenAIResponsesWire:
    """Wire (API format) of the Responses API: encodes requests, decodes responses and checks request bodies."""

    name = "openai_responses"

    def encode(self, request: Request, profile: Profile, memo: EncodingMemo) -> EncodedRequest:
        """Encode a request as the HTTP request of a Responses call."""
        return encode(request, profile, memo)

    def decoder(self, profile: Profile, media_type: str) -> Decoder:  # noqa: ARG002 - the first byte is more reliable
        """Return a decoder for one response, streamed or whole."""
        return ResponsesDecoder(profile)

    def lint(self, body: Mapping[str, Any], profile: Profile) -> Sequence[str]:
        """Return a sentence for each rule of the provider that a request body breaks."""
        return lint(body, profile)


WIRE = OpenAIResponsesWire()
"""The shared instance; it has no state."""
