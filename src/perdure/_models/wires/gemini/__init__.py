"""Wire (API format) of Gemini's `generateContent`, for the Gemini API and Vertex AI.

`encode` turns a request into bytes, `decode` turns the bytes of the response into events, and `lint` checks a body
against the provider's rules offline.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from perdure._core.model.protocol import Request
from perdure._models.endpoint.memo import EncodingMemo
from perdure._models.endpoint.profile import Profile
from perdure._models.endpoint.wire import EncodedRequest

from .decode import GeminiDecoder
from .encode import encode
from .lint import lint

__all__ = ["WIRE", "GeminiWire"]


class GeminiWire:
    """Wire (API format) of Gemini models: encodes requests, decodes responses and checks request bodies."""

    name = "gemini"
    """Name of the wire in the catalogue."""

    def encode(self, request: Request, profile: Profile, memo: EncodingMemo) -> EncodedRequest:
        """Encode a request as the HTTP request of a `generateContent` call."""
        return encode(request, profile, memo)

    def decoder(self, profile: Profile, media_type: str) -> GeminiDecoder:  # noqa: ARG002 - the first byte is more reliable
        """Return a decoder for one response, streamed or whole."""
        return GeminiDecoder(profile)

    def lint(self, body: Mapping[str, Any], profile: Profile) -> Sequence[str]:
        """Return a sentence for each rule of the provider that a request body breaks."""
        return lint(body, profile)


WIRE = GeminiWire()
"""The shared instance; it has no state."""
