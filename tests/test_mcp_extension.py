"""Tools of MCP servers in an agent: when they are connected to, what is offered, and what people are asked."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, ConfigError, Limits, Permissions, Status, allow, deny, tool
from perdure._mcp import servers as mcp_extension
from perdure.events import ToolProgress
from perdure.mcp import McpServer, McpServers
from perdure.permissions import later
from perdure.testing import ScriptedModel, call

pytestmark = pytest.mark.packages("mcp")
pytest.importorskip("mcp")

from tests.mcp.http_server import reach, serve_http  # noqa: E402 - after the check
from tests.mcp.line_server import LineServer  # noqa: E402
from tests.mcp.servers import connect, read_lines, scripted, wait_until  # noqa: E402

ASKING = Path(__file__).with_name("mcp") / "asking_server.py"

ECHO = call("s__echo", text="a")
ACT = call("s__act", text="a")


def mcp(*servers):
    return McpServers(*servers).extension


def results(outcome):
    return [result for message in outcome.messages for result in message.tool_results]


def offered(model, place=0):
    return [each.name for each in model.requests[place].tools]


async def test_an_agent_has_the_tools_of_a_server_during_a_run(tmp_path):
    model = ScriptedModel(ECHO, "done", "again")
    agent = Agent(model, extensions=[mcp(scripted("kind", tmp_path, trust_hints=True))])
    outcome = await agent.run("go")
    assert offered(model) == ["s__echo", "s__act"]
    assert [each.text for each in results(outcome)] == ["echo a"]
    assert results(outcome)[0].labels == ("untrusted",)
    await agent.run("again")
    assert len(read_lines(tmp_path, "starts")) == 2


async def test_inside_the_block_of_an_agent_a_server_is_started_once(tmp_path):
    model = ScriptedModel(ECHO, "one", ECHO, "two")
    async with Agent(model, extensions=[mcp(scripted("kind", tmp_path, trust_hints=True))]) as agent:
        await agent.run("go")
        await agent.run("go")
    assert len(read_lines(tmp_path, "starts")) == 1


async def test_a_tool_asks_for_permission_whatever_its_hints_say(tmp_path):
    agent = Agent(ScriptedModel(ECHO, "done"), extensions=[mcp(scripted("kind", tmp_path))], permission=Permissions())
    outcome = await agent.run("go")
    assert [each.status for each in results(outcome)] == [Status.DENIED]
    assert read_lines(tmp_path, "calls") == []


async def test_rules_name_the_server_and_the_tool(tmp_path):
    rules = Permissions(allow(action="mcp_call", target="s.*"), deny(action="mcp_call", target="s.act"))
    model = ScriptedModel(ECHO, ACT, "done")
    outcome = await Agent(model, extensions=[mcp(scripted("kind", tmp_path))], permission=rules).run("go")
    assert [each.status for each in results(outcome)] == [Status.OK, Status.DENIED]


async def test_an_effect_whose_fate_is_unknown_has_that_status(tmp_path):
    model = ScriptedModel(ACT, "done")
    extension = mcp(scripted("dies_before_answer", tmp_path, permission=False))
    outcome = await Agent(model, extensions=[extension]).run("go")
    assert [each.status for each in results(outcome)] == [Status.UNKNOWN]
    assert "may or may not have taken effect" in results(outcome)[0].text
    assert read_lines(tmp_path, "calls") == ["act a"]


async def test_an_http_error_after_the_request_was_sent_leaves_the_fate_unknown():
    async with serve_http("503") as server:
        model = ScriptedModel(call("h__act"), "done")
        outcome = await Agent(model, extensions=[mcp(reach(server, permission=False))]).run("go")
    assert [each.status for each in results(outcome)] == [Status.UNKNOWN]


async def test_progress_becomes_an_event():
    seen = []
    model = ScriptedModel(ECHO, "done")
    extension = mcp(scripted("progress", permission=False))
    agent = Agent(model, extensions=[extension], watchers=[lambda entry: seen.append(entry.event)])
    await agent.run("go")
    assert {"progress": 1.0, "total": 2.0, "message": "step 1"} in [
        each.data for each in seen if isinstance(each, ToolProgress)
    ]


async def test_a_cancelled_run_cancels_the_call_at_the_server(tmp_path):
    model = ScriptedModel(ACT, "done")
    agent = Agent(model, extensions=[mcp(scripted("hangs", tmp_path, permission=False))])
    async with agent:
        session = agent.session("x")
        running = asyncio.ensure_future(session.run("go"))
        await wait_until(lambda: read_lines(tmp_path, "calls"))
        await session.cancel()
        outcome = await running
        await wait_until(lambda: "notifications/cancelled" in read_lines(tmp_path, "notes"))
    assert outcome.status == "cancelled"


async def test_a_server_that_cannot_be_reached_is_left_out(caplog):
    model = ScriptedModel("done")
    servers = McpServers(scripted("never_starts"), scripted("kind", name="t"))
    outcome = await Agent(model, extensions=[servers.extension]).run("go")
    assert outcome.status == "done"
    assert offered(model) == ["t__echo", "t__act"]
    assert "no license" in servers.problems["s"]


async def test_a_tool_of_the_agent_is_not_shadowed():
    @tool(name="s__echo")
    def own() -> str:
        """Be the agent's own."""
        return "own"

    model = ScriptedModel(call("s__echo"), "done")
    agent = Agent(model, tools=[own], extensions=[mcp(scripted("kind", permission=False))])
    outcome = await agent.run("go")
    assert results(outcome)[0].text == "own"
    assert offered(model) == ["s__echo", "s__act"]


