"""Requests to servers that behave well, badly, or not at all."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure import ConfigError, EffectNotStarted
from perdure._mcp.client import client as client_module
from perdure._mcp.client import connection, transports
from perdure._mcp.client.client import MOST_STARTS, CallDeadline, CallTimedOut, StartAndLoginCallbacks, UnusableAnswer
from perdure._mcp.client.delivery import RequestDelivery
from perdure._mcp.client.listing import CheckedToolList
from perdure._mcp.servers import start_process
from perdure.mcp import FateUnknown, McpClient, McpError, McpServer
from tests.mcp.line_server import Died, LineServer
from tests.mcp.servers import connect, is_alive, read_lines, scripted, wait_until

pytestmark = pytest.mark.packages("mcp")
GROWING = Path(__file__).with_name("growing_server.py")


def client_of(behaviour, folder="", **settings):
    return McpClient(scripted(behaviour, folder, **settings), StartAndLoginCallbacks(start_process))


def text_of(result):
    return result.content[0].text


async def test_a_tool_is_called_by_its_own_name():
    async with connect("kind") as servers:
        client = servers.pool.get_client("s")
        assert text_of(await client.call_tool("echo", {"text": "hi"})) == "echo hi"


async def test_resources_prompts_and_instructions_are_read():
    async with connect("kind") as servers:
        client = servers.pool.get_client("s")
        assert [str(each.uri) for each in await client.list_resources()] == ["note://one"]
        assert "content of one" in str(await client.read_resource("note://one"))
        assert [each.name for each in await client.list_prompts()] == ["greet"]
        assert "Hello" in str(await client.get_prompt("greet"))
        assert await client.get_instructions() == "Be kind."


async def test_many_calls_at_once_get_their_own_results():
    async with connect("kind") as servers:
        client = servers.pool.get_client("s")
        results = await asyncio.gather(*[client.call_tool("echo", {"text": str(each)}) for each in range(50)])
        assert [text_of(each) for each in results] == [f"echo {each}" for each in range(50)]


async def test_progress_is_reported():
    seen = []
    async with connect("progress") as servers:
        client = servers.pool.get_client("s")
        await client.call_tool("echo", {}, on_progress=lambda *step: seen.append(step))
        await wait_until(lambda: len(seen) == 2)
    assert seen == [(1.0, 2.0, "step 1"), (2.0, 2.0, "step 2")]


async def test_a_read_is_made_again_once_after_the_server_died(tmp_path):
    async with connect("dies_once", tmp_path) as servers:
        client = servers.pool.get_client("s")
        assert text_of(await client.call_tool("echo", {"text": "a"}, is_read=True)) == "echo a"
    assert read_lines(tmp_path, "calls") == ["echo a", "echo a"]


async def test_an_effect_is_never_made_again(tmp_path):
    async with connect("dies_once", tmp_path) as servers:
        client = servers.pool.get_client("s")
        with pytest.raises(FateUnknown, match="its process has ended"):
            await client.call_tool("act", {"text": "a"})
        assert read_lines(tmp_path, "calls") == ["act a"]
        assert text_of(await client.call_tool("act", {"text": "b"})) == "echo b"  # the server was started again
    assert read_lines(tmp_path, "calls") == ["act a", "act b"]


async def test_a_call_that_takes_too_long_is_cancelled_at_the_server(tmp_path):
    async with connect("hangs", tmp_path, call_timeout_seconds=0.2) as servers:
        client = servers.pool.get_client("s")
        with pytest.raises(CallTimedOut, match=r"did not end within 0\.2 seconds"):
            await client.call_tool("echo", {}, is_read=True)
        await wait_until(lambda: "notifications/cancelled" in read_lines(tmp_path, "notes"))
    assert len(read_lines(tmp_path, "calls")) == 1


async def test_a_caller_that_is_cancelled_cancels_its_own_call_alone(tmp_path):
    async with connect("hangs", tmp_path) as servers:
        client = servers.pool.get_client("s")
        first, second = (asyncio.ensure_future(client.call_tool("echo", {"text": each})) for each in "ab")
        await wait_until(lambda: len(read_lines(tmp_path, "calls")) == 2)
        first.cancel()
        await wait_until(lambda: "notifications/cancelled" in read_lines(tmp_path, "notes"))
        assert first.cancelled()
        assert not second.done()
        second.cancel()
        await asyncio.wait([second])
    assert len(read_lines(tmp_path, "starts")) == 1


@pytest.mark.parametrize(
    ("behaviour", "error", "words"),
    [
        ("rpc_error", McpError, "error -32000: out of paper"),
        ("bad_result", UnusableAnswer, "cannot be used"),
        ("long_line", FateUnknown, "too long"),
        ("storm", FateUnknown, "more than 5000 messages"),
        ("wrong_id", CallTimedOut, "did not end"),
        ("bad_error", CallTimedOut, "did not end"),
    ],
)
async def test_what_a_server_does_wrong_becomes_a_typed_error(behaviour, error, words):
    async with connect(behaviour, call_timeout_seconds=30 if error is not CallTimedOut else 0.2) as servers:
        with pytest.raises(error, match=words) as caught:
            await servers.pool.get_client("s").call_tool("act", {})
    assert caught.type is error


@pytest.mark.parametrize("behaviour", ["garbage", "double", "slow_reader"])
async def test_what_is_no_answer_is_passed_over(behaviour):
    async with connect(behaviour) as servers:
        for text in "abc":
            result = text_of(await servers.pool.get_client("s").call_tool("echo", {"text": text}))
            assert result.endswith(text)


async def test_lines_that_are_no_messages_are_told_once_and_end_the_connection_when_they_are_too_many(
    monkeypatch, caplog
):
    monkeypatch.setattr(transports, "MAX_GARBAGE_LINES", 3)
    async with connect("garbage") as servers:  # which writes three such lines with each call
        client = servers.pool.get_client("s")
        assert text_of(await client.call_tool("echo", {"text": "a"})) == "echo a"
        with pytest.raises(FateUnknown, match="what is no message"):
            await client.call_tool("echo", {"text": "b"})
    told = "MCP server 's' wrote to its standard output a line that is no message"
    assert [each for each in caplog.messages if "no message" in each] == [told]


async def test_half_of_a_character_does_not_lose_an_answer():
    async with connect("half_character") as servers:
        result = await servers.pool.get_client("s").call_tool("act", {})
        assert text_of(result) == "cut ?"


async def test_a_server_that_does_not_start_says_why_on_its_standard_error():
    client = client_of("never_starts")
    with pytest.raises(EffectNotStarted, match="no license"):
        await client.list_tools()
    await client.close()


async def test_a_program_that_does_not_exist_is_reported():
    client = McpClient(scripted("kind"), StartAndLoginCallbacks(start_process))
    client.server = type(client.server)(name="s", command="/nonexistent/program")
    with pytest.raises(EffectNotStarted, match="No such file"):
        await client.list_tools()
    await client.close()


async def test_a_server_that_hangs_at_the_start_is_given_up():
    client = client_of("initialize_hangs", start_timeout_seconds=0.3)
    with pytest.raises(EffectNotStarted, match=r"did not answer within 0\.3 seconds"):
        await client.list_tools()
    await client.close()


async def test_a_listing_that_hangs_is_given_up():
    client = client_of("list_hangs", call_timeout_seconds=0.3)
    with pytest.raises(CallTimedOut, match="did not answer in time"):
        await client.list_tools()
    await client.close()


async def test_a_server_that_dies_all_the_time_is_not_started_all_the_time(tmp_path):
    client = client_of("never_starts", tmp_path)
    for _ in range(MOST_STARTS):
        with pytest.raises(EffectNotStarted):
            await client.list_tools()
    with pytest.raises(EffectNotStarted, match=f"started {MOST_STARTS} times in a minute: wait"):
        await client.list_tools()
    assert len(read_lines(tmp_path, "starts")) == MOST_STARTS
    await client.close()


async def test_callers_that_wait_for_one_attempt_share_its_failure(tmp_path):
    client = client_of("never_starts", tmp_path)
    failed = await asyncio.gather(*[client.call_tool("act", {}) for _ in range(10)], return_exceptions=True)
    assert {type(each).__name__ for each in failed} == {"NoConnection"}
    assert len(read_lines(tmp_path, "starts")) == 1
    await client.close()


async def test_an_idle_connection_is_closed_and_opened_again(tmp_path):
    client = client_of("kind", tmp_path, idle_seconds=0.05)
    await client.list_tools()
    await wait_until(lambda: not client.is_connected)
    (pid,) = read_lines(tmp_path, "starts")
    await wait_until(lambda: not is_alive(int(pid)))
    assert text_of(await client.call_tool("echo", {"text": "a"})) == "echo a"
    await client.close()
    assert len(read_lines(tmp_path, "starts")) == 2


async def test_a_server_that_ignores_the_end_of_its_input_is_ended(tmp_path):
    client = client_of("ignores_end", tmp_path)
    await client.list_tools()
    await client.close()
    (pid,) = read_lines(tmp_path, "starts")
    assert not is_alive(int(pid))


async def test_a_close_ends_calls_that_are_being_made(tmp_path):
    client = client_of("hangs", tmp_path)
    call = asyncio.ensure_future(client.call_tool("act", {}))
    await wait_until(lambda: len(read_lines(tmp_path, "calls")) == 1)
    await client.close()
    with pytest.raises(FateUnknown, match="connection was closed"):
        await call


async def grown_client():
    """A client of the stateless protocol, whose server has reported one more tool to its subscription."""
    server = McpServer(name="s", command=sys.executable, args=(str(GROWING),), start_timeout_seconds=60)
    client = McpClient(server, StartAndLoginCallbacks(start_process))
    assert [each.name for each in (await client.list_tools()).tools] == ["grow"]
    before = client.list_version

    async def grow():
        await client.call_tool("grow", {})
        return client.list_version > before

    async with asyncio.timeout(60):
        while not await grow():  # noqa: ASYNC110 - a change before the server has taken the subscription is not reported
            await asyncio.sleep(0.01)
    return client


async def test_a_change_of_the_tools_is_noticed_in_the_stateless_protocol_too():
    client = await grown_client()
    assert [each.name for each in (await client.list_tools()).tools] == ["grow", "later"]
    await client.close()


async def test_a_close_ends_the_subscription_to_changes_and_waits_for_nothing_else(monkeypatch):
    monkeypatch.setattr(connection, "_CLOSE_SECONDS", 600.0)
    client = await grown_client()
    async with asyncio.timeout(30):
        await client.close()
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("perdure-mcp")] == []


async def test_a_server_gets_a_clean_environment(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "secret")
    async with connect("environment", env={"OWN": "1"}) as servers:
        seen = json.loads(text_of(await servers.pool.get_client("s").call_tool("echo", {})))
    assert seen["OWN"] == "1"
    assert "PATH" in seen
    assert "SOME_API_KEY" not in seen


async def test_pages_without_an_end_are_left():
    client = client_of("endless_pages")
    listing = await client.list_tools()
    assert [each.name for each in listing.tools] == ["echo", "act"]
    assert listing.problems == ("it lists more pages than are read",)
    await client.close()


async def test_an_unknown_server_is_refused():
    async with connect("kind") as servers:
        with pytest.raises(ConfigError, match="there is no MCP server 'x': there is 's'"):
            servers.pool.get_client("x")
        with pytest.raises(ConfigError, match="two MCP servers are called 's'"):
            servers.pool.add_server(scripted("kind"))
        with pytest.raises(ConfigError, match="no McpServer"):
            servers.pool.add_server("s")  # type: ignore[arg-type]


# -- a server in this process ------------------------------------------------------------------------------------------

TOOL = {"name": "echo", "inputSchema": {"type": "object"}}
READS = {
    "tools/list": ({"tools": [TOOL]}, lambda client: client.list_tools()),
    "resources/list": ({"resources": [{"uri": "n://1", "name": "1"}]}, lambda client: client.list_resources()),
    "resources/read": ({"contents": [{"uri": "n://1", "text": "a"}]}, lambda client: client.read_resource("n://1")),
    "prompts/list": ({"prompts": [{"name": "greet"}]}, lambda client: client.list_prompts()),
    "prompts/get": (
        {"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}]},
        lambda client: client.get_prompt("greet"),
    ),
}


def dies(times, result):
    """An answer before which the program ends so many times."""
    left = [times]

    def answer(_params):
        left[0] -= 1
        if left[0] >= 0:
            raise Died
        return result

    return answer


@pytest.mark.parametrize("method", READS)
async def test_every_read_is_made_once_more_after_the_server_died_and_no_more_often(method):
    result, read = READS[method]
    server = LineServer({method: dies(1, result)}, error_text="no\u202e paper")
    client = server.connect()
    assert await read(client)
    assert [each for each, _ in server.asked] == [method] * 2
    assert [each.is_closed for each in server.processes] == [True, False]
    await client.close()
    assert server.processes[1].is_closed
    server = LineServer({method: dies(2, result)}, error_text="no\u202e paper")
    client = server.connect()
    with pytest.raises(FateUnknown) as caught:
        await read(client)
    assert str(caught.value) == "MCP server 's': its process has ended; it wrote: no paper"
    assert len(server.asked) == len(server.processes) == 2
    await client.close()


@pytest.mark.parametrize("method", READS)
async def test_a_read_that_takes_too_long_is_not_made_again(method):
    server = LineServer({method: lambda _: None})
    client = server.connect(call_timeout_seconds=0.01)
    with pytest.raises(CallTimedOut) as caught:
        await READS[method][1](client)
    assert str(caught.value) == "MCP server 's': it did not answer in time"
    assert len(server.asked) == len(server.processes) == 1
    await client.close()


@pytest.mark.parametrize("is_read", [True, False])
async def test_an_answer_that_cannot_be_used_is_not_asked_for_again(is_read):
    server = LineServer({"tools/call": {"content": "no list"}})
    client = server.connect()
    with pytest.raises(UnusableAnswer, match=r"^MCP server 's': its answer cannot be used: .{20,500}$"):
        await client.call_tool("echo", {}, is_read=is_read)
    assert server.asked == [("tools/call", {"name": "echo", "arguments": {}})]
    await client.close()


async def test_a_server_without_tools_resources_and_prompts_is_not_asked_for_them():
    server = LineServer({method: result for method, (result, _) in READS.items()}, capabilities={})
    client = server.connect()
    assert await client.list_tools() == CheckedToolList()
    assert await client.list_resources() == []
    assert await client.list_prompts() == []
    assert server.asked == []
    await client.close()


async def test_requests_have_the_arguments_of_their_caller():
    server = LineServer({method: result for method, (result, _) in READS.items()})
    client = server.connect()
    await client.get_prompt("greet")
    await client.get_prompt("greet", {"name": "Ann"})
    await client.read_resource("n://2")
    assert server.asked == [
        ("prompts/get", {"name": "greet", "arguments": {}}),
        ("prompts/get", {"name": "greet", "arguments": {"name": "Ann"}}),
        ("resources/read", {"uri": "n://2"}),
    ]
    await client.close()


async def test_instructions_are_cleaned_and_have_a_limit():
    client = LineServer(instructions="a\u202eb\n" + "c" * 5_000).connect()
    assert await client.get_instructions() == "ab\n" + "c" * 4_093
    await client.close()


async def test_tools_are_listed_again_only_after_a_change_or_a_new_connection():
    server = LineServer({"tools/list": {"tools": [TOOL]}, "tools/call": dies(1, {"content": []})})
    client = server.connect()
    first = await client.list_tools()
    assert await client.list_tools() is first
    assert len(server.asked) == 1
    server.processes[0].send({"method": "notifications/tools/list_changed"})
    await wait_until(lambda: client.list_version == 2)
    assert client.listed_version == 1
    assert await client.list_tools() is not first
    assert (len(server.asked), client.listed_version) == (2, 2)
    with pytest.raises(FateUnknown):
        await client.call_tool("echo", {})
    await client.call_tool("echo", {})
    await client.list_tools()
    assert [each for each, _ in server.asked] == ["tools/list"] * 2 + ["tools/call"] * 2 + ["tools/list"]
    await client.close()


async def test_a_tool_that_is_gone_or_has_changed_is_not_called():
    server = LineServer({"tools/list": {"tools": [TOOL]}, "tools/call": {"content": []}})
    client = server.connect()
    (expected,) = (await client.list_tools()).tools
    await client.call_tool("echo", {"a": 1}, expected=expected)
    server.answers["tools/list"] = {"tools": [{**TOOL, "inputSchema": {"type": "object", "title": "New"}}]}
    for said in (
        "its tool 'echo' has changed, and is switched off until a person approves the change",
        "it has no tool 'echo' any more",
    ):
        version = client.list_version
        server.processes[0].send({"method": "notifications/tools/list_changed"})
        await wait_until(lambda before=version: client.list_version > before)
        with pytest.raises(McpError) as caught:
            await client.call_tool("echo", {}, expected=expected)
        assert (caught.type, str(caught.value)) == (McpError, f"MCP server 's': {said}")
        server.answers["tools/list"] = {"tools": []}
    assert [params for method, params in server.asked if method == "tools/call"] == [
        {"name": "echo", "arguments": {"a": 1}}
    ]
    await client.close()


@pytest.mark.parametrize("code", [-32000, -32602, 7])
async def test_an_error_of_the_server_is_told_in_short_without_its_secrets(code):
    text = "key hunter2hunter2 is\n \u202ewrong " + "x" * 600
    server = LineServer({"tools/call": {"error": {"code": code, "message": text}}})
    client = server.connect(env={"KEY": "hunter2hunter2"})
    with pytest.raises(McpError) as caught:
        await client.call_tool("echo", {}, is_read=True)
    said = str(caught.value)
    assert caught.type is McpError
    assert said.startswith(f"MCP server 's': error {code}: key ")
    assert "hunter2" not in said
    assert " is wrong xxx" in said
    assert len(said) < 560
    assert len(server.asked) == len(server.processes) == 1  # the connection is still good
    await client.close()


async def test_a_server_may_be_started_again_when_a_minute_has_passed():
    server, now = LineServer({"tools/call": dies(99, {})}), [100.0]
    client = server.connect(monotonic=lambda: now[0])
    for _ in range(MOST_STARTS):
        with pytest.raises(FateUnknown):
            await client.call_tool("echo", {})
        now[0] += 1.0
    with pytest.raises(EffectNotStarted) as caught:
        await client.call_tool("echo", {})
    assert str(caught.value) == "MCP server 's': it was started 5 times in a minute: wait 55 seconds"
    now[0] = 159.9
    with pytest.raises(EffectNotStarted):
        await client.call_tool("echo", {})
    assert len(server.processes) == MOST_STARTS
    now[0] = 160.0
    with pytest.raises(FateUnknown):
        await client.call_tool("echo", {})
    with pytest.raises(EffectNotStarted, match="wait 1 seconds"):
        await client.call_tool("echo", {})
    assert len(server.processes) == MOST_STARTS + 1
    await client.close()


async def test_a_client_is_connected_from_its_first_request_until_it_is_closed():
    server = LineServer({"tools/call": {"content": []}})
    client = server.connect()
    assert (client.is_connected, client.is_in_use) == (False, False)
    await client.call_tool("echo", {})
    assert (client.is_connected, client.is_in_use) == (True, True)
    await client.close()
    assert (client.is_connected, client.is_in_use) == (False, False)
    await client.call_tool("echo", {})
    assert [each.is_closed for each in server.processes] == [True, False]
    await client.close()


async def test_a_connection_is_idle_only_when_no_request_is_being_made():
    server = LineServer({"tools/call": lambda params: None if params["arguments"] else {"content": []}})
    client = server.connect(idle_seconds=0.0001)
    long = asyncio.ensure_future(client.call_tool("echo", {"wait": True}))
    await wait_until(lambda: len(server.asked) == 1)
    for _ in range(9):
        await client.call_tool("echo", {})
    assert client.is_connected
    long.cancel()
    await asyncio.wait([long])
    await wait_until(lambda: server.processes[0].is_closed)
    assert not client.is_in_use
    assert "notifications/cancelled" in server.notified
    await client.close()


async def test_a_connection_that_was_made_for_its_instructions_is_closed_when_it_is_idle():
    server = LineServer(instructions="Be kind.")
    client = server.connect(idle_seconds=0.0001)
    assert await client.get_instructions() == "Be kind."
    await wait_until(lambda: server.processes[0].is_closed)
    assert not client.is_in_use
    await client.close()


async def test_only_the_end_of_what_a_program_wrote_before_it_ended_is_told():
    client = LineServer({"tools/call": dies(1, {})}, error_text="a" + "b" * 500).connect()
    with pytest.raises(FateUnknown) as caught:
        await client.call_tool("echo", {})
    assert str(caught.value) == f"MCP server 's': its process has ended; it wrote: {'b' * 500}"
    await client.close()


class Reported(Exception):
    """An error as the SDK raises it."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class Ending:
    """A connection that notes why it ends."""

    def __init__(self, end_reason: str = "") -> None:
        self.end_reason = end_reason
        self.ended: list[str] = []

    def end(self, reason: str) -> None:
        self.ended.append(reason)


