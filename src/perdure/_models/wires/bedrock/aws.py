"""Sign requests to Bedrock and parse its event streams, with botocore, which is imported on first use."""

import asyncio
import importlib
import os
import re
import threading
from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from perdure._core.values.error import AuthFailed, ConfigError, ReplyCutOff
from perdure._io.home.paths import has_user_home


def import_botocore(module: str) -> Any:
    """Import a submodule of botocore. Raise `ConfigError` if botocore is not installed."""
    try:
        return importlib.import_module(f"botocore.{module}")
    except ImportError as error:
        raise ConfigError(
            "Amazon Bedrock needs botocore, which is not installed: pip install 'perdure[bedrock]'"
        ) from error


TOKEN_VARIABLE = "AWS_BEARER_TOKEN_BEDROCK"  # noqa: S105 - the name of a variable
DEFAULT_REGION = "us-east-1"

_SERVICE = "bedrock"
_SETTINGS_FILES = {"config_file": "AWS_CONFIG_FILE", "credentials_file": "AWS_SHARED_CREDENTIALS_FILE"}
"""The variables of botocore that name files in the home folder, and those of the environment that name others."""
_REGION_IN_HOST = re.compile(r"\bbedrock-runtime(?:-fips)?[.]([a-z]{2}(?:-[a-z]+)+-\d+)[.]")


def get_region(url: str = "") -> str:
    """Return the AWS region in this URL, or else that of the environment."""
    found = _REGION_IN_HOST.search(urlsplit(url).netloc)
    if found is not None:
        return found[1]
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or DEFAULT_REGION


class BedrockAuth:
    """Authentication at Bedrock. Credentials are loaded at the first request, and again when they are rejected."""

    def __init__(self, *, token: str = "", profile_name: str = "") -> None:
        """Use this bearer token or AWS profile; each overrides the environment."""
        self._token = token
        self._profile_name = profile_name
        self._credentials: Any = None
        self._lock = threading.Lock()
        """Lets one of several concurrent callers load the credentials. Not an asyncio lock: an endpoint may serve
        several event loops.
        """

    @property
    def identity(self) -> str:
        """Name that identifies the credentials without revealing them."""
        token = self._bearer_token()
        if token:
            return sha256(token.encode()).hexdigest()[:16]
        named = self._profile_name or os.environ.get("AWS_PROFILE") or os.environ.get("AWS_ACCESS_KEY_ID") or "default"
        return f"aws-{sha256(named.encode()).hexdigest()[:16]}"

    async def headers(self, url: str, body: bytes) -> Mapping[str, str]:
        """Return the headers that authenticate this request: the token, or a signature of URL and body."""
        token = self._bearer_token()
        if token:
            return {"authorization": f"Bearer {token}"}
        return _sign_request(url, body, await self._get_credentials())

    async def renew(self) -> bool:
        """Load the credentials again. Return True if they have changed."""
        if self._bearer_token() or self._credentials is None:
            return False
        before = (await self._get_credentials()).token, (await self._get_credentials()).access_key
        self._credentials = None
        after = await self._get_credentials()
        return before != (after.token, after.access_key)

    def _bearer_token(self) -> str:
        return (self._token or os.environ.get(TOKEN_VARIABLE, "")).strip()

    async def _get_credentials(self) -> Any:
        """Return the current AWS credentials. Credentials of a role expire, and are refreshed in a thread."""
        credentials = self._credentials
        if credentials is None or _needs_refresh(credentials):
            return await asyncio.to_thread(self._load_credentials)
        return credentials.get_frozen_credentials()

    def _load_credentials(self) -> Any:
        with self._lock:
            if self._credentials is None:
                self._credentials = _open_session(self._profile_name).get_credentials()
            if self._credentials is None:
                raise AuthFailed(
                    f"there are no credentials for Amazon Bedrock: set {TOKEN_VARIABLE}, or AWS_ACCESS_KEY_ID and "
                    f"AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
                )
            return self._credentials.get_frozen_credentials()

    def __repr__(self) -> str:
        return f"BedrockAuth({'token' if self._bearer_token() else 'signature'})"


def _open_session(profile_name: str) -> Any:
    """Return a session of botocore. Without a home folder it would look for one in the working folder.

    Its settings there, which a repository could ship, may name a program that gives credentials.
    """
    session: Any = import_botocore("session").Session(profile=profile_name or None)
    if not has_user_home():
        for name, variable in _SETTINGS_FILES.items():
            if not os.environ.get(variable):
                session.set_config_variable(name, os.devnull)
    return session


def _needs_refresh(credentials: Any) -> bool:
    refresh_needed: Any = getattr(credentials, "refresh_needed", None)
    return bool(refresh_needed is not None and refresh_needed())


def _sign_request(url: str, body: bytes, credentials: Any) -> dict[str, str]:
    kept = {"content-type": "application/json"}  # signed as well
    request: Any = import_botocore("awsrequest").AWSRequest(method="POST", url=url, data=body, headers=kept)
    import_botocore("auth").SigV4Auth(credentials, _SERVICE, get_region(url)).add_auth(request)
    return {name.lower(): value for name, value in request.headers.items()}


class EventStreamMessage(Struct, frozen=True, gc=False):
    """Message of an AWS event stream: an event or error with its name and payload."""

    kind: str
    """`event`, `exception` or `error`."""
    name: str
    """Name of the event or of the error."""
    payload: bytes


class EventStreamParser:
    """Incremental parser of AWS event streams; returns each message once it is complete and its checksums match."""

    def __init__(self) -> None:
        eventstream = import_botocore("eventstream")
        self._buffer: Any = eventstream.EventStreamBuffer()
        self._damaged: type[Exception] = eventstream.ParserError

    def feed(self, data: bytes) -> list[EventStreamMessage]:
        """Add bytes and return the messages that they complete. Raise `ReplyCutOff` if they are damaged."""
        self._buffer.add_data(data)
        try:
            return [_build_message(message) for message in self._buffer]
        except (self._damaged, LookupError, ValueError) as error:
            raise ReplyCutOff(f"the event stream is damaged ({error}); asking again may help") from error


def _build_message(message: Any) -> EventStreamMessage:
    headers: dict[str, Any] = message.headers
    kind = str(headers.get(":message-type", "event"))
    name = headers.get(":event-type") or headers.get(":exception-type") or headers.get(":error-code") or ""
    payload: bytes = message.payload or str(headers.get(":error-message", "")).encode()
    return EventStreamMessage(kind, str(name), payload)
