"""The task that owns a connection: how requests end with it, and who answers the questions of its server."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from perdure._mcp.client.listing import FloodMeter
from perdure._mcp.client.transports import open_stdio_streams
from tests.mcp.line_server import LineServer
from tests.mcp.servers import wait_until

pytestmark = pytest.mark.packages("mcp")
pytest.importorskip("mcp")

import mcp_types  # noqa: E402 - after the check

from perdure._mcp.client import connection as connections  # noqa: E402
from perdure._mcp.client.connection import (  # noqa: E402
    MAX_QUESTIONS,
    McpConnection,
    McpUnreachable,
    describe_connection_error,
)

CLOSED = "the connection was closed"
QUESTION = {"message": "Which?", "requestedSchema": {"type": "object", "properties": {}}}


def opened(
    server: LineServer, start_seconds: float = 30.0, on_list_changed: Callable[[], None] = lambda: None
) -> McpConnection:
    """A connection to a server, which may not be ready yet."""
    found: list[McpConnection] = []

    def end(reason: str) -> None:
        found[0].end(reason)

    streams = open_stdio_streams(lambda: server.start(None), end, FloodMeter(lambda _: None), "s")
    found.append(McpConnection(streams, start_seconds=start_seconds, on_list_changed=on_list_changed))
    return found[0]


async def call(client: Any) -> Any:
    return await client.call_tool("act", {})


async def fate(request: "asyncio.Future[Any]") -> tuple[str, bool]:
    """What a request that fails says, and whether it was sent."""
    async with asyncio.timeout(30):
        with pytest.raises(McpUnreachable) as caught:
            await request
    return str(caught.value), caught.value.was_sent


class Silent(LineServer):
    """A server that does not answer at all."""

    async def start(self, _server: Any) -> Any:
        process = await super().start(_server)

        async def write(_: bytes) -> None:
            pass

        process.write = write
        return process


class Answerer:
    """Answers questions when it is told to."""

    def __init__(self, run_id: str = "run") -> None:
        self.run_id = run_id
        self.asked: list[str] = []
        self.go_on = asyncio.Event()
        self.error: BaseException | None = None

    async def answer(self, params: mcp_types.ElicitRequestParams) -> mcp_types.ElicitResult:
        self.asked.append(params.message)
        await self.go_on.wait()
        if self.error is not None:
            raise self.error
        return mcp_types.ElicitResult(action="accept", content={"by": self.run_id})


def ask(server: LineServer, number: int = 1) -> None:
    server.processes[-1].send({"id": f"q{number}", "method": "elicitation/create", "params": QUESTION})


def actions(server: LineServer) -> list[str]:
    return [each["result"]["action"] for each in server.replies]


async def begin_calls(connection: McpConnection, server: LineServer, *answerers: Answerer | None) -> list[Any]:
    """Calls that the server does not answer."""
    await connection.wait_until_ready()
    before = len(server.asked)
    calls = [asyncio.ensure_future(connection.perform(call, answerer=each)) for each in answerers]
    await wait_until(lambda: len(server.asked) == before + len(calls))
    return calls


# -- its end -----------------------------------------------------------------------------------------------------------


async def test_requests_that_are_made_when_it_is_closed_may_have_been_carried_out_and_later_ones_are_not_sent() -> None:
    server = LineServer({"tools/call": lambda _: None})
    connection = opened(server)
    assert connection.is_open
    (request,) = await begin_calls(connection, server, None)
    assert connection.is_busy
    await connection.close()
    assert await fate(request) == (CLOSED, True)
    assert (connection.is_open, connection.is_busy, connection.end_reason) == (False, False, CLOSED)
    assert await fate(asyncio.ensure_future(connection.perform(call))) == (CLOSED, False)
    assert server.processes[0].is_closed
    await connection.close()


async def test_one_that_is_closed_before_it_is_ready_lets_everyone_know() -> None:
    server = Silent()
    connection = opened(server)
    waiting = asyncio.ensure_future(connection.wait_until_ready())
    request = asyncio.ensure_future(connection.perform(call))
    await wait_until(lambda: len(server.processes) == 1)
    assert (connection.is_open, connection.is_busy) == (True, True)
    async with asyncio.timeout(30):
        await connection.close()
    assert await fate(waiting) == (CLOSED, False)
    assert await fate(request) == (CLOSED, False)
    assert server.processes[0].is_closed


async def test_one_that_does_not_become_ready_in_time_ends_with_the_requests_that_wait_for_it() -> None:
    server = Silent()
    connection = opened(server, start_seconds=0.01)
    request = asyncio.ensure_future(connection.perform(call))
    said = "it did not answer within 0.01 seconds"
    assert await fate(asyncio.ensure_future(connection.wait_until_ready())) == (said, False)
    assert await fate(request) == (said, False)
    assert (connection.end_reason, connection.is_open) == (said, False)
    await connection.close()
    assert server.processes[0].is_closed


async def test_a_reason_that_is_given_is_told_to_all_requests_and_the_first_counts() -> None:
    server = LineServer({"tools/call": lambda _: None})
    connection = opened(server)
    first, second = await begin_calls(connection, server, None, None)
    connection.end("it misbehaves")
    connection.end("another reason")
    assert await fate(first) == ("it misbehaves", True)
    assert await fate(second) == ("it misbehaves", True)
    assert await fate(asyncio.ensure_future(connection.perform(call))) == ("it misbehaves", False)
    await connection.close()
    assert connection.end_reason == "it misbehaves"


async def test_a_caller_that_is_cancelled_while_it_closes_waits_until_everything_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = LineServer({"tools/call": lambda _: None})
    connection = opened(server)
    await connection.wait_until_ready()
    may_close, closing = asyncio.Event(), asyncio.Event()
    close = server.processes[0].close

    async def close_late() -> None:
        closing.set()
        await may_close.wait()
        await close()

    monkeypatch.setattr(server.processes[0], "close", close_late)
    caller = asyncio.ensure_future(connection.close())
    async with asyncio.timeout(30):
        await closing.wait()
        caller.cancel()
        await asyncio.sleep(0)
        assert not caller.done()
        may_close.set()
        with pytest.raises(asyncio.CancelledError):
            await caller
    assert server.processes[0].is_closed


async def test_a_request_whose_caller_is_gone_before_it_begins_is_not_made() -> None:
    server = LineServer({"tools/call": {"content": []}})
    connection = opened(server)
    request = asyncio.ensure_future(connection.perform(call))
    await asyncio.sleep(0)
    request.cancel()
    await asyncio.wait([request])
    await connection.wait_until_ready()
    assert (await connection.perform(call)).content == []
    assert len(server.asked) == 1
    await connection.close()


async def test_a_request_gets_its_own_error_and_the_connection_stays() -> None:
    server = LineServer({"tools/call": {"content": []}})
    connection = opened(server)

    async def fail(_: Any) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await connection.perform(fail)
    assert (await connection.perform(call)).content == []
    await connection.close()


async def test_requests_have_a_moment_for_their_own_errors_when_the_server_is_gone() -> None:
    server, go_on = LineServer(), asyncio.Event()
    connection = opened(server)
    await connection.wait_until_ready()

    async def fail_later(_: Any) -> None:
        await go_on.wait()
        raise KeyError("mine")

    request = asyncio.ensure_future(connection.perform(fail_later))
    await wait_until(lambda: connection.is_busy)
    connection.end("it is gone")
    for _ in range(20):
        await asyncio.sleep(0)
    go_on.set()
    async with asyncio.timeout(30):
        with pytest.raises(KeyError, match="mine"):
            await request
    await connection.close()


async def test_a_change_of_the_tools_is_told_and_no_other_message() -> None:
    changes: list[str] = []
    server = LineServer({"tools/call": {"content": []}})
    connection = opened(server, on_list_changed=lambda: changes.append("x"))
    await connection.wait_until_ready()
    server.processes[0].send({"method": "notifications/prompts/list_changed"})
    server.processes[0].send({"method": "notifications/tools/list_changed"})
    await wait_until(lambda: bool(changes))
    await connection.perform(call)
    assert changes == ["x"]
    await connection.close()


# -- questions ---------------------------------------------------------------------------------------------------------


async def test_a_question_is_answered_by_the_call_that_is_being_made() -> None:
    server, answerer = LineServer({"tools/call": lambda _: None}), Answerer()
    connection = opened(server)
    await begin_calls(connection, server, None, answerer, answerer)
    ask(server)
    await wait_until(lambda: bool(answerer.asked))
    answerer.go_on.set()
    await wait_until(lambda: bool(server.replies))
    assert answerer.asked == ["Which?"]
    assert server.replies[0]["result"] == {"action": "accept", "content": {"by": "run"}}
    await connection.close()


async def test_a_question_that_belongs_to_nobody_or_to_several_runs_is_declined() -> None:
    server = LineServer({"tools/call": lambda _: None})
    connection = opened(server)
    one, other = Answerer("one"), Answerer("other")
    await begin_calls(connection, server, None)
    ask(server)
    await wait_until(lambda: len(server.replies) == 1)
    await begin_calls(connection, server, one, other)
    ask(server)
    await wait_until(lambda: len(server.replies) == 2)
    assert actions(server) == ["decline", "decline"]
    assert one.asked == other.asked == []
    await connection.close()


async def test_a_question_inside_a_call_is_answered_by_the_run_of_that_call() -> None:
    server, answerers = LineServer(), [Answerer("one"), Answerer("other")]
    connection = opened(server)

    async def ask_inside(client: Any) -> Any:
        params = mcp_types.ElicitRequestFormParams.model_validate(QUESTION)
        return await client.elicitation_callback(None, params)

    async with asyncio.timeout(30):
        calls = [asyncio.ensure_future(connection.perform(ask_inside, answerer=each)) for each in answerers]
        await wait_until(lambda: all(each.asked for each in answerers))
        for each in answerers:
            each.go_on.set()
        assert [result.content for result in await asyncio.gather(*calls)] == [{"by": "one"}, {"by": "other"}]
        await connection.close()


async def test_only_so_many_questions_are_open_at_once() -> None:
    server, answerer = LineServer({"tools/call": lambda _: None}), Answerer()
    connection = opened(server)
    await begin_calls(connection, server, answerer)
    for number in range(MAX_QUESTIONS):
        ask(server, number)
    await wait_until(lambda: len(answerer.asked) == MAX_QUESTIONS)
    assert server.replies == []
    ask(server, MAX_QUESTIONS)
    await wait_until(lambda: bool(server.replies))
    assert actions(server) == ["decline"]
    answerer.go_on.set()
    await wait_until(lambda: len(server.replies) == MAX_QUESTIONS + 1)
    ask(server, MAX_QUESTIONS + 1)
    await wait_until(lambda: len(server.replies) == MAX_QUESTIONS + 2)
    assert actions(server) == ["decline", *["accept"] * (MAX_QUESTIONS + 1)]
    await connection.close()


async def test_a_question_that_cannot_be_asked_ends_the_call_that_it_belongs_to_and_no_other() -> None:
    server, answerer = LineServer({"tools/call": lambda _: None}), Answerer()
    connection = opened(server)
    mine, other = await begin_calls(connection, server, answerer, None)
    answerer.error = KeyError("suspended")
    answerer.go_on.set()
    ask(server)
    async with asyncio.timeout(30):
        with pytest.raises(KeyError, match="suspended"):
            await mine
    await wait_until(lambda: bool(server.replies) and "notifications/cancelled" in server.notified)
    assert actions(server) == ["cancel"]
    assert not other.done()
    await connection.close()
    assert await fate(other) == (CLOSED, True)


async def test_a_question_that_is_cancelled_leaves_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_QUESTIONS", 1)
    server, answerer = LineServer({"tools/call": lambda _: None}), Answerer()
    connection = opened(server)
    (request,) = await begin_calls(connection, server, answerer)
    ask(server)
    await wait_until(lambda: bool(answerer.asked))
    server.processes[0].send({"method": "notifications/cancelled", "params": {"requestId": "q1"}})
    ask(server, 2)
    answerer.go_on.set()
    await wait_until(lambda: bool(server.replies))
    assert not request.done()
    await connection.close()


# -- why it could not be made ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError("refused"), "OSError: refused"),
        (OSError(), "OSError"),
        (ValueError(" \n "), "ValueError"),
        (ValueError("first line\nsecond"), "ValueError: first line"),
        (ValueError("x" * 301), f"ValueError: {'x' * 300}"),
        (ExceptionGroup("two", [ExceptionGroup("in", [KeyError("a")]), ValueError("b")]), "KeyError: 'a'"),
    ],
)
def test_an_error_is_described_in_one_line_by_the_first_of_its_causes(error: Exception, said: str) -> None:
    assert describe_connection_error(error) == said


async def test_a_server_that_cannot_be_started_is_told_to_everyone_who_waits() -> None:
    class Missing(LineServer):
        async def start(self, _server: Any) -> Any:
            raise OSError("no such program")

    connection = opened(Missing())
    request = asyncio.ensure_future(connection.perform(call))
    said = "OSError: no such program"
    assert await fate(asyncio.ensure_future(connection.wait_until_ready())) == (said, False)
    assert await fate(request) == (said, False)
    assert (connection.is_open, connection.end_reason) == (False, said)
    await connection.close()
