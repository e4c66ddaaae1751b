"""An MCP server over HTTP for tests, of the handshake generation, which can be hostile in several ways."""

import asyncio
import json
from contextlib import asynccontextmanager

from aiohttp import web

from perdure.mcp import McpServer, McpServers

TOOLS = [{"name": "act", "description": "Have an effect.", "inputSchema": {"type": "object"}}]


class HttpServer:
    """Answers requests, and notes their headers and the calls that it has carried out."""

    def __init__(self, behaviour: str) -> None:
        self.behaviour = behaviour
        self.calls: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.port = 0
        self.begun = asyncio.Event()
        self.released = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        if request.method != "POST":
            return web.Response(status=405)
        message = json.loads(await request.read())
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        method = message.get("method")
        if method is None:  # the answer to a question
            self.released.set()
            return web.Response(status=401)
        if self.behaviour == "login" and "authorization" not in self.headers[-1]:
            return web.Response(status=401)
        if "id" not in message:
            return web.Response(status=202)
        if method == "initialize":
            return self.reply(
                message,
                {
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "http", "version": "1"},
                },
                headers={"mcp-session-id": "1"} if self.behaviour == "session" else {},
            )
        if method == "tools/list":
            return self.reply(message, {"tools": TOOLS})
        if method == "tools/call":
            return await self.call(request, message)
        error = {"code": -32601, "message": "no such method"}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error}, status=400)

    def reply(self, message, result, **options) -> web.Response:
        """Answer with a result."""
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result}, **options)

    async def call(self, request: web.Request, message) -> web.StreamResponse:  # noqa: C901, PLR0911, PLR0912 - one per behaviour
        """Carry a call out, in the way of the behaviour."""
        self.calls.append(self.headers[-1].get("authorization", ""))
        good = {"content": [{"type": "text", "text": "done"}]}
        match self.behaviour:
            case "500" | "503" | "400" | "403" | "429":
                return web.Response(status=int(self.behaviour), text="oh no")
            case "session" if len(self.calls) == 1:
                return web.Response(status=404)
            case "html":
                return web.Response(text="<html>", content_type="text/html")
            case "202":
                return web.Response(status=202)
            case "redirect":
                raise web.HTTPTemporaryRedirect("http://localhost:1/mcp")
            case "cut":
                return web.Response(body=b'{"jsonrpc": "2.0", "id"', content_type="application/json")
            case "gzip":
                response = self.reply(message, good)
                response.enable_compression(web.ContentCoding.gzip)
                response.headers["content-encoding"] = "gzip"
                return response
            case "huge":
                return web.Response(body=b" " * (17 * 1024 * 1024) + b"{}", content_type="application/json")
            case "drop":
                if request.transport is not None:
                    request.transport.abort()
                await asyncio.sleep(1)
            case "sse_ends":
                stream = web.StreamResponse(headers={"content-type": "text/event-stream"})
                await stream.prepare(request)
                await stream.write(b": nothing\n\n")
                return stream
            case "asks":
                return await self.ask_and_drop(request)
            case "waits" if message["params"]["arguments"]:
                self.begun.set()
                await asyncio.wait_for(self.released.wait(), 60)
            case "waits":
                return web.Response(status=500)
            case "rpc_500":
                error = {"code": -32603, "message": "inside"}
                return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error}, status=500)
        return self.reply(message, good)

    async def ask_and_drop(self, request: web.Request) -> web.StreamResponse:
        """Ask during a call, refuse the answer, and end the stream without a result."""
        stream = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await stream.prepare(request)
        params = {"message": "Which?", "requestedSchema": {"type": "object", "properties": {}}}
        question = {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": params}
        await stream.write(b"data: " + json.dumps(question).encode() + b"\n\n")
        await asyncio.wait_for(self.released.wait(), 60)
        return stream


@asynccontextmanager
async def serve_http(behaviour: str):
    """Serve on loopback during this block."""
    server = HttpServer(behaviour)
    app = web.Application(client_max_size=10**8)
    app.router.add_route("*", "/mcp", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        await runner.cleanup()


def reach(server: HttpServer, name: str = "h", **settings) -> McpServer:
    """The settings of a client for this server."""
    return McpServer(name=name, transport="http", url=f"http://127.0.0.1:{server.port}/mcp", **settings)


@asynccontextmanager
async def connect_http(behaviour: str, *, options=None, **settings):
    """Serve, and connect to it."""
    async with serve_http(behaviour) as server, McpServers(reach(server, **settings), **(options or {})) as servers:
        yield server, servers
