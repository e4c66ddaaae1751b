"""Gemini as it is: `generateContent`, of the Gemini API and of Vertex. Above: the catalogue. Below: `core`, `net`.

- `encode.py`: a request as bytes; `contents.py` the conversation, `media.py` what is not text
- `decode.py`: bytes as events; `framing.py` where they end, `chunk.py` their types, `reply.py` what was said,
  `partial.py` calls in pieces
- `lint.py`: the rules of the provider; `order.py` those of the conversation, checked before it is sent
- `generation.py`: what differs from one generation of models to the next
"""

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.core.model import Request
from perdure.models.memo import Memo
from perdure.models.profile import Profile
from perdure.models.wire import Sending

from .decode import GeminiDecoder
from .encode import encode
from .lint import lint

__all__ = ["WIRE", "Gemini"]


class Gemini:
    """The wire of Gemini models."""

    name = "gemini"
    """What the catalogue calls it."""

    def encode(self, request: Request, profile: Profile, memo: Memo) -> Sending:
        """The request as `generateContent` takes it."""
        return encode(request, profile, memo)

    def decoder(self, profile: Profile, media_type: str) -> GeminiDecoder:  # noqa: ARG002 - the first byte tells more
        """For one answer, streamed or whole."""
        return GeminiDecoder(profile)

    def lint(self, body: Mapping[str, Any], profile: Profile) -> Sequence[str]:
        """Which rules a whole body breaks."""
        return lint(body, profile)


WIRE = Gemini()
"""The wire, which keeps nothing."""
