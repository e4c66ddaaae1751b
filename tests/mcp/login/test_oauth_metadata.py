"""Where a login to a server leads to, from the documents that it and its authorization server publish."""

from typing import Any

import pytest

from perdure._mcp.login.oauth import (
    AuthorizationServer,
    LoginFailed,
    OAuthHttp,
    build_login_policy,
    discover_authorization_server,
)
from perdure.mcp import McpServer

SERVER = McpServer(name="s", transport="http", url="https://tools.example/a/mcp")
AT_TOOLS = "https://tools.example/.well-known/oauth-protected-resource"
AT_LOGIN = "https://login.example/.well-known"
RESOURCE: dict[str, Any] = {
    "resource": "https://tools.example/a",
    "authorization_servers": ["https://login.example"],
    "scopes_supported": ["read", 7, "write"],
}
METADATA: dict[str, Any] = {
    "issuer": "https://login.example",
    "authorization_endpoint": "https://login.example/authorize",
    "token_endpoint": "https://login.example/token",
    "code_challenge_methods_supported": ["plain", "S256"],
}
FOUND = AuthorizationServer(
    resource="https://tools.example/a",
    issuer="https://login.example",
    authorization_endpoint="https://login.example/authorize",
    token_endpoint="https://login.example/token",
    scope="read write",
)


class Documents(OAuthHttp):
    """Documents by their addresses, and which were asked for, in the place of the network."""

    def __init__(self, documents, challenge=""):
        super().__init__(build_login_policy(SERVER))
        self.documents = documents
        self.challenge = challenge
        self.asked: list[str] = []

    async def get_challenge(self, url):
        return 401, self.challenge

    async def get_json(self, url, what):
        self.check_url(url, what)
        self.asked.append(url)
        return self.documents.get(url)


async def discover(documents, challenge="", server=SERVER):
    http = Documents(documents, challenge)
    try:
        return await discover_authorization_server(server, http), http.asked
    finally:
        await http.aclose()


async def test_the_well_known_places_are_asked_in_their_order():
    documents = {AT_TOOLS: RESOURCE, f"{AT_LOGIN}/openid-configuration": METADATA}
    assert await discover(documents) == (
        FOUND,
        [
            f"{AT_TOOLS}/a/mcp",
            AT_TOOLS,
            f"{AT_LOGIN}/oauth-authorization-server",
            f"{AT_LOGIN}/openid-configuration",
        ],
    )


async def test_the_first_document_that_is_there_counts():
    documents = {f"{AT_TOOLS}/a/mcp": RESOURCE, f"{AT_LOGIN}/oauth-authorization-server": METADATA}
    _, asked = await discover(documents)
    assert asked == list(documents)


async def test_an_issuer_with_a_path_has_three_places():
    issuer = "https://login.example/t"
    documents = {
        AT_TOOLS: {**RESOURCE, "authorization_servers": [issuer]},
        f"{issuer}/.well-known/openid-configuration": {**METADATA, "issuer": issuer},
    }
    found, asked = await discover(
        documents, server=McpServer(name="s", transport="http", url="https://tools.example/a/")
    )
    assert found.issuer == issuer
    assert asked[2:] == [
        f"{AT_LOGIN}/oauth-authorization-server/t",
        f"{AT_LOGIN}/openid-configuration/t",
        f"{issuer}/.well-known/openid-configuration",
    ]


async def test_a_challenge_names_the_place_of_the_document_and_the_scopes():
    documents = {"https://x.example/d": RESOURCE, f"{AT_LOGIN}/oauth-authorization-server": METADATA}
    challenge = 'Bearer resource_metadata="https://x.example/d", scope="use all"'
    found, asked = await discover(documents, challenge)
    assert asked[0] == "https://x.example/d"
    assert found.scope == "use all"
    found, _ = await discover(documents, challenge.replace("use all", "x" * 1_001))
    assert found.scope == "x" * 1_000


@pytest.mark.parametrize(
    ("told", "fields"),
    [
        ({"registration_endpoint": "https://login.example/r"}, {"registration_endpoint": "https://login.example/r"}),
        ({"client_id_metadata_document_supported": True}, {"takes_metadata_document": True}),
        ({"client_id_metadata_document_supported": False}, {}),
        ({"client_id_metadata_document_supported": "yes"}, {}),
        ({"authorization_response_iss_parameter_supported": True}, {"sends_issuer": True}),
        ({"authorization_response_iss_parameter_supported": False}, {}),
    ],
)
async def test_what_an_authorization_server_can_do_is_believed_if_it_says_so_clearly(told, fields):
    documents = {AT_TOOLS: RESOURCE, f"{AT_LOGIN}/oauth-authorization-server": {**METADATA, **told}}
    found, _ = await discover(documents)
    assert {name: getattr(found, name) for name in found.__struct_fields__} == {
        **{name: getattr(FOUND, name) for name in FOUND.__struct_fields__},
        **fields,
    }


@pytest.mark.parametrize(
    ("resource", "is_ours"),
    [
        ("https://tools.example", True),
        ("https://tools.example/", True),
        ("https://tools.example/a/", True),
        ("https://tools.example/a/mcp", True),
        ("https://tools.example/a/mc", False),
        ("https://tools.example/a/mcp/x", False),
        ("https://tools.example/b", False),
        ("https://tools.example:8443/a", False),
        ("http://tools.example/a", False),
        ("no address", False),
        (None, False),
    ],
)
async def test_a_document_is_about_the_server_or_a_folder_above_it(resource, is_ours):
    documents = {
        AT_TOOLS: {**RESOURCE, "resource": resource},
        f"{AT_LOGIN}/oauth-authorization-server": METADATA,
    }
    if is_ours:
        assert (await discover(documents))[0].resource == resource
        return
    with pytest.raises(LoginFailed) as caught:
        await discover(documents)
    assert str(caught.value) == f"the metadata of the server is about another one: {resource!r}"


@pytest.mark.parametrize(
    ("documents", "said"),
    [
        ({}, "MCP server 's' does not say how to log in: give it a header with a token instead"),
        ({AT_TOOLS: RESOURCE}, "the authorization server 'https://login.example' has no metadata"),
        *[
            ({AT_TOOLS: {**RESOURCE, "authorization_servers": each}}, "MCP server 's' names no authorization server")
            for each in (None, [], [7], "https://login.example")
        ],
    ],
)
async def test_a_login_that_leads_nowhere_says_why(documents, said):
    with pytest.raises(LoginFailed) as caught:
        await discover(documents)
    assert str(caught.value) == said
