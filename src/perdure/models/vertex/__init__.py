"""Wire (API format) of Google Vertex AI, for Gemini and Claude.

    auth.py       authentication with an access token, or with Google's application default credentials

The formats are those of Gemini and of Anthropic, at other paths. No vendor's client is used; `google-auth`, an optional
dependency, only gets tokens.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec

from perdure.core.model import Request
from perdure.models.anthropic import WIRE as ANTHROPIC
from perdure.models.encoding_memo import EncodingMemo, encode_lossy_json
from perdure.models.gemini import WIRE as GEMINI
from perdure.models.profile import Profile
from perdure.models.wire_format import Decoder, EncodedRequest

from .auth import GoogleAuth

__all__ = ["WIRE", "GoogleAuth", "VertexWire", "is_claude"]

ANTHROPIC_VERSION: Final = "vertex-2023-10-16"
"""Version of the Messages API, which Vertex AI expects in the body."""
_KEPT_HEADERS: Final = ("anthropic-beta",)


def is_claude(model: str) -> bool:
    """Return True if a model is one of Anthropic's, which has another format and path."""
    return model.rpartition("/")[2].startswith("claude")


class VertexWire:
    """Wire (API format) of Vertex AI: that of Gemini or that of Anthropic, by the name of the model."""

    name = "vertex"

    def encode(self, request: Request, profile: Profile, memo: EncodingMemo) -> EncodedRequest:
        """Encode a request as the HTTP request of a call below the URL of a project and location."""
        if is_claude(profile.model):
            return _encode_for_claude(request, profile, memo)
        sending = GEMINI.encode(request, profile, memo)
        path = sending.path if "/" in profile.model else f"/publishers/google{sending.path}"
        return EncodedRequest(path, sending.body, sending.headers)

    def decoder(self, profile: Profile, media_type: str) -> Decoder:
        """Return a decoder for one response, streamed or whole."""
        return (ANTHROPIC if is_claude(profile.model) else GEMINI).decoder(profile, media_type)

    def lint(self, body: Mapping[str, Any], profile: Profile) -> Sequence[str]:
        """Return a sentence for each rule of the provider that a request body breaks."""
        return (ANTHROPIC if is_claude(profile.model) else GEMINI).lint(body, profile)


WIRE = VertexWire()
"""The shared instance; it has no state."""


def _encode_for_claude(request: Request, profile: Profile, memo: EncodingMemo) -> EncodedRequest:
    """Encode a request for Claude: the path names the model, and the body the version of the API."""
    sending = ANTHROPIC.encode(request, profile, memo)
    model = profile.model if "/" in profile.model else f"publishers/anthropic/models/{profile.model}"
    method = "streamRawPredict" if profile.streams else "rawPredict"
    headers = {name: sending.headers[name] for name in _KEPT_HEADERS if name in sending.headers}
    return EncodedRequest(f"/{quote(model, safe='/@')}:{method}", _replace_model(sending.body, profile), headers)


def _replace_model(body: bytes, profile: Profile) -> bytes:
    """Replace the name of the model, with which a body begins, by the version of the API."""
    named, versioned = (
        encode_lossy_json({"model": profile.model})[:-1],
        encode_lossy_json({"anthropic_version": ANTHROPIC_VERSION}),
    )
    if body.startswith(named + b","):
        return versioned[:-1] + body[len(named) :]
    fields: dict[str, Any] = msgspec.json.decode(body)  # the caller's `extra_body` names another model
    fields.pop("model", None)
    return encode_lossy_json({"anthropic_version": ANTHROPIC_VERSION, **fields})
