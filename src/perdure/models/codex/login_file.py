"""Read and write the login file of the Codex CLI."""

# ruff: noqa: PTH111, PTH118, PTH123 - os.path is enough here
import base64
import binascii
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from perdure.core.error import AuthFailed
from perdure.files.perdure_home import get_user_home
from perdure.files.private_file import replace_private_file
from perdure.models.mistyped_json_fields import as_dict, as_text

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