def delivery(status: int = 0, content_type: str = "application/json", *, unsent: str = "") -> RequestDelivery:
    made = RequestDelivery()
    if status:
        made.note_answer(status, content_type)
    if unsent:
        made.note_unsent(unsent)
    return made


@pytest.mark.parametrize(
    ("record", "error", "kind", "said", "ended"),
    [
        (delivery(401), Reported(-32000, "no"), McpError,
         "it wants a login (HTTP status 401); the request was not carried out", []),
        (delivery(), Reported(-32000, "my own"), McpError, "error -32000: my own", []),
        (delivery(), Reported(-32602, "bad\n input"), McpError, "error -32602: bad input", []),
        (delivery(200), Reported(-32602, "bad"), McpError, "error -32602: bad", []),
        (delivery(), Reported(-32000, "Connection closed"), FateUnknown, "it is gone", ["the connection was lost"]),
        (delivery(unsent="no route"), Reported(-32000, "Connection closed"), EffectNotStarted, "no route",
         ["no route"]),
        (delivery(200), Reported(-32000, "my own"), FateUnknown, "HTTP status 200", []),
        (delivery(200), Reported(-32001, "late"), FateUnknown, "HTTP status 200", []),
        (delivery(500, "text/html"), Reported(-32603, "oops"), FateUnknown, "HTTP status 500", []),
        (delivery(404, "text/html"), Reported(-32600, "oops"), FateUnknown, "HTTP status 404", ["HTTP status 404"]),
    ],
)  # fmt: skip
async def test_an_error_tells_whether_a_request_was_carried_out(record, error, kind, said, ended):
    connection: Any = Ending("it is gone")
    found = LineServer().connect()._classify(error, record, connection)
    assert (type(found), str(found)) == (kind, f"MCP server 's': {said}")
    assert connection.ended == ended


