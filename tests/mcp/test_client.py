"""Requests to servers that behave well, badly, or not at all."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from perdure.core.error import ConfigError, EffectNotStarted
from perdure.mcp import connection, stdio_streams
from perdure.mcp.client import (
    MOST_STARTS,
    CallTimedOut,
    FateUnknown,
    McpClient,
    McpError,
    StartAndLoginCallbacks,
    UnusableAnswer,
)
from perdure.mcp.server_settings import McpServer
from perdure.mcp_extension import start_process
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
    monkeypatch.setattr(stdio_streams, "MAX_GARBAGE_LINES", 3)
    async with connect("garbage") as servers:  # which writes three such lines with each call
        client = servers.pool.get_client("s")
        assert text_of(await client.call_tool("echo", {"text": "a"})) == "echo a"
        with pytest.raises(FateUnknown, match="what is no message"):
            await client.call_tool("echo", {"text": "b"})
    assert len([each for each in caplog.messages if "a line to its standard output that is no message" in each]) == 1


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
