"""Wire (API format) of Google Vertex AI, for Gemini and Claude, and authentication at Google Cloud."""

import asyncio
import importlib
import os
import threading
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import quote

import msgspec
from msgspec import Struct

from perdure._core.model.protocol import Request
from perdure._core.values.error import AuthFailed, ConfigError, ModelError, ProviderDown
from perdure._io.http.pooled import get_shared_transport
from perdure._io.http.transport import NetError, Transport
from perdure._models.endpoint.auth import TokenSource, fetch_token
from perdure._models.endpoint.memo import EncodingMemo, encode_lossy_json
from perdure._models.endpoint.model_list import SupportsGet
from perdure._models.endpoint.profile import Profile
from perdure._models.endpoint.wire import Decoder, EncodedRequest

from .anthropic import WIRE as ANTHROPIC
from .gemini import WIRE as GEMINI
from .google_environment import TOKEN_VARIABLE, get_adc_path, refuse_default_credentials_of_others

SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"

_MAX_ANSWER_BYTES = 256 * 1024
_ADVICE = (
    f"run `gcloud auth application-default login`, set GOOGLE_APPLICATION_CREDENTIALS to the file of a service "
    f"account, set {TOKEN_VARIABLE}, or pass api_key=… (a token, or a function that returns one)"
)
_EXTRA_ADVICE = "pip install 'perdure[vertex]'"


class GoogleAuth:
    """Authentication at Google Cloud with an OAuth access token, which is renewed before it expires."""

    def __init__(self, *, token: str | TokenSource = "", transport: Transport | None = None) -> None:
        """Use this access token, or a function that returns one; without it, the default credentials."""
        self._token = token
        self._transport = transport
        self._credentials: Any = None
        self._lock = threading.Lock()

    @property
    def identity(self) -> str:
        """Name that identifies the credentials without revealing them."""
        if callable(self._token):
            return f"google:function {id(self._token)}"
        if given := self._get_given_token():
            from hashlib import sha256

            return f"google:{sha256(given.encode()).hexdigest()[:16]}"
        return f"google:{get_adc_path()}"

    async def headers(self, url: str, body: bytes) -> Mapping[str, str]:  # noqa: ARG002 - part of the protocol
        """Return the headers with a valid token. Raises `AuthFailed` if there is none."""
        if callable(self._token):
            return {"authorization": f"Bearer {await fetch_token(self._token)}"}
        if given := self._get_given_token():
            return {"authorization": f"Bearer {given}"}
        credentials = self._credentials
        if credentials is None or not credentials.valid:
            credentials = await self._refresh()
        headers = {"authorization": f"Bearer {credentials.token}"}
        quota: Any = getattr(credentials, "quota_project_id", None)
        return {**headers, "x-goog-user-project": quota} if isinstance(quota, str) and quota else headers

    async def renew(self) -> bool:
        """Get another token after the provider rejected this one. Return False if it was given as a text."""
        if callable(self._token):
            return True
        if self._get_given_token():
            return False
        await self._refresh(is_forced=True)
        return True

    def _get_given_token(self) -> str:
        given = self._token if isinstance(self._token, str) else ""
        return (given or os.environ.get(TOKEN_VARIABLE, "")).strip()

    async def _refresh(self, *, is_forced: bool = False) -> Any:
        """Return credentials with a fresh token. Concurrent requests share one refresh."""
        transport = self._transport or get_shared_transport()
        request = _GoogleRequest(transport, asyncio.get_running_loop())
        before = None if self._credentials is None else self._credentials.token
        return await asyncio.to_thread(self._refresh_in_thread, request, before if is_forced else None)

    def _refresh_in_thread(self, request: "_GoogleRequest", rejected: str | None) -> Any:
        google_auth, errors = import_google_auth("google.auth"), import_google_auth("google.auth.exceptions")
        with self._lock:
            try:
                if self._credentials is None:
                    refuse_default_credentials_of_others()
                    self._credentials = google_auth.default(scopes=[SCOPE], request=request)[0]
                credentials = self._credentials
                if not credentials.valid or credentials.token == rejected:
                    credentials.refresh(request)
            except ImportError as error:
                text = f"these credentials for Vertex AI need a package: {error}; {_EXTRA_ADVICE}"
                raise ConfigError(text) from error
            except errors.DefaultCredentialsError as error:
                missing = f"; for the account of this machine, {_EXTRA_ADVICE}" if find_spec("requests") is None else ""
                raise AuthFailed(f"there are no credentials for Vertex AI ({error}): {_ADVICE}{missing}") from error
            except errors.TransportError as error:
                raise ProviderDown(f"no token for Vertex AI: Google cannot be reached: {error}; try again") from error
            except errors.GoogleAuthError as error:
                raise AuthFailed(f"Google issues no token for Vertex AI ({_get_reason(error)}): {_ADVICE}") from error
            return credentials

    def __repr__(self) -> str:
        return f"GoogleAuth({'token' if callable(self._token) or self._get_given_token() else 'default credentials'})"


def import_google_auth(module: str) -> Any:
    """Import a module of `google-auth`. Raise `ConfigError` if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"Vertex AI needs google-auth to find credentials, and it is not installed: {_EXTRA_ADVICE}, "
            f"or set {TOKEN_VARIABLE} to an access token"
        ) from error


def _get_reason(error: Exception) -> str:
    """Return the first line of an error; further lines repeat the server's response."""
    return str(error.args[0] if error.args else error).partition("\n")[0]


class _GoogleResponse(Struct, frozen=True):
    """Response in the form that `google-auth` reads."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class _GoogleRequest:
    """Function that sends the requests of `google-auth` with a transport on an event loop, called from a thread."""

    def __init__(self, transport: Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **_options: Any,
    ) -> _GoogleResponse:
        content = body.encode() if isinstance(body, str) else body or b""
        sending = self._send(method, url, dict(headers or {}), content)
        try:
            return asyncio.run_coroutine_threadsafe(sending, self._loop).result(timeout)
        except (NetError, TimeoutError, ModelError) as error:
            raise import_google_auth("google.auth.exceptions").TransportError(str(error)) from error

    async def _send(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> _GoogleResponse:
        transport = self._transport
        if method == "GET":
            if not isinstance(transport, SupportsGet):
                raise ProviderDown(
                    f"the transport {transport!r} cannot send GET requests, which Google's credentials need"
                )
            opened = transport.get(url, headers)
        else:
            opened = transport.post(url, headers, body)
        async with opened as answer:
            return _GoogleResponse(answer.status, answer.headers, await answer.read(_MAX_ANSWER_BYTES))


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
