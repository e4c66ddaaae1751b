"""Authenticate at Google Cloud: with an access token, or with the application default credentials (ADC).

`google-auth` finds the credentials (a service account, a login of gcloud, the account of the machine, a federated
identity) and signs with their keys. It sends its own requests through our transport, from a thread; that it imports the
package `requests` for the last two has no other effect.
"""

import asyncio
import importlib
import os
import threading
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final

from msgspec import Struct

from perdure.core.error import AuthFailed, ConfigError, ModelError, ProviderDown
from perdure.models.auth import TokenSource, fetch_token
from perdure.models.model_list import SupportsGet
from perdure.models.vertex_environment import TOKEN_VARIABLE, get_adc_path, refuse_default_credentials_of_others
from perdure.net.error import NetError
from perdure.net.pooled_http_transport import get_shared_transport
from perdure.net.transport import Transport

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
