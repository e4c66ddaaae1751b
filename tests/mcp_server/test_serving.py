"""The official SDK's client against our server: both generations of the protocol, over stdio and HTTP."""

import asyncio
import contextlib
import importlib.util
import os
import re
import sys
from pathlib import Path

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError

from perdure import Agent, ConfigError, Permissions, Toolbox, ToolContext, allow, tool
from perdure.events import ToolFinished
from perdure.mcp import ClientLimits, ServedAgent, build_app, serve_http, serve_stdio
from perdure.people import Confirm
from perdure.testing import ScriptedModel, call
from tests.mcp_server.served_tools import (
    ANN,
    BOB,
    GENERATIONS,
    TOKENS,
    TOOLS,
    WAIT_SECONDS,
    Slow,
    Sum,
    add,
    connected,
    count,
    helper,
    running,
    shout,
    wipe,
)

ROOT = Path(__file__).parents[2]


@contextlib.asynccontextmanager
async def over_stdio(mode):
    environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "HOME") if name in os.environ}
    program = StdioServerParameters(
        command=sys.executable, args=["-m", "tests.mcp_server.stdio_program"], cwd=str(ROOT), env=environment
    )
    async with Client(program, mode=mode) as client:
        yield client


@contextlib.asynccontextmanager
async def over_http(mode):
    agent = helper("first answer", "second answer")
    served = [*TOOLS, Slow().wait_for_ever, ServedAgent(agent=agent)]
    async with running(served, name="test-server") as url, connected(url, mode) as client:
        yield client


@pytest.mark.parametrize("transport", [over_stdio, over_http])
@pytest.mark.parametrize("mode", GENERATIONS)
async def test_the_sdks_client_lists_calls_follows_and_cancels(transport, mode):
    async with transport(mode) as client:
        assert client.session.protocol_version == GENERATIONS[mode]
        listed = {each.name: each for each in (await client.list_tools()).tools}
        assert list(listed)[:3] == ["add", "shout", "wipe"]
        assert listed["add"].annotations.read_only_hint
        assert not listed["add"].annotations.destructive_hint
        assert listed["wipe"].annotations.destructive_hint
        assert listed["add"].output_schema["properties"] == {"total": {"type": "integer"}}
        assert listed["add"].input_schema["required"] == ["a", "b"]
        assert listed["helper"].description == "Answers questions."

        summed = await client.call_tool("add", {"a": 19, "b": 23})
        assert summed.structured_content == {"total": 42}
        assert not summed.is_error
        assert (await client.call_tool("shout", {"text": "hé"})).content[0].text == "HÉ"
        assert (await client.call_tool("picture", {})).content[0].data == "iVBORw=="

        denied = await client.call_tool("wipe", {})
        assert denied.is_error
        assert denied.meta["perdure/status"] == "denied"
        invalid = await client.call_tool("shout", {"text": 3})
        assert invalid.is_error
        assert "text" in invalid.content[0].text
        failed = await client.call_tool("explode", {})
        assert failed.is_error
        assert "boom" in failed.content[0].text
        with pytest.raises(MCPError, match="no tool 'nothing'; available: add"):
            await client.call_tool("nothing", {})

        seen, has_begun = [], asyncio.Event()

        async def note(_progress, _total, message):
            seen.append(message)
            if message == "wait_for_ever started":
                has_begun.set()

        await client.call_tool("count", {}, progress_callback=note)
        assert "half way" in seen

        answers = [(await client.call_tool("helper", {"task": "?"})).content[0].text for _ in range(2)]
        assert answers == ["first answer", "second answer"]

        waiting = asyncio.create_task(client.call_tool("wait_for_ever", {}, progress_callback=note))
        await asyncio.wait_for(has_begun.wait(), WAIT_SECONDS)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await client.call_tool("add", {"a": 1, "b": 1})).structured_content == {"total": 2}


