"""HTTP requests of an OAuth login, under an egress policy: find the authorization server, and post to its endpoints."""

import asyncio
import re
from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
from msgspec import Struct

from perdure._core.permission.targets.url import UrlTarget
from perdure._core.values.error import ConfigError
from perdure._io.egress.policy import EgressPolicy
from perdure._io.http.body import BoundedBody
from perdure._io.http.pooled import HttpTransport
from perdure._io.http.transport import NetError
from perdure._mcp.settings import McpServer

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


_PARAMETER: Final = re.compile(r'([a-zA-Z_]+)="([^"\\]*)"')
REQUEST_PARAMETERS: Final = frozenset(
    {
        *("response_type", "response_mode", "client_id", "redirect_uri", "state", "scope", "resource", "request"),
        *("request_uri", "code_challenge", "code_challenge_method", "prompt", "nonce"),
    }
)
"""Parameters of an authorization request, which no endpoint has in its address already."""
_MAX_SCOPE_CHARACTERS: Final = 1_000


class AuthorizationServer(Struct, frozen=True, kw_only=True):
    """OAuth authorization server of an MCP server: its checked endpoints, scopes and features."""

    resource: str
    """The MCP server that tokens are for."""
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    registration_endpoint: str = ""
    takes_metadata_document: bool = False
    """True if a client may name itself by the URL of a document about it."""
    sends_issuer: bool = False
    """True if every answer to an authorization request has `iss`."""
    scope: str = ""
    """The scopes that the server asks for, separated by spaces."""


async def discover_authorization_server(server: McpServer, http: OAuthHttp) -> AuthorizationServer:
    """Find the OAuth authorization server of an MCP server. Raises `LoginFailed` if there is no safe one."""
    _, challenge = await http.get_challenge(server.url)
    parameters = dict(_PARAMETER.findall(challenge))
    resource = await _find_resource(server, parameters.get("resource_metadata", ""), http)
    issuers = resource.get("authorization_servers")
    if not isinstance(issuers, list) or not issuers or not isinstance(issuers[0], str):
        raise LoginFailed(f"MCP server {server.name!r} names no authorization server")
    metadata = await _find_metadata(issuers[0], http)
    scopes = parameters.get("scope") or " ".join(_texts(resource.get("scopes_supported")))
    return _check_metadata(metadata, issuers[0], str(resource["resource"]), scopes[:_MAX_SCOPE_CHARACTERS], http)


async def _find_resource(server: McpServer, given: str, http: OAuthHttp) -> dict[str, Any]:
    """Return the metadata of the MCP server, from where it says or from the well-known places."""
    url = UrlTarget.of(server.url)
    path = url.path.rstrip("/")
    places = [given] if given else []
    places += [f"{url.origin}/.well-known/oauth-protected-resource{each}" for each in dict.fromkeys((path, ""))]
    for place in places:
        found = await http.get_json(place, "the metadata of the server")
        if found is not None:
            _check_resource(found.get("resource"), url)
            return found
    raise LoginFailed(f"MCP server {server.name!r} does not say how to log in: give it a header with a token instead")


def _check_resource(resource: object, url: UrlTarget) -> None:
    """Raise `LoginFailed` unless the metadata is about this server: a token for another must not be sent to it."""
    try:
        named = UrlTarget.of(resource) if isinstance(resource, str) else None
    except ValueError:
        named = None
    if named is None or named.origin != url.origin or not f"{url.path}/".startswith(f"{named.path.rstrip('/')}/"):
        raise LoginFailed(f"the metadata of the server is about another one: {resource!r}")


async def _find_metadata(issuer: str, http: OAuthHttp) -> dict[str, Any]:
    """Return the metadata of an authorization server from one of its well-known places."""
    url = http.check_url(issuer, "the authorization server")
    path = url.path.rstrip("/")
    places = [
        f"{url.origin}/.well-known/{name}{path}" for name in ("oauth-authorization-server", "openid-configuration")
    ]
    if path:
        places.append(f"{url.origin}{path}/.well-known/openid-configuration")
    for place in places:
        found = await http.get_json(place, "the metadata of the authorization server")
        if found is not None:
            return found
    raise LoginFailed(f"the authorization server {issuer!r} has no metadata")


def _check_metadata(
    metadata: dict[str, Any], issuer: str, resource: str, scope: str, http: OAuthHttp
) -> AuthorizationServer:
    """Raise `LoginFailed` unless the metadata is that of this issuer, with PKCE and safe endpoints."""
    if metadata.get("issuer") != issuer:
        raise LoginFailed(f"the metadata of {issuer!r} is that of another issuer: {metadata.get('issuer')!r}")
    if "S256" not in _texts(metadata.get("code_challenge_methods_supported")):
        raise LoginFailed(
            f"the authorization server {issuer!r} does not support PKCE with S256, so a login is not safe"
        )
    http.check_url(metadata.get("authorization_endpoint"), "the authorization endpoint")
    _check_parameters(metadata["authorization_endpoint"])
    http.check_url(metadata.get("token_endpoint"), "the token endpoint")
    registration = metadata.get("registration_endpoint")
    if registration is not None:
        http.check_url(registration, "the registration endpoint")
    return AuthorizationServer(
        resource=resource,
        issuer=issuer,
        authorization_endpoint=metadata["authorization_endpoint"],
        token_endpoint=metadata["token_endpoint"],
        registration_endpoint=registration or "",
        takes_metadata_document=metadata.get("client_id_metadata_document_supported") is True,
        sends_issuer=metadata.get("authorization_response_iss_parameter_supported") is True,
        scope=scope,
    )


def _check_parameters(endpoint: str) -> None:
    """Raise `LoginFailed` if an authorization endpoint brings parameters of the request: of two, the first may count.

    One that lies at another authorization server would be asked for a code in the name of another program.
    """
    parts = urlsplit(endpoint)
    fixed = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True) if name in REQUEST_PARAMETERS]
    if fixed or "#" in endpoint:
        what = f"the parameter {fixed[0]!r}" if fixed else "a fragment"
        raise LoginFailed(f"the authorization endpoint cannot be used: {parts.netloc} brings {what} of its own")


def _texts(value: object) -> list[str]:
    listed = cast("list[object]", value) if isinstance(value, list) else []
    return [each for each in listed if isinstance(each, str)]
