"""How Bedrock knows us: a bearer token, or a signature by whatever credentials AWS finds. Above: `endpoint.py`, the
catalogue. Below: `library.py`.

Credentials come from the ordinary chain: the environment, a profile, a role. Looking for them may read files and ask
the network, so that is done in a thread; a signature is made where it is needed.
"""

import asyncio
import os
import re
import threading
from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from perdure.core.error import AuthFailed

from .library import botocore

TOKEN_VARIABLE = "AWS_BEARER_TOKEN_BEDROCK"  # noqa: S105 - the name of a variable
DEFAULT_REGION = "us-east-1"

_SERVICE = "bedrock"
_REGION_IN_HOST = re.compile(r"\bbedrock-runtime(?:-fips)?[.]([a-z]{2}(?:-[a-z]+)+-\d+)[.]")


def region_of(url: str = "") -> str:
    """The region of this address, or else of the environment."""
    found = _REGION_IN_HOST.search(urlsplit(url).netloc)
    if found is not None:
        return found[1]
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or DEFAULT_REGION


class BedrockAuth:
    """Says who is asking. Keys are looked for when they are needed, and again when they do not work any more."""

    def __init__(self, *, token: str = "", profile_name: str = "") -> None:
        """`token` and `profile_name` stand for what the environment would say."""
        self._token = token
        self._profile_name = profile_name
        self._credentials: Any = None
        self._lock = threading.Lock()
        """Of those who look at the same time, one does. (No lock of asyncio: an endpoint may serve several loops.)"""

    @property
    def identity(self) -> str:
        """Names the key without giving it away."""
        token = self._bearer_token()
        if token:
            return sha256(token.encode()).hexdigest()[:16]
        named = self._profile_name or os.environ.get("AWS_PROFILE") or os.environ.get("AWS_ACCESS_KEY_ID") or "default"
        return f"aws-{sha256(named.encode()).hexdigest()[:16]}"

    async def headers(self, url: str, body: bytes) -> Mapping[str, str]:
        """The token, or a signature of this very request."""
        token = self._bearer_token()
        if token:
            return {"authorization": f"Bearer {token}"}
        return _signature(url, body, await self._frozen())

    async def renew(self) -> bool:
        """Look for credentials once more; whether there are others now."""
        if self._bearer_token() or self._credentials is None:
            return False
        before = (await self._frozen()).token, (await self._frozen()).access_key
        self._credentials = None
        after = await self._frozen()
        return before != (after.token, after.access_key)

    def _bearer_token(self) -> str:
        return (self._token or os.environ.get(TOKEN_VARIABLE, "")).strip()

    async def _frozen(self) -> Any:
        """The credentials as they are now. Those of a role run out, and are then renewed in a thread as well."""
        credentials = self._credentials
        if credentials is None or _needs_refresh(credentials):
            return await asyncio.to_thread(self._look_up)
        return credentials.get_frozen_credentials()

    def _look_up(self) -> Any:
        with self._lock:
            if self._credentials is None:
                session = botocore("session").Session(profile=self._profile_name or None)
                self._credentials = session.get_credentials()
            if self._credentials is None:
                raise AuthFailed(
                    f"there are no credentials for Amazon Bedrock: set {TOKEN_VARIABLE}, or AWS_ACCESS_KEY_ID and "
                    f"AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
                )
            return self._credentials.get_frozen_credentials()

    def __repr__(self) -> str:
        return f"BedrockAuth({'token' if self._bearer_token() else 'signature'})"


def _needs_refresh(credentials: Any) -> bool:
    refresh_needed: Any = getattr(credentials, "refresh_needed", None)
    return bool(refresh_needed is not None and refresh_needed())


def _signature(url: str, body: bytes, credentials: Any) -> dict[str, str]:
    kept = {"content-type": "application/json"}  # signed as well
    request: Any = botocore("awsrequest").AWSRequest(method="POST", url=url, data=body, headers=kept)
    botocore("auth").SigV4Auth(credentials, _SERVICE, region_of(url)).add_auth(request)
    return {name.lower(): value for name, value in request.headers.items()}
