"""Clients of servers: one for each identity, and not more than there is room for."""

import asyncio
from typing import Any

import pytest

from perdure import ConfigError
from perdure._mcp import servers as client_pool
from perdure._mcp.client.client import StartAndLoginCallbacks
from perdure.mcp import McpClientPool, McpServer
from tests.mcp.line_server import LineServer

pytestmark = pytest.mark.packages("mcp")

RESULT: Any = {"content": [{"type": "text", "text": "done"}]}
REMOTE = McpServer(name="remote", transport="http", url="https://host.example/mcp")


def local(name: str) -> McpServer:
    return McpServer(name=name, command="x")


def pool_of(*servers: McpServer, program: LineServer | None = None) -> McpClientPool:
    return McpClientPool(servers, StartAndLoginCallbacks((program or LineServer()).start))


def test_servers_are_known_by_their_names_which_are_given_once() -> None:
    pool = pool_of(local("one"), REMOTE)
    assert list(pool.servers) == ["one", "remote"]
    with pytest.raises(ConfigError) as caught:
        pool.add_server(local("one"))
    assert str(caught.value) == "two MCP servers are called 'one': give one of them another name"
    wrong: Any = "server"
    with pytest.raises(ConfigError) as caught:
        pool.add_server(wrong)
    assert str(caught.value) == (
        "'server' is no McpServer: give McpServer(name=…, command=…) or McpServer(name=…, transport='http', url=…)"
    )


async def test_each_identity_has_a_client_of_its_own() -> None:
    pool = pool_of(local("one"), REMOTE)
    ann = pool.get_client("remote", {"X-User": "ann", "X-Team": "a"})
    assert pool.get_client("remote", {"x-team": "a", "x-user": "ann"}) is ann
    others = [
        pool.get_client("remote"),
        pool.get_client("remote", {"X-User": "bob", "X-Team": "a"}),
        pool.get_client("remote", {"X-User": "ann"}),
    ]
    assert len({id(each) for each in (ann, *others)}) == 4
    assert pool.get_client("remote", {}) is pool.get_client("remote")
    assert pool.get_client("one", {"X-User": "ann"}) is pool.get_client("one")  # a process has no headers


async def test_an_unknown_server_is_told_with_those_that_are_known() -> None:
    with pytest.raises(ConfigError) as caught:
        pool_of(local("one"), REMOTE).get_client("two")
    assert str(caught.value) == "there is no MCP server 'two': there is 'one', 'remote'"
    with pytest.raises(ConfigError) as caught:
        pool_of().get_client("two")
    assert str(caught.value) == "there is no MCP server 'two': there is none"


async def test_a_server_that_is_removed_loses_its_connections_and_no_other_does() -> None:
    program = LineServer({"tools/call": RESULT})
    pool = pool_of(local("one"), local("two"), program=program)
    for name in ("one", "two"):
        await pool.get_client(name).call_tool("act", {})
    await pool.remove_server("one")
    assert list(pool.servers) == ["two"]
    assert [each.is_closed for each in program.processes] == [True, False]
    with pytest.raises(ConfigError):
        pool.get_client("one")
    await pool.remove_server("one")  # which is gone already
    pool.add_server(local("one"))
    assert not pool.get_client("one").is_connected
    await pool.close()
    assert [each.is_closed for each in program.processes] == [True, True]
    assert not pool.get_client("two").is_in_use


async def test_clients_without_a_connection_make_room_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_pool, "MOST_CLIENTS", 3)
    program = LineServer({"tools/call": RESULT})
    pool = pool_of(local("used"), REMOTE, program=program)
    used = pool.get_client("used")
    await used.call_tool("act", {})
    first, second = (pool.get_client("remote", {"X-User": each}) for each in "ab")
    assert pool.get_client("remote", {"X-User": "a"}) is first
    pool.get_client("remote", {"X-User": "c"})
    assert pool.get_client("used") is used
    assert pool.get_client("remote", {"X-User": "b"}) is not second
    await pool.close()
    assert not used.is_connected


async def test_a_closed_pool_waits_for_all_of_its_connections() -> None:
    program = LineServer({"tools/call": RESULT})
    pool = pool_of(local("one"), local("two"), program=program)
    await asyncio.gather(*[pool.get_client(name).call_tool("act", {}) for name in ("one", "two")])
    await pool.close()
    assert [each.is_closed for each in program.processes] == [True, True]
