"""What the tests of the MCP server serve, and the official SDK's client for it."""

import asyncio
import contextlib
import secrets
from dataclasses import dataclass
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from perdure import Agent, Image, Tool, ToolContext, ToolOutput, tool
from perdure.mcp import serve_http
from perdure.testing import ScriptedModel

GENERATIONS = {"legacy": "2025-11-25", "auto": "2026-07-28"}
"""The two generations of the protocol: how the client is told to speak, and the version that it then speaks."""

ANN, BOB = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
TOKENS = {"ann": ANN, "bob": BOB}
WAIT_SECONDS = 30


@dataclass
class Sum:
    total: int


class Slow:
    """A tool that never ends by itself, and what happened to it."""

    def __init__(self):
        self.started = asyncio.Event()
        self.ended = asyncio.Event()

    @tool
    async def wait_for_ever(self) -> str:
        """Wait."""
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()
        return "never"


@tool(effect="read")
async def add(a: int, b: int) -> Sum:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return Sum(a + b)


@tool
def shout(text: str) -> str:
    """Return the text in capital letters."""
    print("this must not reach the wire")  # noqa: T201 - the point
    return text.upper()


@tool(permission=True)
def wipe() -> str:
    """Delete everything."""
    return "wiped"


@tool
def explode() -> str:
    """Fail."""
    raise ValueError("boom")


@tool(effect="read")
def picture() -> ToolOutput:
    """Return a picture."""
    return ToolOutput([Image(b"\x89PNG", media_type="image/png")])


@tool
async def count(context: ToolContext) -> str:
    """Report progress, and then the name of the session."""
    context.emit("half way")
    return context.session_id


TOOLS: list[Tool[..., Any]] = [add, shout, wipe, explode, picture, count]


def helper(*replies: str, **options) -> Agent:
    """An agent that answers with these texts."""
    return Agent(ScriptedModel(*replies), name="helper", description="Answers questions.", **options)


@contextlib.asynccontextmanager
async def running(served, **options):
    """Serve over HTTP during a block, and give the URL."""
    ready = asyncio.get_running_loop().create_future()
    options = {"tokens": TOKENS, "port": 0, **options}
    task = asyncio.create_task(serve_http(served, on_started=ready.set_result, **options))
    try:
        done, _ = await asyncio.wait({ready, task}, timeout=WAIT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        assert done, "the server did not start"
        if task in done:
            task.result()
        yield ready.result()
    finally:
        task.cancel()
        await asyncio.wait({task}, timeout=WAIT_SECONDS)
        assert task.done()


@contextlib.asynccontextmanager
async def connected(url: str, mode: str = "auto", token: str = ANN, **headers):
    """Connect the SDK's client."""
    sent = {"Authorization": f"Bearer {token}", **headers}
    async with (
        httpx2.AsyncClient(headers=sent, timeout=WAIT_SECONDS) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client