@pytest.mark.parametrize("mode", GENERATIONS)
async def test_a_call_that_the_client_cancels_is_stopped_and_stored(mode, tmp_path):
    slow = Slow()
    store = f"sqlite:{tmp_path / 'log.db'}"
    agent = Agent(ScriptedModel(), name="box", tools=[slow.wait_for_ever, count], store=store)
    async with running(ServedAgent(agent=agent, offer="tools")) as url, connected(url, mode) as client:
        session_id = (await client.call_tool("count", {})).content[0].text
        waiting = asyncio.create_task(client.call_tool("wait_for_ever", {}))
        await asyncio.wait_for(slow.started.wait(), WAIT_SECONDS)
        waiting.cancel()
        await asyncio.wait({waiting})
        await asyncio.wait_for(slow.ended.wait(), WAIT_SECONDS)
        await client.call_tool("count", {})
    async with agent:
        entries = await agent.session(session_id).store.read(session_id)
    finished = [each.event for each in entries if isinstance(each.event, ToolFinished)]
    assert [each.result.status.value for each in finished] == ["ok", "cancelled", "ok"]


async def test_a_server_that_stops_cancels_its_calls():
    slow = Slow()
    async with contextlib.AsyncExitStack() as stack:
        url = await stack.enter_async_context(running([slow.wait_for_ever]))
        async with asyncio.timeout(WAIT_SECONDS):  # not wait_for: on Python 3.11 it would enter it in another task
            client = await stack.enter_async_context(connected(url))
        waiting = asyncio.create_task(client.call_tool("wait_for_ever", {}))
        stack.push_async_callback(asyncio.wait, {waiting}, timeout=WAIT_SECONDS)
        stack.callback(waiting.cancel)
        await asyncio.wait_for(slow.started.wait(), WAIT_SECONDS)
    assert slow.ended.is_set()


@contextlib.asynccontextmanager
async def served_by_a_process(folder):
    """Start the program that is killed, and give its URL and the process."""
    (folder / "url").unlink(missing_ok=True)
    program = (sys.executable, "-m", "tests.mcp_server.killed_program", str(folder), ANN)
    process = await asyncio.create_subprocess_exec(*program, cwd=ROOT)
    try:
        await wait_for_text(folder / "url")
        yield (folder / "url").read_text(), process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def wait_for_text(path):
    async with asyncio.timeout(WAIT_SECONDS):
        while not path.exists() or not path.read_text():  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.02)


async def test_after_a_kill_in_the_middle_of_a_call_the_run_goes_on_and_its_effect_is_not_repeated(tmp_path):
    async with served_by_a_process(tmp_path) as (url, process):
        with contextlib.suppress(Exception):  # the client loses its connection
            async with connected(url) as client:
                calling = asyncio.create_task(client.call_tool("box", {"task": "act"}))
                await wait_for_text(tmp_path / "effects")
                process.kill()
                await asyncio.wait({calling}, timeout=WAIT_SECONDS)
                assert calling.done()
                calling.exception()
    async with served_by_a_process(tmp_path) as (url, _), connected(url) as client:
        result = await client.call_tool("box", {})
        assert result.content[0].text == "seen"
    agent = Agent(ScriptedModel(), name="box", store=f"sqlite:{tmp_path / 'log.db'}")
    async with agent:
        state = await agent.session(result.meta["perdure/session"]).read_state()
    assert [each.status.value for message in state.messages for each in message.tool_results] == ["unknown"]
    assert (tmp_path / "effects").read_text() == "x"


async def test_a_client_is_who_its_token_says_whatever_it_sends():
    async with running([count]) as url:
        ids = []
        for token in (TOKENS["ann"], BOB):
            headers = {"X-Client": "root", "X-Forwarded-User": "root", "X-Forwarded-For": "10.0.0.1"}
            async with connected(url, token=token, **headers) as client:
                ids += [(await client.call_tool("count", {})).content[0].text for _ in range(2)]
    assert [each.split("/")[1] for each in ids] == ["ann", "ann", "bob", "bob"]
    assert ids[0] == ids[1]
    assert ids[2] == ids[3]


