"""Log in to an MCP server with OAuth 2.1: a person consents in a browser, and a code is exchanged for tokens."""

import asyncio
import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final, Self
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import msgspec

from perdure._core.values.clock import SYSTEM_CLOCK, Clock
from perdure._core.values.error import ConfigError
from perdure._io.egress.policy import EgressPolicy
from perdure._mcp.settings import McpServer

from .file import LoginFile, StoredLogin
from .oauth import AuthorizationServer, LoginFailed, OAuthHttp, build_login_policy, discover_authorization_server

PATH: Final = "/callback"
"""The path of the redirect URL, unless a login has one of its own."""
_MAX_LINE_BYTES: Final = 16 * 1024
_REQUEST_SECONDS: Final = 10.0
_TITLE: Final = "<!doctype html><meta charset=utf-8><title>Perdure</title>"
_PAGE: Final = f"{_TITLE}<p>You can close this page, and return to the terminal.</p>"


class LoopbackRedirect:
    """HTTP server on 127.0.0.1, open in an `async with` block, to which the browser returns after an OAuth login.

    Only an answer with the `state` of the login counts: any page in the browser can send others.
    """

    def __init__(self, state: str, port: int = 0, path: str = PATH) -> None:
        self._state = state
        self._port = port
        self._path = path
        self._server: asyncio.Server | None = None
        self._answer: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()
        self.url = ""
        """The redirect URL, while it listens."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, limit=_MAX_LINE_BYTES)
        self._port = int(self._server.sockets[0].getsockname()[1])
        self.url = f"http://127.0.0.1:{self._port}{self._path}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        self._answer.cancel()

    async def wait(self) -> Mapping[str, str]:
        """Wait for the answer, and return its fields."""
        return await asyncio.shield(self._answer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        status, page = "400 Bad Request", ""
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                words = (await reader.readline()).decode("latin-1").split()
                host = await _read_host(reader)
            if host != f"127.0.0.1:{self._port}":
                status = "421 Misdirected Request"
            elif words[:1] == ["GET"] and urlsplit(words[1]).path == self._path:
                pairs = parse_qsl(urlsplit(words[1]).query)
                fields = dict(pairs)
                if len(fields) == len(pairs) and self._is_of_login(fields) and not self._answer.done():
                    self._answer.set_result(fields)
                    status, page = "200 OK", _PAGE
            else:
                status = "404 Not Found"
        except (OSError, ValueError, IndexError, asyncio.IncompleteReadError):
            pass
        finally:
            await _send_page(writer, status, page)

    def _is_of_login(self, fields: Mapping[str, str]) -> bool:
        """Return True if an answer has the `state` that only the browser of this login was given."""
        return hmac.compare_digest(fields.get("state", "").encode(), self._state.encode())


async def _read_host(reader: asyncio.StreamReader) -> str:
    """Read the headers of a request, and return the one that names the host."""
    host = ""
    for _ in range(100):
        line = (await reader.readline()).decode("latin-1").strip()
        if not line:
            return host
        name, _, value = line.partition(":")
        if name.lower() == "host":
            host = value.strip()
    raise ValueError("too many headers")


async def _send_page(writer: asyncio.StreamWriter, status: str, page: str) -> None:
    body = page.encode()
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {len(body)}\r\n"
        "content-security-policy: default-src 'none'\r\nreferrer-policy: no-referrer\r\ncache-control: no-store\r\n"
        "connection: close\r\n\r\n"
    )
    try:
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()
    except OSError:
        return


LOGIN_SECONDS: Final = 300.0
"""Time that a person has to log in."""
_CREATED: Final = frozenset({200, 201})
_HTTP_OK: Final = 200
_MOST_EXPIRY_SECONDS: Final = 10 * 365 * 86_400.0
"""A longer time is this one: a server may send a number that no clock can be added to."""
_SPARE_SECONDS: Final = 30.0
"""An access token is refreshed this long before it expires."""


class ClientIdentity:
    """Identity of this program at an OAuth authorization server: its `client_id`, and its secret if it has one."""

    def __init__(self, client_id: str, client_secret: str = "") -> None:
        self.client_id = client_id
        self.client_secret = client_secret


async def log_in(
    server: McpServer,
    logins: LoginFile,
    open_url: Callable[[str], None],
    *,
    client_id: str = "",
    client_secret: str = "",
    metadata_document: str = "",
    scope: str = "",
    policy: EgressPolicy | None = None,
    port: int = 0,
    seconds: float = LOGIN_SECONDS,
    clock: Clock = SYSTEM_CLOCK,
) -> StoredLogin:
    """Log in to an MCP server: a person consents in a browser, and the tokens are stored. Raises `LoginFailed`.

    Args:
        server: The server, over HTTP.
        logins: Where the tokens are stored.
        open_url: Called with the URL that the person has to open. It is an https address, or one of this machine.
        client_id: The id of a client that was registered before.
        client_secret: The secret of that client, if it has one.
        metadata_document: The https address of a Client ID Metadata Document, which is preferred to a registration.
        scope: The scopes to ask for, separated by spaces; by default those that the server names.
        policy: Where requests may go; by default to public hosts, and to this machine if the server is on it.
        port: The port of the redirect URL on this machine; 0 for a free one.
        seconds: How long to wait for the person.
        clock: The source of time.
    """
    if server.transport == "stdio":
        raise ConfigError(f"MCP server {server.name!r} is a program on this machine: there is nothing to log in to")
    http = OAuthHttp(policy or build_login_policy(server))
    try:
        found = await discover_authorization_server(server, http)
        found = found if not scope else msgspec.structs.replace(found, scope=scope)
        verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(32)
        is_known = bool(client_id) or (bool(metadata_document) and found.takes_metadata_document)
        async with LoopbackRedirect(state, port, PATH if is_known else _build_own_path()) as redirect:
            if client_id:
                identity = ClientIdentity(client_id, client_secret)
            else:
                identity = await _identify_client(found, http, redirect.url, metadata_document)
            open_url(_build_authorization_url(found, identity, redirect.url, _hash_verifier(verifier), state))
            code = _check_answer(await _wait_for_answer(redirect, seconds), found)
            fields = {
                "grant_type": "authorization_code",
                "code": code,
                "redirect_uri": redirect.url,
                "code_verifier": verifier,
                "resource": found.resource,
            }
            tokens = await _request_tokens(http, found.token_endpoint, identity, fields)
        login = _build_login(server, found, identity, tokens, clock)
        await asyncio.to_thread(logins.store, server.name, login)
        return login
    finally:
        await http.aclose()


async def refresh_login(
    name: str, login: StoredLogin, logins: LoginFile, http: OAuthHttp, clock: Clock = SYSTEM_CLOCK
) -> StoredLogin | None:
    """Refresh the access token of a login to an MCP server, and store it; `None` if a person has to log in again."""
    if not login.refresh_token:
        return None
    fields = {"grant_type": "refresh_token", "refresh_token": login.refresh_token, "resource": login.resource}
    identity = ClientIdentity(login.client_id, login.client_secret)
    try:
        tokens = await _request_tokens(http, login.token_endpoint, identity, fields)
    except TokenRefused:
        if await asyncio.to_thread(logins.exchange, name, login, None):
            return None
        return await _read_same_login(name, login, logins)  # another process was quicker
    fresh = msgspec.structs.replace(
        login,
        access_token=tokens["access_token"],
        refresh_token=tokens.get("refresh_token") or login.refresh_token,
        expires_at=_find_expiry(tokens, clock),
    )
    if await asyncio.to_thread(logins.exchange, name, login, fresh):
        return fresh
    return await _read_same_login(name, login, logins)  # a person has logged in or out meanwhile


async def _read_same_login(name: str, login: StoredLogin, logins: LoginFile) -> StoredLogin | None:
    """Return the login that is stored now; `None` if it is for another URL, to which alone its tokens may go."""
    stored = await asyncio.to_thread(logins.get, name)
    return stored if stored is not None and stored.url == login.url else None


def is_expired(login: StoredLogin, clock: Clock) -> bool:
    """Return True if the access token of a stored login has expired, or will within seconds."""
    return bool(login.expires_at) and clock.now() >= login.expires_at - _SPARE_SECONDS


class TokenRefused(LoginFailed):
    """Raised when an OAuth authorization server refuses an authorization code or a refresh token."""


async def _identify_client(
    found: AuthorizationServer, http: OAuthHttp, redirect_url: str, metadata_document: str
) -> ClientIdentity:
    """Return the identity of this program: the URL of a document about it, or one that is registered now."""
    if metadata_document and found.takes_metadata_document:
        if not metadata_document.startswith("https://"):
            raise LoginFailed(f"the metadata document {metadata_document!r} needs an https address")
        return ClientIdentity(metadata_document)
    if not found.registration_endpoint:
        raise LoginFailed(
            f"the authorization server {found.issuer!r} registers no clients: register one there, and give its "
            "client id"
        )
    wanted: dict[str, Any] = {
        "client_name": "Perdure",
        "redirect_uris": [redirect_url],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "native",
    }
    if found.scope:
        wanted["scope"] = found.scope
    status, made = await http.post_json(found.registration_endpoint, wanted, "the registration endpoint")
    if status not in _CREATED or made is None or not isinstance(made.get("client_id"), str):
        raise LoginFailed(f"the authorization server did not register this program (HTTP status {status})")
    secret = made.get("client_secret")
    return ClientIdentity(made["client_id"], secret if isinstance(secret, str) else "")


def _build_authorization_url(
    found: AuthorizationServer, identity: ClientIdentity, redirect_url: str, challenge: str, state: str
) -> str:
    fields = {
        "response_type": "code",
        "client_id": identity.client_id,
        "redirect_uri": redirect_url,
        "state": state,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        "resource": found.resource,
        **({"scope": found.scope} if found.scope else {}),
    }
    mark = "&" if "?" in found.authorization_endpoint else "?"
    return f"{found.authorization_endpoint}{mark}{urlencode(fields)}"


def _hash_verifier(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


async def _wait_for_answer(redirect: LoopbackRedirect, seconds: float) -> Mapping[str, str]:
    try:
        async with asyncio.timeout(seconds):
            return await redirect.wait()
    except TimeoutError:
        raise LoginFailed(f"nobody logged in within {seconds:g} seconds: try again") from None


def _build_own_path() -> str:
    """Return a path for the redirect URL of one login.

    An authorization server that lends out the address of another one can then not have its codes sent here: the other
    one knows no client with this redirect URL.
    """
    return f"{PATH}/{secrets.token_urlsafe(12)}"


def _check_answer(answer: Mapping[str, str], found: AuthorizationServer) -> str:
    """Return the code of an answer to this login. Raises `LoginFailed` unless it is from this issuer."""
    issuer = answer.get("iss")
    if (issuer is not None or found.sends_issuer) and issuer != found.issuer:
        raise LoginFailed(f"the answer comes from another authorization server: {issuer!r}")
    if "error" in answer:
        raise LoginFailed(
            f"the login was refused: {answer['error'][:100]!r} {answer.get('error_description', '')[:200]!r}"
        )
    if not answer.get("code"):
        raise LoginFailed("the answer has no code: try again")
    return answer["code"]


async def _request_tokens(
    http: OAuthHttp, endpoint: str, identity: ClientIdentity, fields: Mapping[str, str]
) -> dict[str, Any]:
    """Exchange a code or a refresh token for tokens. Raises `LoginFailed`."""
    given, headers = {**fields, "client_id": identity.client_id}, dict[str, str]()
    if identity.client_secret:
        pair = f"{_quote(identity.client_id)}:{_quote(identity.client_secret)}"
        headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    status, answer = await http.post_form(endpoint, given, headers)
    if status != _HTTP_OK or answer is None:
        error = "" if answer is None else str(answer.get("error", ""))[:100]
        kind = TokenRefused if error in {"invalid_grant", "invalid_client", "unauthorized_client"} else LoginFailed
        raise kind(f"the token endpoint answers with HTTP status {status} {error!r}")
    if not _is_header_text(answer.get("access_token")) or str(answer.get("token_type", "")).lower() != "bearer":
        raise LoginFailed("the token endpoint did not return a bearer token")
    refresh = answer.get("refresh_token")
    return {**answer, "refresh_token": refresh if isinstance(refresh, str) else ""}


def _is_header_text(token: object) -> bool:
    """Return True if a token can be sent in a header."""
    return isinstance(token, str) and bool(token) and token.isascii() and token.isprintable() and " " not in token


def _quote(text: str) -> str:
    return quote(text, safe="")


def _build_login(
    server: McpServer, found: AuthorizationServer, identity: ClientIdentity, tokens: Mapping[str, Any], clock: Clock
) -> StoredLogin:
    scope = tokens.get("scope")
    return StoredLogin(
        url=server.url,
        resource=found.resource,
        issuer=found.issuer,
        token_endpoint=found.token_endpoint,
        client_id=identity.client_id,
        client_secret=identity.client_secret,
        access_token=tokens["access_token"],
        refresh_token=tokens["refresh_token"],
        expires_at=_find_expiry(tokens, clock),
        scope=scope if isinstance(scope, str) else found.scope,
    )


def _find_expiry(tokens: Mapping[str, Any], clock: Clock) -> float:
    seconds = tokens.get("expires_in")
    if not isinstance(seconds, int | float) or seconds <= 0:
        return 0.0
    return clock.now() + min(seconds, _MOST_EXPIRY_SECONDS)
