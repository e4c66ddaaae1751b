"""The Converse wire of Amazon Bedrock. Above: `endpoint.py`. Below: `models/wire.py`, botocore.

block.py         what is said, as blocks
dialect.py       how models of different makers differ
encode.py        a request -> bytes
eventstream.py   bytes -> messages of an event stream
decode.py        messages -> events
lint.py          the rules of the provider
auth.py          how requests are signed
"""

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.core.model import Request
from perdure.models.memo import Memo
from perdure.models.profile import Profile
from perdure.models.wire import Decoder, Sending

from .auth import BedrockAuth
from .decode import ConverseDecoder
from .encode import encode
from .lint import lint

__all__ = ["WIRE", "BedrockAuth", "BedrockWire"]


class BedrockWire:
    """How Bedrock is spoken to."""

    name = "bedrock"

    def encode(self, request: Request, profile: Profile, memo: Memo) -> Sending:
        """The request as this wire says it."""
        return encode(request, profile, memo)

    def decoder(self, profile: Profile, media_type: str) -> Decoder:  # noqa: ARG002 - the first byte tells
        """For one answer, streamed or whole."""
        return ConverseDecoder(profile)

    def lint(self, body: Mapping[str, Any], profile: Profile) -> Sequence[str]:
        """Which rules a whole body breaks."""
        return lint(body, profile)


WIRE = BedrockWire()
