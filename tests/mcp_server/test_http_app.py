"""The app starts and stops with its server."""

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from perdure.mcp import ClientLimits, ClientTokens, McpApp
from tests.mcp_server.served_tools import TOKENS, WAIT_SECONDS


class Tools:
    """As much of served tools as an app opens and closes."""

    def __init__(self, error: Exception | None = None) -> None:
        self.events: list[str] = []
        self._error = error

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        if self._error is not None:
            raise self._error
        self.events.append("opened")
        yield
        self.events.append("closed")


def app_of(tools: Tools) -> McpApp:
    return McpApp(
        cast("Any", None),
        cast("Any", tools),
        tokens=ClientTokens(TOKENS),
        hosts=["127.0.0.1"],
        origins=[],
        path="/mcp",
        limits=ClientLimits(),
    )


class Lifespan:
    """The lifespan events of a server, and the answers to them."""

    def __init__(self, *types: str) -> None:
        self._messages: list[MutableMapping[str, Any]] = [{"type": each} for each in types]
        self.sent: list[MutableMapping[str, Any]] = []

    async def receive(self) -> MutableMapping[str, Any]:
        assert self._messages, "the app waits for more than there is"
        return self._messages.pop(0)

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self.sent.append(message)

    async def run(self, app: McpApp) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            await app({"type": "lifespan"}, self.receive, self.send)


async def test_the_app_opens_its_tools_at_the_start_and_closes_them_at_the_end() -> None:
    tools = Tools()
    app = app_of(tools)
    for round_number in (1, 2):  # it can be started again
        lifespan = Lifespan("lifespan.unknown", "lifespan.startup", "lifespan.unknown", "lifespan.shutdown")
        await lifespan.run(app)
        assert lifespan.sent == [{"type": "lifespan.startup.complete"}, {"type": "lifespan.shutdown.complete"}]
        assert tools.events == ["opened", "closed"] * round_number


async def test_a_start_that_fails_is_told_to_the_server_and_raised() -> None:
    lifespan = Lifespan("lifespan.startup")
    with pytest.raises(OSError, match="no store"):
        await lifespan.run(app_of(Tools(OSError("no store"))))
    assert lifespan.sent == [{"type": "lifespan.startup.failed", "message": "no store"}]


async def test_a_token_may_be_revoked_before_the_app_is_started_and_while_nobody_is_connected() -> None:
    app = app_of(Tools())
    assert app.tokens.revoke("ann")
    async with app.lifespan():
        assert app.tokens.revoke("bob")
