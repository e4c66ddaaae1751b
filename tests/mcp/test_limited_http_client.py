"""Servers over HTTP: what an answer says about the fate of a call, bounded bodies, and whose headers are sent."""

import asyncio

import pytest

from perdure.core.error import EffectNotStarted
from perdure.mcp.client import FateUnknown, McpError
from perdure.mcp.server_settings import McpServer
from perdure.mcp_extension import McpServers

pytestmark = pytest.mark.packages("mcp")
pytest.importorskip("mcp")

import mcp_types  # noqa: E402 - after the check

from perdure.mcp.request_delivery import RequestDelivery  # noqa: E402
from tests.mcp.http_server import connect_http, reach, serve_http  # noqa: E402 - after the check


async def test_a_tool_is_called_over_http():
    async with connect_http("kind") as (server, servers):
        result = await servers.pool.get_client("h").call_tool("act", {})
        assert result.content[0].text == "done"
        assert server.headers[-1]["accept-encoding"] == "identity"


async def test_a_stream_that_cannot_be_opened_is_reported_as_what_it_is_and_as_no_status_of_the_server():
    client = McpServers(McpServer(name="s", transport="sse", url="http://127.0.0.1:1/sse")).pool.get_client("s")
    with pytest.raises(EffectNotStarted, match="no connection: ConnectError") as caught:
        await client.list_tools()
    assert "502" not in str(caught.value)
    await client.close()


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ("500", "HTTP status 500"),
        ("503", "HTTP status 503"),
        ("400", "HTTP status 400"),
        ("403", "HTTP status 403"),
        ("429", "HTTP status 429"),
        ("session", "HTTP status 404"),
        ("html", "HTTP status 200"),
        ("202", "HTTP status 202"),
        ("redirect", "HTTP status 307"),
        ("cut", "HTTP status 200"),
        ("gzip", "compressed its answer"),
        ("huge", "HTTP status 200"),
        ("drop", "connection was lost"),
        ("sse_ends", "HTTP status 200"),
    ],
)
async def test_the_fate_of_an_effect_is_unknown_once_it_was_sent(behaviour, words):
    async with connect_http(behaviour) as (server, servers):
        client = servers.pool.get_client("h")
        with pytest.raises(FateUnknown, match=words):
            await client.call_tool("act", {})
        assert len(server.calls) == 1  # never a second time
        server.behaviour = "kind"
        assert (await client.call_tool("act", {})).content[0].text == "done"


async def test_a_read_is_made_again_after_the_session_has_expired():
    async with connect_http("session") as (server, servers):
        result = await servers.pool.get_client("h").call_tool("act", {}, is_read=True)
        assert result.content[0].text == "done"
        assert len(server.calls) == 2


async def test_an_error_of_the_server_in_json_rpc_is_its_answer():
    async with connect_http("rpc_500") as (_, servers):
        with pytest.raises(McpError, match="error -32603: inside") as caught:
            await servers.pool.get_client("h").call_tool("act", {})
        assert caught.type is McpError


async def test_a_failed_call_leaves_others_alone():
    async with connect_http("waits") as (server, servers):
        client = servers.pool.get_client("h")
        other = asyncio.ensure_future(client.call_tool("act", {"wait": True}))
        await asyncio.wait_for(server.begun.wait(), 60)
        results = await asyncio.gather(*[client.call_tool("act", {}) for _ in range(8)], return_exceptions=True)
        assert {type(each) for each in results} == {FateUnknown}
        server.behaviour = "kind"
        await client.call_tool("act", {})
        server.released.set()
        assert (await other).content[0].text == "done"


async def test_an_answer_that_is_refused_does_not_say_that_the_call_was_not_made():
    class Answerer:
        run_id = "r"

        async def answer(self, _):
            return mcp_types.ElicitResult(action="decline")

    async with connect_http("asks") as (server, servers):
        with pytest.raises(FateUnknown):
            await servers.pool.get_client("h").call_tool("act", {}, answerer=Answerer())
        assert len(server.calls) == 1


def test_a_later_round_takes_nothing_back():
    record = RequestDelivery()
    record.note_answer(200, "application/json")
    record.note_unsent("gone")
    assert record.was_sent
    record.note_answer(401, "")
    assert not record.was_refused
    unsent = RequestDelivery()
    unsent.note_answer(401, "")
    unsent.note_unsent("gone")
    assert unsent.was_refused
    assert not unsent.was_sent


async def test_a_server_that_is_not_there_was_certainly_not_called():
    async with serve_http("kind") as server:
        servers = McpServers(reach(server))
    async with servers:
        assert "cannot be reached" in servers.problems["h"]
        with pytest.raises(EffectNotStarted, match="cannot be reached"):
            await servers.pool.get_client("h").call_tool("act", {})


async def test_a_server_that_wants_a_login_says_so():
    async with connect_http("login") as (_, servers):
        assert "wants a login" in servers.problems["h"]


async def test_a_login_that_expires_means_that_the_call_was_not_made():
    async with connect_http("kind") as (server, servers):
        client = servers.pool.get_client("h")
        await client.list_tools()
        server.behaviour = "login"
        with pytest.raises(McpError, match="was not carried out") as caught:
            await client.call_tool("act", {})
        assert caught.type is McpError
        assert server.calls == []


async def test_each_identity_has_its_own_connection():
    async with connect_http("kind") as (server, servers):
        ann = servers.pool.get_client("h", {"Authorization": "ann"})
        bob = servers.pool.get_client("h", {"authorization": "bob"})
        assert ann is servers.pool.get_client("h", {"authorization": "ann"})
        assert ann is not bob
        await asyncio.gather(*[each.call_tool("act", {}) for each in (ann, bob) for _ in range(5)])
        assert sorted(server.calls) == ["ann"] * 5 + ["bob"] * 5


async def test_a_stored_login_is_used_unless_a_header_says_who_asks():
    import httpx2

    class Login(httpx2.Auth):
        def auth_flow(self, request):
            request.headers["Authorization"] = "stored"
            yield request

    async with connect_http("kind", options={"login": lambda _: Login()}) as (server, servers):
        await servers.pool.get_client("h").call_tool("act", {})
        await servers.pool.get_client("h", {"AUTHORIZATION": "of the run"}).call_tool("act", {})
        assert server.calls == ["stored", "of the run"]
