"""Authenticate with the tokens of the Codex CLI's login, renewing them before they expire."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from perdure.core.clock_and_ids import SYSTEM_CLOCK, Clock
from perdure.core.error import AuthFailed, ConfigError, ModelError, ProviderDown
from perdure.models.mistyped_json_fields import as_dict, as_text
from perdure.models.provider_errors import classify_error
from perdure.net.error import NetError
from perdure.net.transport import Transport

from .login_file import (
    LOGIN_ADVICE,
    CodexLogin,
    get_file_fingerprint,
    get_login_path,
    parse_login_tokens,
    read_login,
    write_login,
)

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
