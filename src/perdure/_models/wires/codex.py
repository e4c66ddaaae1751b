"""Models of a ChatGPT subscription: the wire of the Codex CLI's endpoint, and authentication by its login file."""

# ruff: noqa: PTH111, PTH118, PTH123 - os.path is enough here

import asyncio
import base64
import binascii
import logging
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from perdure._core.model.protocol import Request
from perdure._core.values.clock import SYSTEM_CLOCK, Clock
from perdure._core.values.error import AuthFailed, ConfigError, ModelError, ProviderDown
from perdure._io.home.paths import get_user_home, replace_private_file
from perdure._io.http.transport import NetError, Transport
from perdure._models.endpoint.memo import EncodingMemo
from perdure._models.endpoint.profile import Profile
from perdure._models.endpoint.wire import Decoder, EncodedRequest
from perdure._models.provider_errors.classify import classify_error

from .lenient_json import as_dict, as_text
from .openai_responses import WIRE as RESPONSES
from .openai_responses.encode import build_cache_key

if TYPE_CHECKING:
    from perdure._models.endpoint.http_model import HttpModel
    from perdure._models.endpoint.throttle import Throttle


LIFETIME_SECONDS: Final = 8 * 24 * 3600.0
"""Age at which a login is renewed, expired or not; the CLI does the same."""
MARGIN_SECONDS: Final = 60.0
"""A login that expires within this time counts as expired."""
LOGIN_ADVICE: Final = "run `codex login` again"

_TOKENS = ("id_token", "access_token", "refresh_token")
_ACCOUNT = "https://api.openai.com/auth"
"""Token claim with the account."""


class CodexLogin(Struct, frozen=True, kw_only=True):
    """Tokens and account of the Codex CLI's login."""

    access_token: str
    refresh_token: str = ""
    account_id: str = ""
    expires_at: float | None = None
    """Expiry in seconds since 1970; `None` if the token does not contain it."""
    refreshed_at: float | None = None
    """Time of the last renewal."""

    def is_expired(self, now: float) -> bool:
        """Return True if the access token has expired."""
        return self.expires_at is not None and self.expires_at <= now + MARGIN_SECONDS

    def is_stale(self, now: float) -> bool:
        """Return True if the login should be renewed before it is used."""
        return self.is_expired(now) or (self.refreshed_at is not None and now - self.refreshed_at >= LIFETIME_SECONDS)

    def __repr__(self) -> str:  # without the tokens
        return f"CodexLogin(account_id={self.account_id!r}, expires_at={self.expires_at!r})"


def get_login_path() -> str:
    """Return the path of the Codex CLI's login file: `PERDURE_CODEX_AUTH`, or `auth.json` in `CODEX_HOME`.

    Without either variable, `auth.json` in `~/.codex`.
    """
    home = os.environ.get("CODEX_HOME") or os.path.join(get_user_home(), ".codex")
    return os.path.expanduser(os.environ.get("PERDURE_CODEX_AUTH") or os.path.join(home, "auth.json"))


def read_login(path: str) -> CodexLogin:
    """Read the tokens of a ChatGPT login from the Codex CLI's login file. Raises `AuthFailed` if it has none."""
    kept = _read_login_file(path)
    tokens = as_dict(kept.get("tokens"))
    if not as_text(tokens.get("access_token")):
        raise AuthFailed(
            f"{path!r} contains no login with a ChatGPT subscription: run `codex login` and choose that, or use a "
            f"model of the provider 'openai' with a key"
        )
    return parse_login_tokens(tokens, _parse_timestamp(kept.get("last_refresh")))


def parse_login_tokens(tokens: Mapping[str, Any], refreshed_at: float | None) -> CodexLogin:
    """Build a `CodexLogin` from the tokens of the login file."""
    claims = _decode_claims(as_text(tokens.get("access_token")))
    account = as_dict(claims.get(_ACCOUNT)) or as_dict(_decode_claims(as_text(tokens.get("id_token"))).get(_ACCOUNT))
    expires = claims.get("exp")
    return CodexLogin(
        access_token=as_text(tokens.get("access_token")),
        refresh_token=as_text(tokens.get("refresh_token")),
        account_id=as_text(tokens.get("account_id")) or as_text(account.get("chatgpt_account_id")),
        expires_at=expires if isinstance(expires, (int, float)) else None,
        refreshed_at=refreshed_at,
    )


