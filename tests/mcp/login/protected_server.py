"""A real MCP server behind a real authorization server, both of the official SDK, on this machine."""

import asyncio
import contextlib
import secrets
import socket
import time
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    ProviderTokenVerifier,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.lowlevel import Server
from pydantic import AnyHttpUrl

WAIT_SECONDS = 30


class Accounts:
    """An authorization server in memory, which consents to everything."""

    def __init__(self, issuer: str):
        self.issuer = issuer
        self.clients: dict[str, Any] = {}
        self.codes: dict[str, Any] = {}
        self.access: dict[str, Any] = {}
        self.refresh: dict[str, Any] = {}
        self.asked: list[Any] = []

    async def get_client(self, client_id):
        return self.clients.get(client_id)

    async def register_client(self, client_info):
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client, params):
        self.asked.append(params)
        code = secrets.token_urlsafe(32)
        self.codes[code] = AuthorizationCode(
            code=code,
            client_id=client.client_id,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state, iss=self.issuer)

    async def load_authorization_code(self, client, code):
        return self.codes.get(code)

    def issue(self, client_id, scopes, resource):
        from mcp.shared.auth import OAuthToken

        access, refresh = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self.access[access] = AccessToken(token=access, client_id=client_id, scopes=scopes, resource=resource)
        self.refresh[refresh] = (RefreshToken(token=refresh, client_id=client_id, scopes=scopes), resource)
        return OAuthToken(access_token=access, token_type="Bearer", expires_in=3600, refresh_token=refresh)

    async def exchange_authorization_code(self, client, authorization_code):
        del self.codes[authorization_code.code]
        return self.issue(client.client_id, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(self, client, refresh_token):
        found = self.refresh.get(refresh_token)
        return None if found is None else found[0]

    async def exchange_refresh_token(self, client, refresh_token, scopes):
        _, resource = self.refresh.pop(refresh_token.token)
        return self.issue(client.client_id, scopes, resource)

    async def load_access_token(self, token):
        return self.access.get(token)

    async def revoke_token(self, token):
        self.access.pop(token.token, None)


@contextlib.asynccontextmanager
async def running_protected_server():
    """Serve an MCP server that wants a login, and give its URL and its accounts."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        base = f"http://127.0.0.1:{listening.getsockname()[1]}"
        accounts = Accounts(f"{base}/")

        async def list_tools(_context, _params):
            return types.ListToolsResult(tools=[types.Tool(name="whoami", input_schema={"type": "object"})])

        async def call_tool(_context, _params):
            return types.CallToolResult(content=[types.TextContent(text="you")])

        server = Server("protected", on_list_tools=list_tools, on_call_tool=call_tool)
        provider: Any = accounts
        app = server.streamable_http_app(
            auth=AuthSettings(
                issuer_url=AnyHttpUrl(base),
                resource_server_url=AnyHttpUrl(f"{base}/mcp"),
                client_registration_options=ClientRegistrationOptions(enabled=True, valid_scopes=["use"]),
                required_scopes=["use"],
                validate_token_resource=True,
            ),
            token_verifier=ProviderTokenVerifier(provider),
            auth_server_provider=provider,
        )
        http: Any = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
        http.capture_signals = contextlib.nullcontext
        task = asyncio.create_task(http.serve([listening]))
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while not http.started:  # noqa: ASYNC110 - uvicorn has no event for it
                    await asyncio.sleep(0.01)
            yield f"{base}/mcp", accounts
        finally:
            http.should_exit = True
            await asyncio.wait({task}, timeout=WAIT_SECONDS)