async def test_an_agent_remembers_each_conversation_of_each_client(tmp_path):
    model = ScriptedModel(*[f"answer {number}" for number in range(6)])
    agent = Agent(model, name="My helper!", store=f"sqlite:{tmp_path / 'log.db'}")
    for _ in range(2):  # a second server goes on with the conversations of the first
        async with running(agent) as url:
            async with connected(url) as client:
                assert [each.name for each in (await client.list_tools()).tools] == ["My-helper"]
                await client.call_tool("My-helper", {"task": "one"})
                result = await client.call_tool("My-helper", {"task": "two", "conversation": "other"})
                assert result.meta["perdure/session"] == "mcp/ann/My-helper/other"
            async with connected(url, token=BOB) as client:
                await client.call_tool("My-helper", {"task": "three"})
    counts = [len(request.messages) for request in model.requests]
    assert counts == [1, 1, 1, 3, 3, 3]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"task": "x", "conversation": "../bob"}, "conversation: use"),
        ({"task": "x", "conversation": 3}, "conversation: use"),
        ({"task": 3}, "task: give text"),
        ({"job": "x"}, "unknown argument 'job'"),
        ({}, "nothing to continue"),
    ],
)
async def test_wrong_arguments_for_an_agent_are_explained(arguments, said):
    async with running(helper("never")) as url, connected(url) as client:
        result = await client.call_tool("helper", arguments)
    assert result.is_error
    assert said in result.content[0].text


async def test_an_answer_of_a_type_is_structured_content():
    agent = Agent(ScriptedModel('{"total": 4}'), name="adder")
    async with running(ServedAgent(agent=agent, output=Sum)) as url, connected(url) as client:
        listed = (await client.list_tools()).tools[0]
        assert listed.output_schema["required"] == ["total"]
        assert (await client.call_tool("adder", {"task": "2 + 2"})).structured_content == {"total": 4}


async def test_a_run_that_waits_for_a_person_says_so_and_goes_on_without_a_task(tmp_path):
    @tool(asks_first=True)
    async def book(context: ToolContext) -> str:
        """Book a table."""
        return "booked" if await context.ask(Confirm("Book it?")) else "not booked"

    model = ScriptedModel(call("book"), "All done.")
    agent = Agent(model, name="waiter", tools=[book], store=f"sqlite:{tmp_path / 'log.db'}", answer_timeout_seconds=0)
    async with running(agent) as url, connected(url) as client:
        result = await client.call_tool("waiter", {"task": "book a table"})
        assert result.is_error
        assert "Book it?" in result.content[0].text
        still = await client.call_tool("waiter", {})
        assert "waits for an answer" in still.content[0].text
        session = agent.session(result.meta["perdure/session"])
        assert await session.answer((await session.questions())[0].ask_id, answer=True)
        assert (await client.call_tool("waiter", {})).content[0].text == "All done."


async def test_a_gate_of_the_tools_decides_about_their_calls():
    async with running(Toolbox([wipe]), permission=Permissions(allow("wipe"))) as url, connected(url) as client:
        assert (await client.call_tool("wipe", {})).content[0].text == "wiped"


async def test_a_client_that_calls_too_often_is_refused_and_another_is_not():
    limits = ClientLimits(calls_per_minute=2)
    async with running([add], limits=limits) as url:
        async with connected(url) as client:
            for _ in range(2):
                await client.call_tool("add", {"a": 1, "b": 1})
            with pytest.raises(MCPError, match="too many calls: try again in"):
                await client.call_tool("add", {"a": 1, "b": 1})
        async with connected(url, token=BOB) as client:
            assert (await client.call_tool("add", {"a": 1, "b": 1})).structured_content == {"total": 2}