async def test_a_tool_that_has_changed_is_not_offered_until_it_is_approved(tmp_path):
    def servers():
        return McpServers(scripted("rug_pull", tmp_path, permission=False), pins=tmp_path / "pins.json")

    first = ScriptedModel(ACT, "done")
    await Agent(first, extensions=[servers().extension]).run("go")
    changed, second = servers(), ScriptedModel(ACT, "done", "more")
    outcome = await Agent(second, extensions=[changed.extension]).run("go")
    assert offered(second) == ["s__echo"]
    assert results(outcome)[0].is_error
    assert read_lines(tmp_path, "calls") == ["act a"]
    (change,) = changed.changes["s"]
    assert "id_rsa" in change.difference
    async with changed:
        await changed.approve("s", ["act"])
        assert [each.name for each in changed.list_ready_tools()] == ["s__echo", "s__act"]


async def test_a_tool_that_changes_during_a_run_is_refused(tmp_path):
    model = ScriptedModel(ACT, ACT, "done")
    agent = Agent(model, extensions=[mcp(scripted("rug_pull", tmp_path, permission=False))])
    async with agent:
        (pid,) = read_lines(tmp_path, "starts")
        os.kill(int(pid), signal.SIGKILL)  # it comes back with other words
        outcome = await agent.run("go")
    assert all(each.is_error for each in results(outcome))
    assert read_lines(tmp_path, "calls") == []


async def test_a_server_that_is_reached_in_another_way_is_off(tmp_path):
    pins = tmp_path / "pins.json"
    async with McpServers(scripted("kind"), pins=pins):
        pass
    async with McpServers(scripted("double"), pins=pins) as servers:
        assert servers.list_ready_tools() == []
        assert [each.kind for each in servers.changes["s"]] == ["reached_differently"]


async def test_tools_that_come_later_are_offered_once_they_are_approved(tmp_path):
    servers = connect("grows", tmp_path, permission=False)
    model = ScriptedModel(ACT, "one", "two")
    agent = Agent(model, extensions=[servers.extension])
    async with agent:
        await agent.run("go")
        await wait_until(lambda: servers.pool.get_client("s").list_version > 1)
        await servers.approve("s")
        await agent.run("go")
    assert offered(model, -1) == ["s__echo", "s__act", "s__later"]


async def test_only_what_was_shown_is_approved(tmp_path):
    async with connect("list_differs", tmp_path, permission=False) as servers:
        client = servers.pool.get_client("s")
        client.list_version += 1  # as after a notification; each listing has other words
        await servers.load_tools("s")
        (shown,) = servers.changes["s"]
        client.list_version += 1
        await servers.approve("s")
        (left,) = servers.changes["s"]
        assert "effect.2" in shown.difference
        assert "effect.3" in left.difference
        assert [each.name for each in servers.list_ready_tools()] == ["s__echo"]


