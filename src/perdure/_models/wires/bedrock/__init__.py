"""Wire (API format) of the Converse API of Amazon Bedrock.

`encode` turns a request into bytes, `decode` turns the bytes of the response into events, `lint` checks a body against
the provider's rules offline, `dialect` is a table of how models of different makers differ, and `auth` signs requests.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from perdure._core.model.protocol import Request
from perdure._models.endpoint.memo import EncodingMemo
from perdure._models.endpoint.profile import Profile
from perdure._models.endpoint.wire import Decoder, EncodedRequest

from .aws import BedrockAuth
from .decode import BedrockDecoder
from .encode import encode
from .lint import lint

__all__ = ["WIRE", "BedrockAuth", "BedrockWire"]


class BedrockWire:
    """Wire (API format) of the Converse API: encodes requests, decodes responses and checks request bodies."""

    name = "bedrock"

    def encode(self, request: Request, profile: Profile, memo: EncodingMemo) -> EncodedRequest:
        """Encode a request as the HTTP request of a Converse call."""
        return encode(request, profile, memo)

    def decoder(self, profile: Profile, media_type: str) -> Decoder:  # noqa: ARG002 - the first byte is more reliable
        """Return a decoder for one response, streamed or whole."""
        return BedrockDecoder(profile)

    def lint(self, body: Mapping[str, Any], profile: Profile) -> Sequence[str]:
        """Return a sentence for each rule of the provider that a request body breaks."""
        return lint(body, profile)


WIRE = BedrockWire()