# -- the time limit of a call ------------------------------------------------------------------------------------------


class Clocked:
    """The clock of the event loop, which a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self.now = loop.time()
        monkeypatch.setattr(loop, "time", lambda: self.now)

    async def advance(self, seconds: float) -> None:
        self.now += seconds
        for _ in range(10):
            await asyncio.sleep(0)


class Calls:
    """A client of the SDK whose call ends when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.report: Any = None
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def call_tool(self, name: str, arguments: Any, *, progress_callback: Any, meta: Any) -> Any:
        self.asked.append((name, arguments, meta))
        self.report = progress_callback
        return await self.answer


def timed(seconds: float = 10.0) -> CallDeadline:
    return CallDeadline(McpServer(name="s", command="x", call_timeout_seconds=seconds))


async def begin(limit: CallDeadline, calls: Any, on_progress: Any = None, meta: Any = None) -> "asyncio.Task[Any]":
    task = asyncio.ensure_future(limit.call(calls, "act", {"a": 1}, on_progress, meta))
    for _ in range(3):
        await asyncio.sleep(0)
    return task


TIMED_OUT = "MCP server 's': tool 'act' did not end within 10 seconds, and was told to stop"


async def test_a_call_has_its_time_and_each_report_of_progress_gives_it_as_much_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, calls, seen = Clocked(monkeypatch), Calls(), list[Any]()
    task = await begin(timed(), calls, lambda *step: seen.append(step), {"m": 1})
    await clock.advance(9.5)
    await calls.report(1.0, 2.0, "half")
    await clock.advance(9.5)
    assert not task.done()
    await clock.advance(0.5)
    with pytest.raises(CallTimedOut) as caught:
        await task
    assert str(caught.value) == TIMED_OUT
    assert calls.asked == [("act", {"a": 1}, {"m": 1})]
    assert seen == [(1.0, 2.0, "half")]
    await calls.report(2.0, 2.0, "late")  # harms nothing