async def test_calls_at_the_same_time_are_limited():
    slow = Slow()
    async with (
        running([slow.wait_for_ever, add], limits=ClientLimits(calls_at_once=1)) as url,
        connected(url) as client,
    ):
        waiting = asyncio.create_task(client.call_tool("wait_for_ever", {}))
        await asyncio.wait_for(slow.started.wait(), WAIT_SECONDS)
        with pytest.raises(MCPError, match="1 calls in progress"):
            await client.call_tool("add", {"a": 1, "b": 1})
        waiting.cancel()
        await asyncio.wait({waiting})


def test_a_server_needs_something_to_serve():
    with pytest.raises(ConfigError, match="nothing to serve"):
        build_app([], tokens=TOKENS)
    with pytest.raises(ConfigError, match="give an agent, a toolbox or a list of tools"):
        build_app(3, tokens=TOKENS)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="two of the tools that are served are called 'helper'"):
        build_app([helper(), helper()], tokens=TOKENS)
    with pytest.raises(ConfigError, match="are for tools without an agent"):
        build_app(helper(), tokens=TOKENS, store="memory:")
    with pytest.raises(ConfigError, match="not a tool"):
        build_app([print], tokens=TOKENS)  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tokens": {}}, "needs a token for each client, also on this machine"),
        ({"tokens": {"ann": "short"}}, "32 or more letters"),
        ({"host": "example.org"}, "give an IP address"),
        ({"host": "0.0.0.0"}, "allow_remote=True"),
        ({"host": "0.0.0.0", "allow_remote": True}, "must not cross a network unencrypted"),
        ({"host": "0.0.0.0", "allow_remote": True, "behind_proxy": True}, "give hosts="),
        ({"port": 70_000}, "up to 65535"),
        ({"path": "mcp"}, "begins with '/'"),
        ({"origins": "http://x"}, "give a list of texts"),
    ],
)
async def test_a_server_that_would_not_be_safe_does_not_start(options, said):
    with pytest.raises(ConfigError, match=said):
        await serve_http([shout], **{"tokens": TOKENS, **options})


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, "http://127.0.0.1"),
        ({"host": "localhost"}, "http://localhost"),
        ({"host": "::1", "path": "/tools"}, "http://[::1]"),
        ({"host": "127.0.0.9", "hosts": ["127.0.0.9"]}, "http://127.0.0.9"),
        ({"host": "0.0.0.0", "allow_remote": True, "behind_proxy": True, "hosts": ["a.b"]}, "http://0.0.0.0"),
    ],
)
async def test_a_server_of_this_machine_needs_no_more_than_tokens_and_reports_its_url(options, shown):
    async with running([shout], **options) as url:
        assert re.fullmatch(re.escape(shown) + ":[1-9][0-9]*" + options.get("path", "/mcp"), url), url


async def test_a_server_answers_by_its_usual_names_and_those_that_it_is_given():
    async with running([shout], hosts=["tools.example"]) as url, httpx2.AsyncClient(trust_env=False) as http:
        for name, status in (("localhost", 401), ("[::1]:80", 401), ("tools.example", 401), ("example.org", 421)):
            assert (await http.post(url, headers={"Host": name})).status_code == status


async def test_an_address_that_is_in_use_is_reported():
    async with running([shout]) as url:
        port = int(url.split(":")[2].partition("/")[0])
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1 port {port} .*: choose another, or 0 for"):
            await serve_http([shout], tokens=TOKENS, port=port)


@pytest.mark.parametrize("missing", ["mcp", "mcp_types"])
async def test_without_the_sdk_a_server_says_what_to_install(missing, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else find(name))
    said = "an MCP server needs the MCP SDK, which is not installed: pip install 'perdure[mcp]'"
    with pytest.raises(ConfigError) as caught:
        build_app([shout], tokens=TOKENS)
    assert str(caught.value) == said
    with pytest.raises(ConfigError) as caught:
        await serve_stdio([shout])
    assert str(caught.value) == said


async def test_stdio_serves_nothing_that_cannot_be_served():
    with pytest.raises(ConfigError, match="nothing to serve"):
        await serve_stdio([])
