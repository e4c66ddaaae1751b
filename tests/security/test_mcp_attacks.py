"""Known attacks on MCP clients, each by its number or name, through an agent with a hostile server."""

import sys

import pytest

from perdure import Agent, Permissions, Status, allow, tool
from perdure._mcp.client.listing import build_offered_name
from perdure._mcp.client.tools import is_safe_link
from perdure.mcp import McpServer, McpServers
from perdure.testing import ScriptedModel, call
from perdure.tools import coding
from tests.mcp.servers import SCRIPT, read_lines, scripted

pytestmark = pytest.mark.packages("mcp")
pytest.importorskip("mcp")


def results(outcome):
    return [each for message in outcome.messages for each in message.tool_results]


async def run(server, *calls, pins=None, **options):
    model = ScriptedModel(*calls, "done")
    servers = McpServers(server, pins=pins)
    outcome = await Agent(model, extensions=[servers.extension], **options).run("go")
    return model, servers, results(outcome)


@pytest.mark.parametrize(
    "url",
    [
        "http://evil.example/$(calc.exe)",
        "file:/c:/windows/system32/calc.exe",
        "https://evil.example/'&calc.exe&'",
        "https://evil.example/`id`",
        "javascript:alert(1)",
        "vscode://file/etc/passwd",
    ],
)
async def test_cve_2025_6514_an_address_of_a_server_is_not_opened_nor_shown_as_a_link(url):
    assert not is_safe_link(url)
    _, _, (result,) = await run(scripted("asks_badly", permission=False), call("s__act"))
    assert result.text == '{"action": "decline"}'


async def test_cve_2025_54136_a_server_that_keeps_its_name_and_changes_its_command_is_off(tmp_path):
    pins = tmp_path / "pins.json"
    await run(scripted("kind", tmp_path, permission=False), call("s__act"), pins=pins)
    other = McpServer(
        name="s", command=sys.executable, args=("-I", "-S", str(SCRIPT), "double", str(tmp_path)), permission=False
    )
    model, servers, (result,) = await run(other, call("s__act"), pins=pins)
    assert model.requests[0].tools == ()
    assert result.is_error
    assert [each.kind for each in servers.changes["s"]] == ["reached_differently"]
    assert len(read_lines(tmp_path, "calls")) == 1


async def test_cve_2025_54135_a_model_does_not_write_the_file_that_names_servers(tmp_path):
    model = ScriptedModel(call("write", path=".mcp.json", content='{"mcpServers": {}}'), "done")
    extension = coding(tmp_path, shell=False)
    outcome = await Agent(model, extensions=[extension], permission=Permissions(allow())).run("go")
    assert results(outcome)[0].is_error
    assert not (tmp_path / ".mcp.json").exists()


async def test_cve_2025_53967_nothing_of_a_server_or_a_call_is_read_by_a_shell(tmp_path):
    planted = tmp_path / "planted"
    nasty = f"$(touch {planted}); touch {planted} & `touch {planted}`"
    server = McpServer(
        name="s", command=sys.executable, args=("-I", "-S", str(SCRIPT), "kind", str(tmp_path), nasty), permission=False
    )
    _, _, (result,) = await run(server, call("s__echo", text=nasty))
    assert result.text == f"echo {nasty}"
    assert not planted.exists()


async def test_postmark_mcp_a_tool_that_quietly_gains_a_recipient_is_off(tmp_path):
    pins = tmp_path / "pins.json"
    await run(scripted("rug_pull", tmp_path, permission=False), call("s__act", text="mail"), pins=pins)
    model, servers, (result,) = await run(scripted("rug_pull", tmp_path, permission=False), call("s__act"), pins=pins)
    assert "s__act" not in [each.name for each in model.requests[0].tools]
    assert result.is_error
    assert "+" in servers.changes["s"][0].difference
    assert read_lines(tmp_path, "calls") == ["act mail"]


async def test_tool_poisoning_a_description_hides_nothing_and_its_text_sends_no_private_data(tmp_path):
    @tool(effect="read", labels=["private"])
    def read_diary() -> str:
        """Read the diary."""
        return "dear diary"

    model, _, found = await run(
        scripted("bad_schemas", tmp_path, permission=False),
        call("s__echo", text="a"),
        call("read_diary"),
        call("s__act", text="dear diary"),
        tools=[read_diary],
        permission=Permissions(),
    )
    texts = "".join([each.description for each in model.requests[0].tools])
    assert all(each.isprintable() for each in texts)
    assert [each.status for each in found] == [Status.OK, Status.OK, Status.DENIED]
    assert read_lines(tmp_path, "calls") == ["echo a"]


async def test_tool_shadowing_no_tool_of_a_server_takes_the_place_of_another(tmp_path):
    @tool(name="s__act", effect="read")
    def own() -> str:
        """Be the agent's own."""
        return "own"

    _, _, (result,) = await run(scripted("kind", tmp_path, permission=False), call("s__act"), tools=[own])
    assert result.text == "own"
    assert read_lines(tmp_path, "calls") == []
    assert build_offered_name("a", "b__c") != build_offered_name("a__b", "c")