def write_login(path: str, token_response: Mapping[str, Any], now: float) -> None:
    """Write new tokens to the Codex CLI's login file, keeping its other fields; atomic, readable only by its owner."""
    kept = _read_login_file(path)
    renewed = {name: token_response[name] for name in _TOKENS if as_text(token_response.get(name))}
    kept["tokens"] = {**as_dict(kept.get("tokens")), **renewed}
    kept["last_refresh"] = datetime.fromtimestamp(now, UTC).isoformat().replace("+00:00", "Z")
    replace_private_file(os.path.realpath(path), msgspec.json.format(msgspec.json.encode(kept), indent=2))


def get_file_fingerprint(path: str) -> object:
    """Return a fingerprint of the file that changes when the file does; `None` if there is no file."""
    try:
        seen = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_size, seen.st_ino


def _read_login_file(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=dict[str, Any])
    except OSError as error:
        raise AuthFailed(
            f"there is no login of the Codex CLI at {path!r} ({error.strerror}): run `codex login`, or set "
            f"PERDURE_CODEX_AUTH to its auth.json"
        ) from error
    except msgspec.MsgspecError:
        raise AuthFailed(f"the login of the Codex CLI at {path!r} is not a JSON object: {LOGIN_ADVICE}") from None


def _decode_claims(token: str) -> Mapping[str, Any]:
    """Decode the claims of a token. The signature is not checked: they only decide when to renew the token."""
    _, _, rest = token.partition(".")
    middle, _, _ = rest.partition(".")
    try:
        return as_dict(msgspec.json.decode(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4))))
    except (binascii.Error, ValueError):
        return {}


def _parse_timestamp(told: Any) -> float | None:
    try:
        return datetime.fromisoformat(as_text(told)).timestamp()
    except ValueError:
        return None


TOKEN_URL: Final = "https://auth.openai.com/oauth/token"  # noqa: S105 - a URL
CLIENT_ID: Final = "app_EMoamEEZ73f0CkXaXp7hrann"
"""Public OAuth client id of the CLI, which its login belongs to."""
MIN_RENEWAL_INTERVAL_SECONDS: Final = 60.0
"""Minimum time between renewals: requests in flight during a renewal need no other one."""

_MAX_ANSWER_BYTES = 256 * 1024
_MAX_CODE_LENGTH = 64
_OK = 200
_REFUSED = frozenset({400, 401, 403})

_log: Final = logging.getLogger("perdure.models")


