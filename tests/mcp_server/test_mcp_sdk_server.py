"""What the tools of a server and their results become in the protocol."""

import asyncio
import base64
from collections.abc import Mapping
from typing import Any

import mcp_types
import pytest
from mcp import Client
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError

from perdure import Agent, Audio, Document, Image, Status, Text, ToolResult, UsageError, Video, tool
from perdure._core.values.message import ResultPart
from perdure._mcp.server.agents import list_served_agents
from perdure._mcp.server.clients import TooManyCalls
from perdure._mcp.server.sdk_server import TOO_MANY_CALLS, build_call_result, build_protocol_server
from perdure._mcp.server.tools import CallOutcome, OfferedTool, ReportProgress, ServedTools
from perdure.mcp import ServedAgent
from perdure.testing import ScriptedModel
from tests.mcp_server.served_tools import add, helper, shout

WAIT_SECONDS = 30
DATA = b"\x00data"
ENCODED = base64.b64encode(DATA).decode()
NUMBER: Mapping[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
SERVED = ServedAgent(agent=Agent(ScriptedModel(), name="a"))


def offered(output_schema: Mapping[str, Any] | None = None) -> OfferedTool:
    return OfferedTool(
        name="t", description="T.", input_schema={}, output_schema=output_schema, served=SERVED, tool=None
    )


def result_of(*content: ResultPart, status: Status = Status.OK, labels: tuple[str, ...] = ()) -> CallOutcome:
    return CallOutcome(ToolResult("c", "t", content, status=status, labels=labels), "mcp/ann/1")


@pytest.mark.parametrize(
    ("part", "block"),
    [
        (Text("hello"), mcp_types.TextContent(text="hello")),
        (Image(DATA, media_type="image/gif"), mcp_types.ImageContent(data=ENCODED, mime_type="image/gif")),
        (Image(DATA), mcp_types.ImageContent(data=ENCODED, mime_type="image/png")),
        (Audio(DATA, media_type="audio/mpeg"), mcp_types.AudioContent(data=ENCODED, mime_type="audio/mpeg")),
        (Audio(DATA), mcp_types.AudioContent(data=ENCODED, mime_type="audio/wav")),
        (
            Document(DATA, media_type="application/pdf", name="a report.pdf"),
            mcp_types.EmbeddedResource(
                resource=mcp_types.BlobResourceContents(
                    uri="perdure:a%20report.pdf", blob=ENCODED, mime_type="application/pdf"
                )
            ),
        ),
        (
            Video(DATA),
            mcp_types.EmbeddedResource(
                resource=mcp_types.BlobResourceContents(
                    uri="perdure:content", blob=ENCODED, mime_type="application/octet-stream"
                )
            ),
        ),
        (
            Image(url="https://h/a.png", file_id="f", name="n", media_type="image/png"),
            mcp_types.TextContent(text="image/png: https://h/a.png"),
        ),
        (Audio(file_id="file_7", name="n"), mcp_types.TextContent(text="content: file_7")),
        (Document(name="report"), mcp_types.TextContent(text="content: report")),
    ],
)
def test_each_part_of_a_result_becomes_a_block_of_the_protocol(part: ResultPart, block: mcp_types.ContentBlock) -> None:
    assert build_call_result(result_of(part), offered()) == mcp_types.CallToolResult(
        content=[block],
        structured_content=None,
        is_error=False,
        _meta={"perdure/status": "ok", "perdure/session": "mcp/ann/1"},
    )


def test_an_error_and_labels_are_told() -> None:
    outcome = result_of(Text("no"), status=Status.DENIED, labels=("untrusted", "private"))
    assert build_call_result(outcome, offered(NUMBER)) == mcp_types.CallToolResult(
        content=[mcp_types.TextContent(text="no")],
        structured_content=None,
        is_error=True,
        _meta={
            "perdure/status": "denied",
            "perdure/session": "mcp/ann/1",
            "perdure/labels": "untrusted private",
        },
    )


def test_a_result_with_an_output_schema_is_also_structured() -> None:
    result = build_call_result(result_of(Text('{"n": 7}')), offered(NUMBER))
    assert (result.structured_content, result.is_error) == ({"n": 7}, False)
    assert result.content == [mcp_types.TextContent(text='{"n": 7}')]


@pytest.mark.parametrize("text", ['{"n": "x"}', "no JSON"])
def test_a_result_that_does_not_fit_the_output_schema_is_an_error_before_the_result(text: str) -> None:
    result = build_call_result(result_of(Text(text)), offered(NUMBER))
    assert (result.structured_content, result.is_error) == (None, True)
    first, second = result.content
    assert isinstance(first, mcp_types.TextContent)
    assert first.text.startswith("the result does not fit the output schema of the tool (")
    assert second == mcp_types.TextContent(text=text)


# -- the server --------------------------------------------------------------------------------------------------------


class Refusing(ServedTools):
    """Raises an error in the place of each call."""

    def __init__(self, error: Exception) -> None:
        super().__init__(list_served_agents([shout]))
        self._error = error

    async def call(
        self, client: str, name: str, arguments: Mapping[str, Any], report: ReportProgress | None = None
    ) -> CallOutcome:
        raise self._error


def build(tools: ServedTools, local_client: str = "stdio", instructions: str = "") -> Server[Any]:
    return build_protocol_server(tools, name="box", local_client=local_client, instructions=instructions)


async def test_tools_are_listed_with_their_schemas_and_hints() -> None:
    @tool(effect="idempotent", sends=False)
    def put() -> str:
        """Put it there."""
        return "put"

    tools = ServedTools(list_served_agents([add, put, helper()]))
    async with asyncio.timeout(WAIT_SECONDS), Client(build(tools, instructions="Be kind.")) as client:
        assert client.instructions == "Be kind."
        listed = await client.list_tools()
    assert (listed.ttl_ms, listed.cache_scope) == (300_000, "private")
    shown = [(each.name, each.description, each.output_schema is not None, each.annotations) for each in listed.tools]
    assert shown == [
        (
            "add",
            "Add two numbers.",
            True,
            mcp_types.ToolAnnotations(
                read_only_hint=True,
                destructive_hint=False,
                idempotent_hint=True,
                open_world_hint=add.sends,
            ),
        ),
        (
            "put",
            "Put it there.",
            False,
            mcp_types.ToolAnnotations(
                read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
            ),
        ),
        (
            "helper",
            "Answers questions.",
            False,
            mcp_types.ToolAnnotations(
                read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True
            ),
        ),
    ]
    assert list(listed.tools[0].input_schema["properties"]) == ["a", "b"]
    assert list(listed.tools[2].input_schema["properties"]) == ["task", "conversation"]


@pytest.mark.parametrize(
    ("error", "code"),
    [(TooManyCalls("too many calls"), TOO_MANY_CALLS), (UsageError("no such thing"), mcp_types.INVALID_PARAMS)],
)
async def test_a_call_that_is_refused_is_an_error_of_the_protocol(error: Exception, code: int) -> None:
    async with asyncio.timeout(WAIT_SECONDS), Client(build(Refusing(error))) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("shout", {"text": "a"})
    assert (caught.value.code, caught.value.message) == (code, str(error))


async def test_an_unknown_tool_is_an_error_that_names_those_that_there_are() -> None:
    tools = ServedTools(list_served_agents([shout, add]))
    async with asyncio.timeout(WAIT_SECONDS), Client(build(tools)) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("whisper", {})
    assert (caught.value.code, caught.value.message) == (
        mcp_types.INVALID_PARAMS,
        "there is no tool 'whisper'; available: shout, add",
    )


async def test_a_request_without_a_token_is_refused_where_every_client_has_one() -> None:
    tools = ServedTools(list_served_agents([shout]))
    async with asyncio.timeout(WAIT_SECONDS), Client(build(tools, local_client="")) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("shout", {"text": "a"})
    assert (caught.value.code, caught.value.message) == (mcp_types.INVALID_REQUEST, "this request has no token")


class Reporting(ServedTools):
    """Notes who calls, and reports progress where it is wanted."""

    def __init__(self) -> None:
        super().__init__(list_served_agents([shout]))
        self.calls: list[tuple[str, str, Mapping[str, Any], bool]] = []

    async def call(
        self, client: str, name: str, arguments: Mapping[str, Any], report: ReportProgress | None = None
    ) -> CallOutcome:
        self.calls.append((client, name, arguments, report is not None))
        for step in ("one", "two"):
            if report is not None:
                await report(step)
        return result_of(Text("done"))


async def test_a_client_without_a_token_is_the_local_one_and_gets_the_progress_that_it_asks_for() -> None:
    seen: list[tuple[float, float | None, str | None]] = []
    both = asyncio.Event()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))
        if len(seen) == 2:
            both.set()

    tools = Reporting()
    async with asyncio.timeout(WAIT_SECONDS), Client(build(tools, local_client="pipe"), mode="legacy") as client:
        await client.call_tool("shout", {"text": "a"}, progress_callback=note)
        await both.wait()
        await client.call_tool("shout")
    assert seen == [(1.0, None, "one"), (2.0, None, "two")]
    assert tools.calls == [("pipe", "shout", {"text": "a"}, True), ("pipe", "shout", {}, False)]


def test_the_server_knows_the_schema_of_each_tool() -> None:
    find = build(ServedTools(list_served_agents([add, shout]))).get_tool_input_schema
    assert find is not None
    schemas = [find(name) for name in ("add", "shout", "whisper")]
    assert [None if each is None else list(each["properties"]) for each in schemas] == [["a", "b"], ["text"], None]
