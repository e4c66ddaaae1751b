"""Exchange messages with the program of an MCP server over its pipes: a message is a line of JSON, of limited length.

There is no task between the pipes and the SDK: a message is read when the SDK asks for the next one.
"""

import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Protocol, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from .server_output_limits import MAX_GARBAGE_LINES, FloodMeter

logger = logging.getLogger("perdure")


class LineProcess(Protocol):
    """Protocol for the running program of an MCP server, which reads and writes lines."""

    @property
    def error_text(self) -> str:
        """The end of what the program has written to its standard error."""
        ...

    async def read_line(self) -> bytes:
        """Return the next line, empty at the end. Raises `ValueError` for one that is too long."""
        ...

    async def write(self, data: bytes) -> None:
        """Write data. Raises `ConnectionError` if the program has ended."""
        ...

    async def close(self) -> None:
        """End the program and all that it started."""
        ...


class LineReadStream:
    """Stream from which the MCP SDK receives the messages of a server process, each a line of JSON on its stdout."""

    def __init__(self, process: LineProcess, flood: FloodMeter, on_end: Callable[[str], None], name: str) -> None:
        self._process = process
        self._name = name
        self._flood = flood
        self._on_end = on_end
        self._garbage = 0
        self._is_closed = False

    async def receive(self) -> SessionMessage:
        """Return the next message. Raises `EndOfStream` if the program has ended, or a message is too long."""
        while not self._is_closed:
            try:
                line = await self._process.read_line()
            except ValueError:
                self._end("it sent a message that is too long")
                break
            if not line:
                self._end("its process has ended")
                break
            self._flood.count_messages()
            if line.isspace():
                continue
            try:
                return _parse_line(line)
            except (ValueError, RecursionError):
                self._garbage += 1
                if self._garbage == 1:
                    logger.warning("MCP server %r wrote to its standard output a line that is no message", self._name)
                if self._garbage > MAX_GARBAGE_LINES:
                    self._end("it writes to its standard output what is no message")
        raise anyio.EndOfStream

    def _end(self, reason: str) -> None:
        self._is_closed = True
        self._on_end(reason)

    async def aclose(self) -> None:
        """Close the stream: no further message is read."""
        self._is_closed = True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _parse_line(line: bytes) -> SessionMessage:
    """Return the message of a line; half characters, which programs in JavaScript write, are replaced."""
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        if b"\\ud" not in line and b"\\uD" not in line:
            raise
    whole = json.dumps(json.loads(line), ensure_ascii=False).encode("utf-8", "replace")
    return SessionMessage(jsonrpc_message_adapter.validate_json(whole, by_name=False))


class LineWriteStream:
    """Stream through which the MCP SDK sends messages to a server process, each as a line of JSON on its stdin."""

    def __init__(self, process: LineProcess) -> None:
        self._process = process
        self._is_closed = False

    async def send(self, item: SessionMessage, /) -> None:
        """Write a message. Raises `BrokenResourceError` if the program has ended."""
        if self._is_closed:
            raise anyio.ClosedResourceError
        data = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode("utf-8", "replace")
        try:
            await self._process.write(data + b"\n")
        except ConnectionError:
            raise anyio.BrokenResourceError from None

    async def aclose(self) -> None:
        """Close the stream: no further message is written."""
        self._is_closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


@asynccontextmanager
async def open_stdio_streams(
    start: Callable[[], Awaitable[LineProcess]], on_end: Callable[[str], None], flood: FloodMeter, name: str
) -> AsyncGenerator[tuple[LineReadStream, LineWriteStream]]:
    """Start the program of the MCP server `name`, and yield the SDK's streams to it; it is ended with the block."""
    process = await start()
    try:
        yield LineReadStream(process, flood, on_end, name), LineWriteStream(process)
    finally:
        await process.close()
