"""OpenAI's chat completions, and everybody who speaks them. Pure. Above: `endpoint.py`. Below: `wire.py`, `core`.

dialect.py   how those who speak it differ: a table
encode.py    a request -> bytes; beside it items, content, asking and tools, its parts
decode.py    bytes -> events; beside it chunk, calls, details and usage, its parts
lint.py      what would be refused, told offline
"""

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.core.model import Request
from perdure.models.memo import Memo
from perdure.models.profile import Profile
from perdure.models.wire import Sending

from .decode import ChatDecoder
from .encode import encode
from .lint import lint

__all__ = ["WIRE", "OpenAIChat"]


class OpenAIChat:
    """The wire of chat completions."""

    name = "openai_chat"

    def encode(self, request: Request, profile: Profile, memo: Memo) -> Sending:
        """The request as chat completions say it."""
        return encode(request, profile, memo)

    def decoder(self, profile: Profile, media_type: str) -> ChatDecoder:  # noqa: ARG002 - the first byte tells more
        """For one answer, streamed or whole."""
        return ChatDecoder(profile)

    def lint(self, body: Mapping[str, Any], profile: Profile) -> Sequence[str]:
        """Which rules of the provider a whole body breaks."""
        return lint(body, profile)


WIRE = OpenAIChat()
"""The wire itself: it has no state."""