async def test_a_server_that_was_down_is_tried_again_during_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr("perdure._mcp.servers.RETRY_SECONDS", 0.0)
    servers = connect("late_license", tmp_path, permission=False)

    @tool
    async def buy_license() -> str:
        """Buy a license, between two attempts."""
        await wait_until(lambda: not any(each.get_name() == "perdure-mcp-retry" for each in asyncio.all_tasks()))
        (tmp_path / "license").write_text("x\n")
        return "bought"

    @tool
    async def wait() -> str:
        """Wait for the server."""
        await wait_until(servers.list_ready_tools)
        return "ready"

    model = ScriptedModel(call("buy_license"), call("wait"), ACT, "done")
    outcome = await Agent(model, tools=[buy_license, wait], extensions=[servers.extension]).run("go")
    assert offered(model) == ["buy_license", "wait"]
    assert results(outcome)[-1].text == "echo a"
    assert servers.problems == {}


async def test_the_end_of_a_run_does_not_wait_for_a_server_that_is_down(monkeypatch):
    monkeypatch.setattr("perdure._mcp.servers.RETRY_SECONDS", 0.0)
    servers = McpServers(scripted("initialize_hangs", start_timeout_seconds=0.05))
    async with Agent(ScriptedModel("one", "two"), extensions=[servers.extension]) as agent:
        servers.pool.servers["s"] = scripted("initialize_hangs", start_timeout_seconds=600)
        servers.pool._clients.clear()
        await agent.run("go")
    assert not [each for each in asyncio.all_tasks() if each.get_name().startswith("perdure-mcp")]


async def test_a_person_answers_the_question_of_a_server():
    model = ScriptedModel(ACT, "done")
    agent = Agent(model, extensions=[mcp(scripted("asks", permission=False))], answer_timeout_seconds=60)
    async with agent:
        session = agent.session("x")
        running = asyncio.ensure_future(session.run("go"))
        async with asyncio.timeout(20):
            while not (views := await session.display.slots()):  # noqa: ASYNC110 - another process would do the same
                await asyncio.sleep(0.01)
        assert views[0].renderer == "form"
        assert views[0].input["question"] == "The MCP server 's' asks: Which color?"
        with pytest.raises(ConfigError, match="does not answer"):
            await session.display.resolve(views[0].slot_id, {"color": 7})
        await session.display.resolve(views[0].slot_id, {"color": "red"})
        outcome = await running
    assert results(outcome)[0].text == '{"action": "accept", "content": {"color": "red"}}'


async def test_a_question_is_answered_by_another_process_and_the_run_resumed(tmp_path):
    def agent(*replies):
        extension = mcp(scripted("asks", effects={"act": "read"}))
        return Agent(ScriptedModel(*replies), extensions=[extension], store=f"sqlite:{tmp_path / 'a.db'}")

    outcome = await agent(ACT).session("x").run("go")
    assert outcome.status == "waiting"
    elsewhere = agent("done").session("x")
    (view,) = await elsewhere.display.slots()
    await elsewhere.display.resolve(view.slot_id, {"color": "blue"})
    outcome = await agent("done").session("x").resume()
    assert outcome.status == "done"
    assert results(outcome)[0].text == '{"action": "accept", "content": {"color": "blue"}}'


async def test_a_server_of_the_stateless_protocol_asks_by_its_result_and_is_called_again_with_the_answer(tmp_path):
    server = McpServer(name="s", command=sys.executable, args=(str(ASKING), str(tmp_path)), permission=False)
    servers = McpServers(server)
    agent = Agent(ScriptedModel(call("s__paint"), "done"), extensions=[servers.extension], answer_timeout_seconds=600)
    async with agent:
        session = agent.session("x")
        running = asyncio.ensure_future(session.run("go"))
        async with asyncio.timeout(60):
            while not (views := await session.display.slots()):  # noqa: ASYNC110 - another process would do the same
                await asyncio.sleep(0.01)
        connection = await servers.pool.get_client("s")._connect()
        assert (await connection.wait_until_ready()).protocol_version == "2026-07-28"
        assert views[0].input["question"] == "The MCP server 's' asks: Which color?"
        assert read_lines(tmp_path, "effects") == []
        await session.display.resolve(views[0].slot_id, {"color": "red"})
        outcome = await running
    assert results(outcome)[0].text == "painted red"
    assert read_lines(tmp_path, "effects") == ["red"]


