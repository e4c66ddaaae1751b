"""HTTP requests of an OAuth login to an MCP server, under an egress policy, because the server chooses the URLs."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import urlencode

import msgspec

from perdure.core.error import ConfigError
from perdure.core.url_target import UrlTarget
from perdure.mcp.server_settings import McpServer
from perdure.net.bounded_body import BoundedBody
from perdure.net.egress_policy import EgressPolicy
from perdure.net.error import NetError
from perdure.net.pooled_http_transport import HttpTransport

_SECONDS: Final = 30.0
_MAX_BYTES: Final = 256 * 1024
_LOOPBACK_NETWORKS: Final = ("127.0.0.0/8", "::1/128")
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_HTTP_OK: Final = 200


class LoginFailed(ConfigError):
    """Raised when a login to an MCP server fails; the message says why."""


def is_loopback(url: UrlTarget) -> bool:
    """Return True if the host of a URL is this machine."""
    return url.host in _LOOPBACK_NAMES


def build_login_policy(server: McpServer) -> EgressPolicy:
    """Build the egress policy of an OAuth login: public hosts, and this machine only if the MCP server is on it."""
    if is_loopback(UrlTarget.of(server.url)):
        return EgressPolicy(ports=None, private_networks=_LOOPBACK_NETWORKS)
    return EgressPolicy(ports=None)


class OAuthHttp:
    """HTTP client for the requests of an OAuth login. It checks every URL, and follows no redirects."""

    def __init__(self, policy: EgressPolicy) -> None:
        self._policy = policy
        self._http = HttpTransport(egress=policy)

    def check_url(self, url: object, what: str) -> UrlTarget:
        """Return an endpoint as a checked URL. Raises `LoginFailed` unless it is https, or on this machine."""
        if not isinstance(url, str):
            raise LoginFailed(f"{what} is missing")
        try:
            target = self._policy.check_url(url)
        except NetError as error:
            raise LoginFailed(f"{what} cannot be used: {error}") from None
        if target.scheme != "https" and not is_loopback(target):
            raise LoginFailed(f"{what} cannot be used: {target.origin} is not encrypted")
        return target

    async def get_json(self, url: str, what: str) -> dict[str, Any] | None:
        """Return a JSON document; `None` if there is none at this URL. Raises `LoginFailed`."""
        target = self.check_url(url, what)
        status, _, body = await self._send(target, None, {"accept": "application/json"})
        return _parse_object(body) if status == _HTTP_OK else None

    async def get_challenge(self, url: str) -> tuple[int, str]:
        """Send a request without a token, and return the status and the `WWW-Authenticate` header of the answer."""
        target = self.check_url(url, "the address of the server")
        accept = {"accept": "application/json, text/event-stream"}
        status, headers, _ = await self._send(target, None, accept, reads_body=False)  # it may be a stream without end
        return status, headers.get("www-authenticate", "")

    async def post_form(self, url: str, fields: Mapping[str, str], headers: Mapping[str, str]) -> tuple[int, Any]:
        """Post a form, and return the status and the JSON object of the answer. Raises `LoginFailed`."""
        kind = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json", **headers}
        target = self.check_url(url, "the token endpoint")
        status, _, body = await self._send(target, urlencode(fields).encode(), kind)
        return status, _parse_object(body)

    async def post_json(self, url: str, value: Any, what: str) -> tuple[int, Any]:
        """Post JSON, and return the status and the JSON object of the answer. Raises `LoginFailed`."""
        target = self.check_url(url, what)
        kind = {"content-type": "application/json", "accept": "application/json"}
        status, _, body = await self._send(target, msgspec.json.encode(value), kind)
        return status, _parse_object(body)

    async def _send(
        self, target: UrlTarget, body: bytes | None, headers: Mapping[str, str], *, reads_body: bool = True
    ) -> tuple[int, Mapping[str, str], bytes]:
        sent = {"accept-encoding": "identity", **headers}
        try:
            async with asyncio.timeout(_SECONDS):
                opened = self._http.get(target.url, sent) if body is None else self._http.post(target.url, sent, body)
                async with opened as response:
                    if not reads_body:
                        return response.status, response.headers, b""
                    read = BoundedBody(_MAX_BYTES, response.headers.get("content-encoding", ""))
                    async for data in response.chunks():
                        read.feed(data)
                        if read.is_full:
                            raise LoginFailed(f"{target.origin} sends more than a login needs")
                    return response.status, response.headers, read.finish()
        except TimeoutError:
            raise LoginFailed(f"{target.origin} did not answer in time") from None
        except NetError as error:
            raise LoginFailed(f"{target.origin} cannot be reached: {error}") from None

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()


def _parse_object(body: bytes) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
