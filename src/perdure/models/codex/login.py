"""The login of the Codex CLI: the file that it keeps, read and written. Above: `auth.py`. Below: nothing."""

# ruff: noqa: PTH105, PTH108, PTH111, PTH118, PTH123 - a path is all that is needed of paths here
import base64
import binascii
import contextlib
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from perdure.core.clock import new_id
from perdure.core.error import AuthFailed
from perdure.models.untrusted import mapping, text

LIFETIME_SECONDS: Final = 8 * 24 * 3600.0
"""After this time a login is renewed, expired or not; the CLI does the same."""
MARGIN_SECONDS: Final = 60.0
"""A login that expires as soon as this counts as expired."""
LOGIN_AGAIN: Final = "run `codex login` once more"

_TOKENS = ("id_token", "access_token", "refresh_token")
_ACCOUNT = "https://api.openai.com/auth"
"""The claim of a token that tells whose it is."""


class Login(Struct, frozen=True, kw_only=True):
    """What there is to know of a login."""

    access_token: str
    refresh_token: str = ""
    account_id: str = ""
    expires_at: float | None = None
    """In seconds since 1970; nothing when the token does not tell."""
    refreshed_at: float | None = None
    """When it was last renewed."""

    def is_expired(self, now: float) -> bool:
        """Whether it is of no use any more."""
        return self.expires_at is not None and self.expires_at <= now + MARGIN_SECONDS

    def is_stale(self, now: float) -> bool:
        """Whether it should be renewed before it is used."""
        return self.is_expired(now) or (self.refreshed_at is not None and now - self.refreshed_at >= LIFETIME_SECONDS)

    def __repr__(self) -> str:  # without the tokens
        return f"Login(account_id={self.account_id!r}, expires_at={self.expires_at!r})"


def login_path() -> str:
    """Where the login is: `PERDURE_CODEX_AUTH`, or `auth.json` in `CODEX_HOME`, or that in `~/.codex`."""
    home = os.environ.get("CODEX_HOME") or os.path.join("~", ".codex")
    return os.path.expanduser(os.environ.get("PERDURE_CODEX_AUTH") or os.path.join(home, "auth.json"))


def read_login(path: str) -> Login:
    """The login in a file of the CLI. Raises `AuthFailed` when there is none."""
    kept = _read(path)
    tokens = mapping(kept.get("tokens"))
    if not text(tokens.get("access_token")):
        raise AuthFailed(
            f"{path!r} holds no login with a ChatGPT subscription: run `codex login` and choose that, or use a model "
            f"of the provider 'openai' with a key"
        )
    return login_of(tokens, _seconds(kept.get("last_refresh")))


def login_of(tokens: Mapping[str, Any], refreshed_at: float | None) -> Login:
    """The login that these tokens amount to."""
    claims = _claims(text(tokens.get("access_token")))
    account = mapping(claims.get(_ACCOUNT)) or mapping(_claims(text(tokens.get("id_token"))).get(_ACCOUNT))
    expires = claims.get("exp")
    return Login(
        access_token=text(tokens.get("access_token")),
        refresh_token=text(tokens.get("refresh_token")),
        account_id=text(tokens.get("account_id")) or text(account.get("chatgpt_account_id")),
        expires_at=expires if isinstance(expires, (int, float)) else None,
        refreshed_at=refreshed_at,
    )


def write_login(path: str, answer: Mapping[str, Any], now: float) -> None:
    """Put new tokens into the file, at once and for its owner alone; whatever else is in it stays."""
    kept = _read(path)
    renewed = {name: answer[name] for name in _TOKENS if text(answer.get(name))}
    kept["tokens"] = {**mapping(kept.get("tokens")), **renewed}
    kept["last_refresh"] = datetime.fromtimestamp(now, UTC).isoformat().replace("+00:00", "Z")
    _replace(os.path.realpath(path), msgspec.json.format(msgspec.json.encode(kept), indent=2))


def appearance(path: str) -> object:
    """Something that changes whenever the file does; nothing when there is no file."""
    try:
        seen = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_size, seen.st_ino


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=dict[str, Any])
    except OSError as error:
        raise AuthFailed(
            f"there is no login of the Codex CLI at {path!r} ({error.strerror}): run `codex login`, or set "
            f"PERDURE_CODEX_AUTH to its auth.json"
        ) from error
    except msgspec.MsgspecError:
        raise AuthFailed(f"the login of the Codex CLI at {path!r} is no JSON object: {LOGIN_AGAIN}") from None


def _replace(place: str, content: bytes) -> None:
    """Nobody ever sees half of it, whatever happens."""
    beside = f"{place}.{new_id()}"
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, place)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


def _claims(token: str) -> Mapping[str, Any]:
    """What a token says of itself. Its signature is not checked: it is only read to know when to renew it."""
    _, _, rest = token.partition(".")
    middle, _, _ = rest.partition(".")
    try:
        return mapping(msgspec.json.decode(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4))))
    except (binascii.Error, ValueError):
        return {}


def _seconds(told: Any) -> float | None:
    try:
        return datetime.fromisoformat(text(told)).timestamp()
    except ValueError:
        return None
