"""Wire (API format) of Anthropic's Messages API and the providers compatible with it.

`encode` turns a request into bytes, `decode` turns the bytes of the response into events, `lint` checks a body against
the provider's rules offline, and `dialect` is a table of how generations of models differ.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from perdure._core.model.protocol import Request
from perdure._models.endpoint.memo import EncodingMemo
from perdure._models.endpoint.profile import Profile
from perdure._models.endpoint.wire import Decoder, EncodedRequest

from .decode import AnthropicDecoder
from .encode import encode
from .lint import lint

__all__ = ["WIRE", "AnthropicWire"]


class AnthropicWire:
    """Wire (API format) of the Messages API: encodes requests, decodes responses and checks request bodies."""

    name = "anthropic"

    def encode(self, request: Request, profile: Profile, memo: EncodingMemo) -> EncodedRequest:
        """Encode a request as the HTTP request of a Messages call."""
        return encode(request, profile, memo)

    def decoder(self, profile: Profile, media_type: str) -> Decoder:  # noqa: ARG002 - the first byte is more reliable
        """Return a decoder for one response, streamed or whole."""
        return AnthropicDecoder(profile)

    def lint(self, body: Mapping[str, Any], profile: Profile) -> Sequence[str]:
        """Return a sentence for each rule of the provider that a request body breaks."""
        return lint(body, profile)


WIRE = AnthropicWire()
