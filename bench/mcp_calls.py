"""A call of a tool of an MCP server through Perdure's client, beside the client of the official SDK alone."""

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from perdure._mcp.client.client import StartAndLoginCallbacks
from perdure._mcp.servers import start_process
from perdure.mcp import McpClient, McpServer

from .measure import QUICK, Effort, Figure

SDK = "the SDK alone"
SERVER = """
import json, sys
for line in sys.stdin.buffer:
    request = json.loads(line)
    method, number = request.get("method"), request.get("id")
    if number is None:
        continue
    answer = {"jsonrpc": "2.0", "id": number}
    if method == "initialize":
        answer["result"] = {"protocolVersion": request["params"]["protocolVersion"], "capabilities": {"tools": {}},
                            "serverInfo": {"name": "bench", "version": "1"}}
    elif method == "tools/list":
        answer["result"] = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        answer["result"] = {"content": [{"type": "text", "text": "x" * 500}]}
    else:
        answer["error"] = {"code": -32601, "message": "no such method"}
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\\n")
    sys.stdout.buffer.flush()
"""


async def cpu_us(call: Callable[[], Awaitable[Any]], count: int) -> float:
    """Microseconds of CPU of a call, in this process."""
    before = time.process_time()
    for _ in range(count):
        await call()
    return (time.process_time() - before) / count * 1e6


async def compare(effort: Effort, script: Path) -> tuple[float, float]:
    """Microseconds of CPU of a call through Perdure, and through the SDK alone; the best of several."""
    from mcp import Client, StdioServerParameters

    count, rounds = (20, 1) if effort == QUICK else (300, 9)
    words = ("-I", "-S", str(script))
    client = McpClient(
        McpServer(name="bench", command=sys.executable, args=words), StartAndLoginCallbacks(start_process)
    )
    arguments = {"text": "hello"}
    ours: list[float] = []
    theirs: list[float] = []
    async with Client(StdioServerParameters(command=sys.executable, args=list(words))) as sdk:
        await sdk.list_tools()
        (listed,) = (await client.list_tools()).tools
        for _ in range(rounds):  # in turns, so that the same things disturb both
            theirs.append(await cpu_us(lambda: sdk.call_tool("echo", arguments), count))
            ours.append(await cpu_us(lambda: client.call_tool("echo", arguments, expected=listed), count))
    await client.close()
    return min(ours), min(theirs)


def figures(effort: Effort) -> Iterator[Figure]:
    """Yield the figure of an MCP call."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "server.py"
        script.write_text(SERVER, encoding="utf-8")
        ours, theirs = asyncio.run(compare(effort, script))
    yield Figure(
        "MCP call", ours / theirs, "x",
        f"CPU of a call of a server program's tool through Perdure, with the check of its pin, to that of {SDK}",
        budget=1.2, ratio=ours / theirs, compared_to=SDK, detail=f"{ours:.0f} us",
    )  # fmt: skip