async def test_a_question_of_the_stateless_protocol_that_cannot_be_asked_has_no_effect(tmp_path):
    server = McpServer(name="s", command=sys.executable, args=(str(ASKING), str(tmp_path)), permission=False)
    model = ScriptedModel(call("s__paint"), "done")
    outcome = await Agent(model, extensions=[mcp(server)], interactive=False).run("go")
    assert results(outcome)[0].is_error
    assert read_lines(tmp_path, "effects") == []


async def test_a_question_that_cannot_be_asked_is_cancelled_or_declined():
    for behaviour, action in (("asks", "cancel"), ("asks_badly", "decline")):
        extension = mcp(scripted(behaviour, permission=False))
        agent = Agent(ScriptedModel(ACT, "done"), extensions=[extension], interactive=False)
        assert results(await agent.run("go"))[0].text == f'{{"action": "{action}"}}'


async def test_each_run_sends_its_own_headers():
    async with serve_http("kind") as server:
        servers = McpServers(
            reach(server, permission=False), headers=lambda _, run: {"Authorization": f"Bearer {run.deps['token']}"}
        )
        model = ScriptedModel(call("h__act"), "done", call("h__act"), "done")
        async with Agent(model, extensions=[servers.extension]) as agent:
            await agent.run("go", deps={"token": "ann"})
            await agent.run("go", deps={"token": "bob"})
    assert server.calls == ["Bearer ann", "Bearer bob"]
    assert {each.get("authorization") for each in server.headers} == {"Bearer ann", "Bearer bob"}


async def test_a_call_with_the_headers_of_a_run_is_approved_later_in_another_process(tmp_path):
    async with serve_http("kind") as server:

        def session(*replies):
            servers = McpServers(reach(server), headers=lambda _, __: {"Authorization": "ann"})
            agent = Agent(
                ScriptedModel(*replies),
                extensions=[servers.extension],
                store=f"sqlite:{tmp_path / 'a.db'}",
                permission=Permissions(handler=later),
            )
            return agent.session("x")

        assert (await session(call("h__act")).run("go")).status == "waiting"
        elsewhere = session("done")
        (view,) = await elsewhere.display.slots()
        assert server.calls == []
        await elsewhere.display.resolve(view.slot_id, True)
        outcome = await session("done").resume()
    assert [each.text for each in results(outcome)] == ["done"]
    assert server.calls == ["ann"]


async def test_structured_content_is_checked_and_kept_for_a_screen():
    model = ScriptedModel(ECHO, call("s__echo", text="bad"), "done")
    outcome = await Agent(model, extensions=[mcp(scripted("structured", permission=False))]).run("go")
    good, bad = results(outcome)
    assert (good.text, good.render) == ('{"n":7}', {"n": 7})
    assert bad.status is Status.ERROR
    assert "does not match the tool's schema" in bad.text


async def test_media_is_bounded_and_links_are_not_followed():
    model = ScriptedModel(ECHO, "done")
    outcome = await Agent(model, extensions=[mcp(scripted("media", permission=False))]).run("go")
    image, large, link, inside = results(outcome)[0].content
    assert image.data == b"hi"
    assert "too large" in large.text
    assert link.text == "[resource file:///etc/passwd (secret)]"
    assert inside.text == "inside"


async def test_resources_are_tools_if_the_owner_wants_them():
    model = ScriptedModel(call("s__list_resources"), call("s__read_resource", uri="note://one"), "done")
    extension = mcp(scripted("kind", resources=True, trust_hints=True))
    outcome = await Agent(model, extensions=[extension]).run("go")
    assert "note://one" in results(outcome)[0].text
    assert results(outcome)[1].text == "content of one"


async def test_allowed_tools_may_name_those_of_servers():
    model = ScriptedModel("done")
    agent = Agent(model, extensions=[mcp(scripted("kind"))], limits=Limits(allowed_tools=("s__echo",)))
    await agent.run("go")
    assert offered(model) == ["s__echo"]


async def test_an_allowed_tool_of_a_server_that_is_down_is_missed_when_it_is_called(caplog):
    model = ScriptedModel(ACT, "done")
    servers = McpServers(scripted("never_starts"), scripted("kind", name="t"))
    limits = Limits(allowed_tools=("s__act", "t__echo"))
    outcome = await Agent(model, extensions=[servers.extension], limits=limits).run("go")
    assert offered(model) == ["t__echo"]
    assert "there is no tool 's__act'" in results(outcome)[0].text
    assert "not there at the moment: s__act" in caplog.text


