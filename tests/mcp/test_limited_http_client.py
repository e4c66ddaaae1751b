"""Servers over HTTP: what an answer says about the fate of a call, bounded bodies, and whose headers are sent."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from perdure import EffectNotStarted
from perdure.mcp import FateUnknown, McpError, McpServer, McpServers

pytestmark = pytest.mark.packages("mcp")
pytest.importorskip("mcp")

import httpx2  # noqa: E402 - after the check
import mcp_types  # noqa: E402 - after the check

from perdure._mcp.client import transports  # noqa: E402
from perdure._mcp.client.delivery import RequestDelivery  # noqa: E402
from perdure._mcp.client.listing import FloodMeter  # noqa: E402
from perdure._mcp.client.transports import DeliveryRecordingTransport, current_record  # noqa: E402
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
    class Login(httpx2.Auth):
        def auth_flow(self, request):
            request.headers["Authorization"] = "stored"
            yield request

    async with connect_http("kind", options={"login": lambda _: Login()}) as (server, servers):
        await servers.pool.get_client("h").call_tool("act", {})
        await servers.pool.get_client("h", {"AUTHORIZATION": "of the run"}).call_tool("act", {})
        assert server.calls == ["stored", "of the run"]


# -- one request, without a network ------------------------------------------------------------------------------------

REQUEST = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
RPC_ERROR = b'{"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "inside"}}'
EVENTS = "text/event-stream"


class Pieces(httpx2.AsyncByteStream):
    """A body in pieces; an error in the place of one is raised."""

    def __init__(self, *pieces: bytes | Exception) -> None:
        self._pieces = pieces
        self.is_closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for each in self._pieces:
            if isinstance(each, Exception):
                raise each
            yield each

    async def aclose(self) -> None:
        self.is_closed = True


class Exchange:
    """One request through the transport: the response, the record, and what was reported."""

    def __init__(self, answer: Any, *, reports: bool = False) -> None:
        self.record = RequestDelivery()
        self.failed: list[str] = []
        self.floods: list[str] = []
        self._answer = answer
        self._reports = reports

    async def send(
        self, monkeypatch: pytest.MonkeyPatch, content: Any = REQUEST, method: str = "POST"
    ) -> tuple[int, bytes]:
        def answer(_: httpx2.Request) -> httpx2.Response:
            if isinstance(self._answer, Exception):
                raise self._answer
            response: httpx2.Response = self._answer
            return response

        monkeypatch.setattr(httpx2, "AsyncHTTPTransport", lambda **_: httpx2.MockTransport(answer))
        flood = FloodMeter(self.floods.append, most=2, monotonic=lambda: 0.0)
        transport = DeliveryRecordingTransport(flood, self.failed.append if self._reports else None)
        token = current_record.set(self.record)
        try:
            async with httpx2.AsyncClient(transport=transport, trust_env=False) as client:
                body = content if isinstance(content, bytes) else json.dumps(content).encode()
                response = await client.request(method, "http://host.example/mcp", content=body)
                self.headers = dict(response.headers)
                return response.status_code, response.content
        finally:
            current_record.reset(token)


def answered(status: int, *pieces: bytes | Exception, kind: str = "application/json", **headers: str) -> Any:
    return httpx2.Response(status, headers={"content-type": kind, **headers}, stream=Pieces(*pieces))


async def test_an_answer_is_passed_on_and_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = Exchange(answered(200, b"{", b"}", kind="Application/JSON ; charset=utf-8", one="1"))
    assert await exchange.send(monkeypatch) == (200, b"{}")
    assert exchange.record == RequestDelivery(status=200, content_type="application/json", has_arrived=True)
    assert exchange.headers["one"] == "1"


@pytest.mark.parametrize(
    ("body", "has_rpc_error"),
    [(RPC_ERROR, True), (b'{"jsonrpc": "2.0", "id": 1, "result": {}}', False), (b"<html>", False), (b"", False)],
)
async def test_an_error_status_is_the_answer_of_the_server_if_its_body_is_one(
    monkeypatch: pytest.MonkeyPatch, body: bytes, has_rpc_error: bool
) -> None:
    exchange = Exchange(answered(500, body, one="1", **{"content-length": str(len(body) + 7)}))
    assert await exchange.send(monkeypatch) == (500, body)
    assert exchange.record == RequestDelivery(
        status=500, content_type="application/json", has_arrived=True, has_rpc_error=has_rpc_error
    )
    assert exchange.headers["one"] == "1"
    assert exchange.headers.get("content-length", "0") == str(len(body))


@pytest.mark.parametrize(
    ("error", "record"),
    [
        (
            httpx2.ConnectError("refused"),
            RequestDelivery(was_sent=False, problem="the server cannot be reached: refused"),
        ),
        (
            httpx2.ReadError("reset"),
            RequestDelivery(was_sent=True, problem="the connection was lost: ReadError", has_arrived=True),
        ),
    ],
)
@pytest.mark.parametrize("reports", [False, True])
async def test_a_request_that_cannot_be_made_is_answered_with_502_and_recorded(
    monkeypatch: pytest.MonkeyPatch, error: Exception, record: RequestDelivery, reports: bool
) -> None:
    exchange = Exchange(error, reports=reports)
    assert await exchange.send(monkeypatch) == (502, b"")
    assert exchange.record == record
    assert exchange.failed == [record.problem] * reports


async def test_a_stream_that_cannot_be_opened_is_an_error_and_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = Exchange(httpx2.ConnectError("refused"), reports=True)
    with pytest.raises(httpx2.ConnectError):
        await exchange.send(monkeypatch, method="GET")
    assert (exchange.record, exchange.failed) == (RequestDelivery(), [])


@pytest.mark.parametrize("encoding", ["gzip", " GZIP ", "br"])
async def test_a_compressed_answer_is_left_and_recorded_as_lost(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    response = answered(200, b"{}", **{"content-encoding": encoding})
    exchange = Exchange(response)
    assert await exchange.send(monkeypatch) == (502, b"")
    assert exchange.record == RequestDelivery(
        status=200, problem="the server compressed its answer, which was not asked for", has_arrived=True
    )
    assert response.stream.is_closed
    assert (await Exchange(answered(200, b"{}", **{"content-encoding": "Identity"})).send(monkeypatch))[0] == 200


@pytest.mark.parametrize(
    "content",
    [
        {"jsonrpc": "2.0", "method": "notifications/cancelled"},
        {"jsonrpc": "2.0", "id": 7, "result": {}},
        b"no JSON",
        b'{"id": {}}',
    ],
)
@pytest.mark.parametrize("answer", [answered, httpx2.ReadError("reset")])
async def test_what_needs_no_answer_is_not_recorded(monkeypatch: pytest.MonkeyPatch, content: Any, answer: Any) -> None:
    exchange = Exchange(answer(500, RPC_ERROR) if callable(answer) else answer, reports=True)
    assert (await exchange.send(monkeypatch, content))[0] == (500 if callable(answer) else 502)
    assert (exchange.record, exchange.failed) == (RequestDelivery(), [])


async def test_where_answers_arrive_on_another_stream_only_a_failure_is_recorded_and_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accepted = Exchange(answered(202, b"Accepted"), reports=True)
    assert await accepted.send(monkeypatch) == (202, b"Accepted")
    assert (accepted.record, accepted.failed) == (RequestDelivery(), [])
    refused = Exchange(answered(400, b"no"), reports=True)
    assert await refused.send(monkeypatch) == (400, b"no")
    assert refused.record == RequestDelivery(status=400, content_type="application/json", has_arrived=True)
    assert refused.failed == ["HTTP status 400"]


@pytest.mark.parametrize(("status", "content"), [(200, REQUEST), (500, {"method": "notifications/x"})])
async def test_a_body_ends_at_its_limit(monkeypatch: pytest.MonkeyPatch, status: int, content: Any) -> None:
    monkeypatch.setattr(transports, "MAX_MESSAGE_BYTES", 4)
    for pieces, passed in (((b"ab", b"cd"), b"abcd"), ((b"ab", b"cde", b"f"), b"ab")):
        assert await Exchange(answered(status, *pieces)).send(monkeypatch, content) == (status, passed)
    endless = Exchange(answered(200, *[b"data: x\n\n"] * 2, kind=EVENTS))
    assert await endless.send(monkeypatch) == (200, b"data: x\n\n" * 2)  # a stream of events has no limit
    assert endless.floods == []


async def test_the_body_of_an_error_has_a_limit_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transports, "_MAX_ERROR_BYTES", 4)
    assert await Exchange(answered(500, b"ab", b"cd")).send(monkeypatch) == (500, b"abcd")
    response = answered(500, b"ab", b"cde")
    assert await Exchange(response).send(monkeypatch) == (500, b"ab")
    assert response.stream.is_closed


async def test_events_are_counted_and_a_body_that_breaks_off_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    flood = Exchange(answered(200, b"data: 1\ndata: 2\n", b"data: 3\n", kind=EVENTS))
    await flood.send(monkeypatch)
    assert flood.floods == ["it sent more than 2 messages within 5 seconds"]
    broken = Exchange(answered(200, b"data: 1\n", httpx2.ReadError("reset"), b"never", kind=EVENTS))
    assert await broken.send(monkeypatch) == (200, b"data: 1\n")
