"""Models of a ChatGPT subscription, through the endpoint of the Codex CLI. Above: the catalogue. Below: the Responses
wire, `endpoint.py`, `net`.

    login.py    the file in which the CLI keeps its login
    auth.py     the login as a key, renewed when it is old

This is nobody's documented interface: it belongs to a program, whose login is used here and kept fresh, and it may
change or be closed at any time. So all that is particular to it is in this one place. There is no login of our own:
`codex login` makes one.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from perdure.core.model import Request
from perdure.models.memo import Memo
from perdure.models.openai_responses import WIRE as RESPONSES
from perdure.models.openai_responses.encode import cache_key
from perdure.models.profile import Profile
from perdure.models.wire import Decoder, Sending
from perdure.net.transport import Transport

from .auth import CodexAuth
from .login import login_path

if TYPE_CHECKING:
    from perdure.models.endpoint import Endpoint
    from perdure.models.throttle import Throttle

__all__ = ["BASE_URL", "DEFAULT_MODEL", "WIRE", "CodexAuth", "CodexWire", "login_path", "open_codex", "profile_of"]

BASE_URL: Final = "https://chatgpt.com/backend-api/codex"
DEFAULT_MODEL: Final = "gpt-5.5"


class CodexWire:
    """The Responses wire, as this endpoint takes it."""

    name = "codex"

    def encode(self, request: Request, profile: Profile, memo: Memo) -> Sending:
        """The request, and which session it belongs to."""
        sending = RESPONSES.encode(request, _as_codex(profile), memo)
        session = {"session_id": cache_key(request.session_id)} if request.session_id else {}
        return Sending(sending.path, sending.body, {"accept": "text/event-stream", **session})

    def decoder(self, profile: Profile, media_type: str) -> Decoder:
        """For one answer."""
        return RESPONSES.decoder(profile, media_type)

    def lint(self, body: Mapping[str, Any], profile: Profile) -> Sequence[str]:
        """Which rules of the endpoint a whole body breaks."""
        return RESPONSES.lint(body, _as_codex(profile))


WIRE = CodexWire()
"""The wire itself: it has no state."""


def _as_codex(profile: Profile) -> Profile:
    return profile if profile.dialect == "codex" else replace(profile, dialect="codex")


def profile_of(model: str = "") -> Profile:
    """What is known of a model there."""
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
) -> "Endpoint":
    """A model of the subscription. Raises `ConfigError` when nobody is logged in."""
    from perdure.models.endpoint import Endpoint
    from perdure.net.http import shared

    transport = transport or shared()
    auth = CodexAuth(transport)
    auth.check()
    return Endpoint(WIRE, profile_of(model), base_url=base_url, auth=auth, transport=transport, throttle=throttle)
