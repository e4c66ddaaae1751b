"""Models of a ChatGPT subscription, through the endpoint of the Codex CLI.

    login_file.py    read and write the login file of the CLI
    auth.py     authentication with that login, renewed when it is old

This is an undocumented API of that program, which may change or be closed at any time; Perdure uses its login and keeps
it fresh. So all code for it is in this one package. Perdure has no login of its own: `codex login` makes one.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from perdure.core.model import Request
from perdure.models.encoding_memo import EncodingMemo
from perdure.models.openai_responses import WIRE as RESPONSES
from perdure.models.openai_responses.encode import build_cache_key
from perdure.models.profile import Profile
from perdure.models.wire_format import Decoder, EncodedRequest
from perdure.net.transport import Transport

from .auth import CodexAuth
from .login_file import get_login_path

if TYPE_CHECKING:
    from perdure.models.http_model import HttpModel
    from perdure.models.throttle import Throttle

__all__ = [
    "BASE_URL",
    "DEFAULT_MODEL",
    "WIRE",
    "CodexAuth",
    "CodexWire",
    "get_codex_profile",
    "get_login_path",
    "open_codex",
]

BASE_URL: Final = "https://chatgpt.com/backend-api/codex"
DEFAULT_MODEL: Final = "gpt-5.5"


class CodexWire:
    """Wire (API format) of the Codex endpoint: the Responses API with a few restrictions."""

    name = "codex"

    def encode(self, request: Request, profile: Profile, memo: EncodingMemo) -> EncodedRequest:
        """Encode a request as a Responses call, with a header that names the session."""
        sending = RESPONSES.encode(request, _with_codex_dialect(profile), memo)
        session = {"session_id": build_cache_key(request.session_id)} if request.session_id else {}
        return EncodedRequest(sending.path, sending.body, {"accept": "text/event-stream", **session})

    def decoder(self, profile: Profile, media_type: str) -> Decoder:
        """Return a decoder for one response of the endpoint."""
        return RESPONSES.decoder(profile, media_type)

    def lint(self, body: Mapping[str, Any], profile: Profile) -> Sequence[str]:
        """Return a sentence for each rule of the endpoint that a request body breaks."""
        return RESPONSES.lint(body, _with_codex_dialect(profile))


WIRE = CodexWire()
"""Shared instance of the wire: it has no state."""


def _with_codex_dialect(profile: Profile) -> Profile:
    return profile if profile.dialect == "codex" else replace(profile, dialect="codex")


def get_codex_profile(model: str = "") -> Profile:
    """Return the capabilities and limits (`Profile`) of a Codex model."""
    return Profile(
        provider="codex",
        model=model or DEFAULT_MODEL,
        context_tokens=400_000,
        strict_tools=True,
        schema="openai_strict",
        documents=True,
        dialect="codex",
    )


def open_codex(
    model: str = "", transport: Transport | None = None, throttle: "Throttle | None" = None, *, base_url: str = BASE_URL
) -> "HttpModel":
    """Open a model of the user's ChatGPT subscription. Raises `ConfigError` if the Codex CLI is not logged in."""
    from perdure.models.http_model import HttpModel
    from perdure.net.pooled_http_transport import get_shared_transport

    transport = transport or get_shared_transport()
    auth = CodexAuth(transport)
    auth.check()
    return HttpModel(
        WIRE, get_codex_profile(model), base_url=base_url, auth=auth, transport=transport, throttle=throttle
    )
