"""Who is asking: the login of the Codex CLI, kept fresh. Above: the package. Below: `login.py`, `net`."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from perdure.core.clock import SYSTEM_CLOCK, Clock
from perdure.core.error import AuthFailed, ConfigError, ModelError, ProviderDown
from perdure.models.refusal import classified
from perdure.models.untrusted import mapping, text
from perdure.net.error import NetError
from perdure.net.transport import Transport

from .login import LOGIN_AGAIN, Login, appearance, login_of, login_path, read_login, write_login

TOKEN_URL: Final = "https://auth.openai.com/oauth/token"  # noqa: S105 - an address
CLIENT_ID: Final = "app_EMoamEEZ73f0CkXaXp7hrann"
"""The public name of the CLI, to which its login belongs."""
QUIET_SECONDS: Final = 60.0
"""For so long after a renewal none is made again: those whose requests were under way then need no other."""

_MOST_ANSWER_BYTES = 256 * 1024
_MOST_CODE_LENGTH = 64
_OK = 200
_REFUSED = frozenset({400, 401, 403})

_log: Final = logging.getLogger("perdure.models")


class CodexAuth:
    """The login of the Codex CLI, read when it is needed and renewed when it is old.

    A renewal spends the old login. So it is made once, however many ask for it, and goes on when they are cancelled;
    and whenever the file has changed, somebody else has renewed it, and theirs is used.
    """

    def __init__(
        self, transport: Transport, *, path: str = "", token_url: str = TOKEN_URL, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.path = path or login_path()
        """The file of the login."""
        self._transport = transport
        self._token_url = token_url
        self._clock = clock
        self._kept: tuple[object, Login] | None = None
        """What was read last, and what the file looked like then."""
        self._given = ""
        """The token that was given out last."""
        self._renewal: asyncio.Task[Login] | None = None
        self._renewed_at: float | None = None

    @property
    def identity(self) -> str:
        """One login, one limit."""
        return f"codex:{self.path}"

    def check(self) -> None:
        """Raise a `ConfigError` when there is no login."""
        try:
            self._login()
        except AuthFailed as error:
            raise ConfigError(str(error)) from error

    async def headers(self, url: str, body: bytes) -> Mapping[str, str]:  # noqa: ARG002 - what others need
        """The token, whose account it is, and who we are. Raises `AuthFailed` when there is no login, or it is over."""
        login = self._login()
        if login.is_stale(self._clock.now()):
            login = await self._fresh(login)
        self._given = login.access_token
        headers = {
            "authorization": f"Bearer {login.access_token}",
            "originator": "perdure",
            "openai-beta": "responses=experimental",
        }
        return {**headers, "chatgpt-account-id": login.account_id} if login.account_id else headers

    async def renew(self) -> bool:
        """The token was refused: get another one, unless there is one already. Raises `AuthFailed` when that fails."""
        login = self._login()
        is_quiet = self._renewed_at is not None and self._clock.monotonic() - self._renewed_at < QUIET_SECONDS
        if login.access_token == self._given and not is_quiet:
            await self._renewed(login)
        return True

    async def _fresh(self, login: Login) -> Login:
        """A login in place of one that is old. One that is old but not expired will do while there is no other."""
        try:
            return await self._renewed(login)
        except ModelError:
            if login.is_expired(self._clock.now()):
                raise
            return login

    async def _renewed(self, old: Login) -> Login:
        loop = asyncio.get_running_loop()
        renewal = self._renewal
        if renewal is None or renewal.done() or renewal.get_loop() is not loop:
            renewal = self._renewal = loop.create_task(self._renew(old), name="renewal of the Codex login")
            renewal.add_done_callback(_look_at)
        return await asyncio.shield(renewal)

    async def _renew(self, old: Login) -> Login:
        if not old.refresh_token:
            raise AuthFailed(f"the login at {self.path!r} is over, and cannot be renewed: {LOGIN_AGAIN}")
        try:
            answer = await self._ask(old.refresh_token)
        except AuthFailed:
            login = self._login()
            if login.access_token == old.access_token:
                raise
            return login  # the CLI was quicker, and has spent what we had
        now = self._clock.now()
        self._renewed_at = self._clock.monotonic()
        try:
            write_login(self.path, answer, now)
        except (OSError, AuthFailed) as error:  # it is good for this process, and lost for all others
            _log.warning("the renewed login cannot be written to %r: %s; later, %s", self.path, error, LOGIN_AGAIN)
            renewed = {"refresh_token": old.refresh_token, "account_id": old.account_id, **answer}
            self._kept = appearance(self.path), login_of(renewed, now)
        return self._login()

    async def _ask(self, refresh_token: str) -> Mapping[str, Any]:
        """The tokens that follow. What is sent and what comes is not told to anybody."""
        asked = {"client_id": CLIENT_ID, "grant_type": "refresh_token", "refresh_token": refresh_token}
        headers = {"content-type": "application/json", "accept": "application/json"}
        try:
            async with self._transport.post(self._token_url, headers, msgspec.json.encode(asked)) as answer:
                said = _object(await answer.read(_MOST_ANSWER_BYTES))
        except NetError as error:
            raise ProviderDown(f"the login of Codex cannot be renewed: {error}; try again later") from error
        if answer.status in _REFUSED:
            raise AuthFailed(f"the login at {self.path!r} was not renewed ({_code(said)}): {LOGIN_AGAIN}")
        if answer.status != _OK:
            raise classified(answer.status, answer.headers, "", "the login of Codex")
        if not text(said.get("access_token")):
            raise ProviderDown("the login of Codex was renewed by an answer without a token; try again later")
        return said

    def _login(self) -> Login:
        """What the file says now. It is read again only when it has changed."""
        seen = appearance(self.path)
        if self._kept is None or self._kept[0] != seen:
            self._kept = seen, read_login(self.path)
        return self._kept[1]

    def __repr__(self) -> str:
        return f"CodexAuth({self.path!r})"


def _look_at(renewal: "asyncio.Task[Login]") -> None:
    """Take notice of how a renewal ended: perhaps nobody waits for it any more."""
    if not renewal.cancelled():
        renewal.exception()


def _object(said: bytes) -> Mapping[str, Any]:
    try:
        return mapping(msgspec.json.decode(said))
    except msgspec.MsgspecError:
        return {}


def _code(said: Mapping[str, Any]) -> str:
    """Why it was refused, in one word. The rest is not told: it might repeat what was sent."""
    error = said.get("error")
    code = text(error) or text(mapping(error).get("code"))
    is_word = code.replace("_", "").isalnum() and len(code) < _MOST_CODE_LENGTH
    return code if is_word else "no reason was given"