class CodexAuth:
    """Authentication with the tokens of the Codex CLI's login, renewed before they expire.

    A renewal invalidates the old login. So concurrent requests share one renewal, which continues when they are
    cancelled; and if the file has changed, another process has renewed the login, and that one is used.
    """

    def __init__(
        self, transport: Transport, *, path: str = "", token_url: str = TOKEN_URL, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.path = path or get_login_path()
        """Path of the login file."""
        self._transport = transport
        self._token_url = token_url
        self._clock = clock
        self._login_read: tuple[object, CodexLogin] | None = None
        """Login read last, with the file's fingerprint at that time."""
        self._sent_token = ""
        """Access token sent last."""
        self._renewal: asyncio.Task[CodexLogin] | None = None
        self._renewed_at: float | None = None

    @property
    def identity(self) -> str:
        """Name that identifies the login: all models with one login share its rate limits."""
        return f"codex:{self.path}"

    def check(self) -> None:
        """Raise `ConfigError` unless the Codex CLI is logged in."""
        try:
            self._read_login()
        except AuthFailed as error:
            raise ConfigError(str(error)) from error

    async def headers(self, url: str, body: bytes) -> Mapping[str, str]:  # noqa: ARG002 - part of the protocol
        """Return the headers with token and account. Raises `AuthFailed` if there is no login, or it has expired."""
        login = self._read_login()
        if login.is_stale(self._clock.now()):
            login = await self._renew_or_keep(login)
        self._sent_token = login.access_token
        headers = {
            "authorization": f"Bearer {login.access_token}",
            "originator": "perdure",
            "openai-beta": "responses=experimental",
        }
        return {**headers, "chatgpt-account-id": login.account_id} if login.account_id else headers

    async def renew(self) -> bool:
        """Renew the rejected token, unless there is a newer one already. Raises `AuthFailed` if that fails."""
        login = self._read_login()
        is_quiet = (
            self._renewed_at is not None and self._clock.monotonic() - self._renewed_at < MIN_RENEWAL_INTERVAL_SECONDS
        )
        if login.access_token == self._sent_token and not is_quiet:
            await self._share_renewal(login)
        return True

    async def _renew_or_keep(self, login: CodexLogin) -> CodexLogin:
        """Renew an old login. If that fails, return the old one as long as it is not expired."""
        try:
            return await self._share_renewal(login)
        except ModelError:
            if login.is_expired(self._clock.now()):
                raise
            return login

    async def _share_renewal(self, old: CodexLogin) -> CodexLogin:
        loop = asyncio.get_running_loop()
        renewal = self._renewal
        if renewal is None or renewal.done() or renewal.get_loop() is not loop:
            renewal = self._renewal = loop.create_task(self._renew(old), name="renewal of the Codex login")
            renewal.add_done_callback(_retrieve_exception)
        return await asyncio.shield(renewal)

    async def _renew(self, old: CodexLogin) -> CodexLogin:
        if not old.refresh_token:
            raise AuthFailed(f"the login at {self.path!r} has expired and cannot be renewed: {LOGIN_ADVICE}")
        try:
            answer = await self._request_tokens(old.refresh_token)
        except AuthFailed:
            login = self._read_login()
            if login.access_token == old.access_token:
                raise
            return login  # the CLI renewed it first, which invalidated ours
        now = self._clock.now()
        self._renewed_at = self._clock.monotonic()
        try:
            write_login(self.path, answer, now)
        except (OSError, AuthFailed) as error:  # this process can use it, others cannot
            _log.warning("the renewed login cannot be written to %r: %s; later, %s", self.path, error, LOGIN_ADVICE)
            renewed = {"refresh_token": old.refresh_token, "account_id": old.account_id, **answer}
            self._login_read = get_file_fingerprint(self.path), parse_login_tokens(renewed, now)
        return self._read_login()

    async def _request_tokens(self, refresh_token: str) -> Mapping[str, Any]:
        """Request new tokens. Neither the request nor the response is logged."""
        asked = {"client_id": CLIENT_ID, "grant_type": "refresh_token", "refresh_token": refresh_token}
        headers = {"content-type": "application/json", "accept": "application/json"}
        try:
            async with self._transport.post(self._token_url, headers, msgspec.json.encode(asked)) as answer:
                said = _parse_object(await answer.read(_MAX_ANSWER_BYTES))
        except NetError as error:
            raise ProviderDown(f"the Codex login cannot be renewed: {error}; try again later") from error
        if answer.status in _REFUSED:
            raise AuthFailed(f"the login at {self.path!r} was not renewed ({_get_error_code(said)}): {LOGIN_ADVICE}")
        if answer.status != _OK:
            raise classify_error(answer.status, answer.headers, "", "the login of Codex")
        if not as_text(said.get("access_token")):
            raise ProviderDown("the response to the renewal of the Codex login has no token; try again later")
        return said

    def _read_login(self) -> CodexLogin:
        """Return the login in the file. The file is read again only if it has changed."""
        seen = get_file_fingerprint(self.path)
        if self._login_read is None or self._login_read[0] != seen:
            self._login_read = seen, read_login(self.path)
        return self._login_read[1]

    def __repr__(self) -> str:
        return f"CodexAuth({self.path!r})"


def _retrieve_exception(renewal: "asyncio.Task[CodexLogin]") -> None:
    """Retrieve a renewal's exception, so that asyncio does not report it if no task waits for it any more."""
    if not renewal.cancelled():
        renewal.exception()


def _parse_object(said: bytes) -> Mapping[str, Any]:
    try:
        return as_dict(msgspec.json.decode(said))
    except msgspec.MsgspecError:
        return {}


def _get_error_code(said: Mapping[str, Any]) -> str:
    """Return the error code of a failed renewal. The rest is not shown, as it might repeat the token."""
    error = said.get("error")
    code = as_text(error) or as_text(as_dict(error).get("code"))
    is_word = code.replace("_", "").isalnum() and len(code) < _MAX_CODE_LENGTH
    return code if is_word else "no reason was given"


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
    from perdure._io.http.pooled import get_shared_transport
    from perdure._models.endpoint.http_model import HttpModel

    transport = transport or get_shared_transport()
    auth = CodexAuth(transport)
    auth.check()
    return HttpModel(
        WIRE, get_codex_profile(model), base_url=base_url, auth=auth, transport=transport, throttle=throttle
    )
