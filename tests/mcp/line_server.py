"""An MCP server in the process of its test, in the place of a program over pipes: every message is seen."""

import asyncio
import json
from typing import Any

from perdure._mcp.client.client import StartAndLoginCallbacks
from perdure.mcp import McpClient, McpServer

CAPABILITIES: Any = {"tools": {"listChanged": True}, "resources": {}, "prompts": {}}


class Died(Exception):
    """Raised by an answer in the place of which the program ends."""


class LineServer:
    """The program of a server, started by its client as often as it likes.

    `answers` has for each method its result, or a function of the parameters that returns it; a function may raise
    `Died`, or return a dict with `error`, or None for no answer at all.
    """

    def __init__(self, answers=None, *, capabilities=None, instructions="", error_text=""):
        self.answers: dict[str, Any] = answers or {}
        self.capabilities = CAPABILITIES if capabilities is None else capabilities
        self.instructions = instructions
        self.error_text = error_text
        self.processes: list[LineProcessDouble] = []
        self.asked: list[tuple[str, Any]] = []
        """Method and parameters of each request, without those of the handshake."""
        self.notified: list[str] = []
        self.replies: list[Any] = []
        """Answers of the client to requests of the server."""

    async def start(self, _server):
        self.processes.append(LineProcessDouble(self))
        return self.processes[-1]

    def connect(self, *, monotonic=None, **settings) -> McpClient:
        """A client of this server."""
        more = {} if monotonic is None else {"monotonic": monotonic}
        return McpClient(McpServer(name="s", command="x", **settings), StartAndLoginCallbacks(self.start), **more)


class LineProcessDouble:
    """One process of the program."""

    def __init__(self, program: LineServer):
        self._program = program
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self.error_text = program.error_text
        self.is_closed = False

    def send(self, message):
        """Send a message to the client."""
        self._lines.put_nowait(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def read_line(self):
        return await self._lines.get()

    async def write(self, data):
        message = json.loads(data)
        if "id" not in message:
            self._program.notified.append(message["method"])
            return
        if "method" not in message:
            self._program.replies.append(message)
            return
        reply = self._answer(message["method"], message.get("params") or {})
        if reply is not None:
            self.send({"id": message["id"], **reply})

    def _answer(self, method, params):
        if method == "initialize":
            info = {"serverInfo": {"name": "double", "version": "1"}, "instructions": self._program.instructions}
            version = {"protocolVersion": params["protocolVersion"], "capabilities": self._program.capabilities}
            return {"result": {**info, **version}}
        if method not in self._program.answers:
            return {"error": {"code": -32601, "message": "no such method"}}
        params.pop("_meta", None)
        self._program.asked.append((method, params))
        answer = self._program.answers[method]
        try:
            result = answer(params) if callable(answer) else answer
        except Died:
            self._lines.put_nowait(b"")
            return None
        return result if result is None or "error" in result else {"result": result}

    async def close(self):
        self.is_closed = True
        self._lines.put_nowait(b"")