@pytest.mark.packages("pydantic_monty")
async def test_programs_and_catalogues_of_tools_have_those_of_servers():
    from perdure.tools import code_mode, tool_search

    servers = connect("kind", permission=False)
    search = ScriptedModel(call("load_tools", query="echo a text"), ECHO, "done")
    outcome = await Agent(search, extensions=[servers.extension, tool_search(threshold=0)]).run("go")
    assert offered(search) == ["load_tools"]
    assert results(outcome)[-1].text == "echo a"
    program = ScriptedModel(call("run_program", code="await s__echo(text='b')"), "done")
    extensions = [servers.extension, code_mode(hide_tools=True)]
    outcome = await Agent(program, extensions=extensions).run("go")
    assert offered(program) == ["run_program"]
    assert (results(outcome)[0].text, results(outcome)[0].labels) == ("echo b", ("untrusted",))


async def test_a_resume_without_the_server_makes_no_call(tmp_path):
    def agent(behaviour, *replies):
        server = scripted(behaviour, tmp_path, effects={"act": "read"})
        servers = McpServers(server, pins=tmp_path / "pins.json")
        return Agent(ScriptedModel(*replies), extensions=[servers.extension], store=f"sqlite:{tmp_path / 'a.db'}")

    assert (await agent("asks", ACT).session("x").run("go")).status == "waiting"
    other = agent("never_starts", "done").session("x")
    (view,) = await other.display.slots()
    await other.display.resolve(view.slot_id, {"color": "blue"})
    outcome = await other.resume()
    assert outcome.status == "done"
    assert "there is no tool 's__act'" in results(outcome)[0].text
    assert read_lines(tmp_path, "calls") == ["act a"]


async def test_a_rule_for_a_server_is_none_for_one_with_a_longer_name(tmp_path):
    rules = Permissions(allow(action="mcp_call", target="s.*"))
    servers = McpServers(scripted("kind", tmp_path, name="s.t"))
    async with servers:
        names = [each.name for each in servers.list_ready_tools()]
    agent = Agent(ScriptedModel(call(names[1]), "done"), extensions=[servers.extension], permission=rules)
    outcome = await agent.run("go")
    assert [each.status for each in results(outcome)] == [Status.DENIED]


async def test_no_error_shows_a_secret_of_the_server():
    words = ("-c", "import os, sys; sys.exit('bad key ' + os.environ['KEY'])")
    servers = McpServers(McpServer(name="s", command=sys.executable, args=words, env={"KEY": "sk-very-secret"}))
    async with servers:
        assert "bad key [hidden]" in servers.problems["s"]


async def test_a_call_from_the_host_program_finds_the_tools():
    agent = Agent(ScriptedModel(), extensions=[mcp(scripted("kind", permission=False))])
    result = await agent.session("x").call("s__echo", {"text": "a"})
    assert result.text == "echo a"


def test_bad_input_is_refused():
    with pytest.raises(ConfigError, match="no McpServer"):
        mcp("git")
    with pytest.raises(ConfigError, match="headers"):
        McpServers(headers=7)  # type: ignore[arg-type]


# -- servers in this process -------------------------------------------------------------------------------------------

OBJECT = {"type": "object"}


def listing(*names: str) -> dict[str, Any]:
    return {"tools": [{"name": name, "description": f"Does {name}.", "inputSchema": OBJECT} for name in names]}


def program(monkeypatch: pytest.MonkeyPatch, *names: str) -> LineServer:
    """A server with these tools, in the place of every program."""
    server = LineServer({"tools/list": listing(*names), "tools/call": {"content": [{"type": "text", "text": "done"}]}})
    monkeypatch.setattr(mcp_extension, "start_process", server.start)
    return server


def local(name: str = "s", **settings: Any) -> McpServer:
    return McpServer(name=name, command="x", permission=False, **settings)


