"""Wire (API format) of Ollama's own chat API, `/api/chat`. No I/O.

`encode` turns a request into bytes, `decode` turns the lines of the response into events, and `lint` checks a body
against the rules of the server offline. Ollama also serves chat completions; only its own API takes the size of the
context window with a request, and refuses a prompt that is too long instead of cutting it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.core.model import Request
from perdure.models.encoding_memo import EncodingMemo
from perdure.models.profile import Profile
from perdure.models.wire_format import EncodedRequest

from .decode import OllamaDecoder
from .encode import encode
from .lint import lint

__all__ = ["WIRE", "OllamaWire"]


class OllamaWire:
    """Wire (API format) of Ollama's chat API: encodes requests, decodes responses and checks request bodies."""

    name = "ollama"

    def encode(self, request: Request, profile: Profile, memo: EncodingMemo) -> EncodedRequest:
        """Encode a request as the HTTP request of a chat call."""
        return encode(request, profile, memo)

    def decoder(self, profile: Profile, media_type: str) -> OllamaDecoder:  # noqa: ARG002 - whole or streamed, it is lines
        """Return a decoder for one response, streamed or whole."""
        return OllamaDecoder(profile)

    def lint(self, body: Mapping[str, Any], profile: Profile) -> Sequence[str]:
        """Return a sentence for each rule of the server that a request body breaks."""
        return lint(body, profile)


WIRE = OllamaWire()
"""The shared instance; it has no state."""
