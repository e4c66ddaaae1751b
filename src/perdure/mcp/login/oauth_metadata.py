"""Find the OAuth authorization server of an MCP server, and its endpoints (RFC 9728, 8414 and 8707)."""

import re
from typing import Any, Final, cast
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct

from perdure.core.url_target import UrlTarget
from perdure.mcp.server_settings import McpServer

from .oauth_http import LoginFailed, OAuthHttp

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