async def test_connections_last_until_the_last_agent_is_closed_and_tools_are_listed_anew_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = program(monkeypatch, "one")
    servers = McpServers(local())
    assert servers.list_ready_tools() == []
    async with Agent(ScriptedModel(), extensions=[servers.extension]):
        async with Agent(ScriptedModel(), extensions=[servers.extension]):
            assert [each.name for each in servers.list_ready_tools()] == ["s__one"]
        assert [each.is_closed for each in server.processes] == [False]
    assert [each.is_closed for each in server.processes] == [True]
    server.answers["tools/list"] = listing("one", "two")
    async with servers:
        assert [each.tool for each in servers.changes["s"]] == ["two"]
        await servers.approve("s")
        assert [each.name for each in servers.list_ready_tools()] == ["s__one", "s__two"]
        assert servers.changes["s"] == []
    assert [each.is_closed for each in server.processes] == [True, True]


async def test_ready_tools_are_in_the_order_of_the_servers_and_only_those_that_are_offered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program(monkeypatch, "get_a", "get_b", "put")
    servers = McpServers(local("z", include=("get_*",), exclude=("get_b",)), local("a", exclude=("get_*",)))
    async with servers:
        assert [each.name for each in servers.list_ready_tools()] == ["z__get_a", "a__put"]
        assert servers.problems == {}


async def test_a_tool_of_a_server_stands_before_one_for_its_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    program(monkeypatch, "act", "list_resources")
    async with McpServers(local(resources=True)) as servers:
        names = [each.name for each in servers.list_ready_tools()]
    assert names[:2] == ["s__act", "s__list_resources"]
    assert len(names) == len(set(names)) == 3


async def test_a_server_that_works_again_is_no_problem_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    server = program(monkeypatch, "one")
    works = server.answers["tools/list"]
    server.answers["tools/list"] = {"error": {"code": -32603, "message": "broken"}}
    async with McpServers(local()) as servers:
        assert servers.problems == {"s": "MCP server 's': error -32603: broken"}
        assert servers.list_ready_tools() == []
        server.answers["tools/list"] = works
        await servers.approve("s")
        assert servers.problems == {}
        assert [each.name for each in servers.list_ready_tools()] == ["s__one"]


async def test_what_was_never_listed_is_listed_to_be_approved(monkeypatch: pytest.MonkeyPatch) -> None:
    server = program(monkeypatch, "one")
    servers = McpServers(local())
    await servers.pin_seen_tools("s")
    assert [method for method, _ in server.asked] == ["tools/list"]
    assert servers.list_ready_tools() == []
    assert list(servers.pins.load_pins()["s"].tools) == ["one"]
    await servers.pool.close()


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_server_that_a_run_cannot_reach_is_left_out_and_others_are_not(
    monkeypatch: pytest.MonkeyPatch, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    program(monkeypatch, "one")
    far = McpServer(name="far", transport="http", url="http://127.0.0.1:1/mcp")
    asked: list[str] = []

    def find(server: McpServer, _run: object) -> Any:
        asked.append(server.name)

        async def give() -> dict[str, str]:
            return {"Authorization": "ann"}

        return give() if is_async else {"Authorization": "ann"}

    model = ScriptedModel("done")
    servers = McpServers(far, local(), headers=find)
    outcome = await Agent(model, extensions=[servers.extension]).run("go")
    assert outcome.text == "done"
    assert offered(model) == ["s__one"]
    assert set(asked) == {"far"}  # a program has no headers
    assert servers.problems == {}
    assert any("cannot be reached" in each for each in caplog.messages)


async def test_the_tools_of_a_run_are_listed_once_until_they_change() -> None:
    async with serve_http("kind") as server:
        servers = McpServers(reach(server, permission=False), headers=lambda _, __: {"Authorization": "ann"})
        model = ScriptedModel(call("h__act"), call("h__act"), "done")
        await Agent(model, extensions=[servers.extension]).run("go")
    assert server.calls == ["ann", "ann"]
    assert offered(model, 0) == offered(model, 1) == ["h__act"]


@pytest.mark.parametrize(("home", "path"), [("/srv/perdure", "/srv/perdure"), ("", "~/.perdure"), (None, "~/.perdure")])
def test_pins_are_in_the_folder_of_the_user_unless_another_is_named(
    home: str | None, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PERDURE_HOME", raising=False)
    if home is not None:
        monkeypatch.setenv("PERDURE_HOME", home)
    assert mcp_extension.get_default_pins_path() == str(Path(path).expanduser() / "mcp_pins.json")
