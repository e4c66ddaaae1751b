"""Questions of servers: what is asked, and what is declined."""

import asyncio

import pytest

from perdure.mcp.client import CallDeadline
from perdure.mcp.elicitation import ElicitationForm, ElicitationLink, build_elicitation_question, is_safe_link
from perdure.mcp.server_settings import McpServer

mcp_types = pytest.importorskip("mcp_types")
pytestmark = pytest.mark.packages("mcp")


@pytest.mark.parametrize("url", ["https://example.com/login?a=b", "http://127.0.0.1:8000/x", "http://localhost/x"])
def test_an_address_of_the_web_may_be_shown(url):
    assert is_safe_link(url)


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "http://example.com/",
        "https://user@example.com/",
        "https://example.com/$(calc.exe)",
        "https://example.com/`id`",
        'https://example.com/";id',
        "https://exa\u202emple.com/",
        "https:///nowhere",
        "https://[bad/",
        "a b",
    ],
)
def test_other_addresses_are_declined(url):
    assert not is_safe_link(url)


def test_a_form_names_its_server():
    params = mcp_types.ElicitRequestFormParams(
        message="Your\u202e name?", requested_schema={"type": "object", "properties": {"name": {"type": "string"}}}
    )
    asked = build_elicitation_question("git", params)
    assert isinstance(asked, ElicitationForm)
    assert asked.text == "The MCP server 'git' asks: Your name?"
    assert asked.output["properties"] == {"name": {"type": "string"}}
    assert asked.input["schema"] == asked.output


def test_an_address_is_shown_in_full():
    params = mcp_types.ElicitRequestURLParams(message="Log in", url="https://example.com/a", elicitation_id="1")
    asked = build_elicitation_question("git", params)
    assert isinstance(asked, ElicitationLink)
    assert "https://example.com/a" in asked.text
    assert asked.output == {"type": "boolean"}
    assert asked.input["question"] == asked.text


@pytest.mark.parametrize(
    "schema", [{"type": "string"}, {"type": "object", "properties": {"a": {"$ref": "https://x/y"}}}]
)
def test_a_form_that_cannot_be_checked_is_declined(schema):
    params = mcp_types.ElicitRequestFormParams.model_construct(message="x", requested_schema=schema)
    assert build_elicitation_question("git", params) is None


async def test_an_answer_after_the_end_of_the_call_harms_nothing():
    class Client:
        async def call_tool(self, *_, **__):
            return mcp_types.CallToolResult(content=[])

    limit = CallDeadline(McpServer(name="s", command="x"))
    answer = asyncio.get_running_loop().create_future()
    asking = asyncio.ensure_future(limit.wait_for_people(answer))
    assert (await limit.call(Client(), "t", {}, None, None)).content == []  # type: ignore[arg-type]
    answer.set_result("late")
    assert await asking == "late"