async def test_progress_does_not_extend_a_call_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "HARD_CALL_SECONDS", 25.0)
    clock, calls = Clocked(monkeypatch), Calls()
    task = await begin(timed(), calls)
    for _ in range(2):
        await clock.advance(9.0)
        await calls.report(1.0, None, None)
    await clock.advance(6.5)
    assert not task.done()
    await clock.advance(0.5)
    with pytest.raises(CallTimedOut):
        await task


async def test_a_call_may_take_longer_than_that_if_its_server_is_given_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "HARD_CALL_SECONDS", 5.0)
    clock, calls = Clocked(monkeypatch), Calls()
    task = await begin(timed(), calls)
    await clock.advance(4.0)
    await calls.report(1.0, None, None)
    await clock.advance(5.5)
    assert not task.done()
    await clock.advance(0.5)
    with pytest.raises(CallTimedOut):
        await task


async def test_the_time_in_which_people_answer_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "HARD_CALL_SECONDS", 15.0)
    clock, calls, limit = Clocked(monkeypatch), Calls(), timed()
    task = await begin(limit, calls)
    await clock.advance(9.0)
    answers: list[asyncio.Future[str]] = [asyncio.get_running_loop().create_future() for _ in range(2)]
    asking = [asyncio.ensure_future(limit.wait_for_people(each)) for each in answers]
    await clock.advance(1000.0)
    answers[0].set_result("yes")
    await calls.report(1.0, None, None)
    await clock.advance(1000.0)  # one of them is still open
    assert not task.done()
    answers[1].set_result("no")
    assert [await each for each in asking] == ["yes", "no"]
    await clock.advance(5.5)
    assert not task.done()
    calls.answer.set_result("done")
    assert await task == "done"
