"""A small HTTP server that plays answers back, whole or broken in every way that a network knows.

    async with Playback([Reply(b"data: hello\n\n")]) as server:
        ...                                 # post to server.base_url
        assert server.received[0].json()["model"] == "small"

The answers come from a list, in order, or from a function of what was received. `with` instead of `async with` serves
from a thread of its own, for tests of code that has an event loop of its own.
"""

import asyncio
import gzip
import json
import random
import socket
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Self

Cuts = Callable[[bytes], Iterable[bytes]]
"""How a body is cut into the chunks in which it is sent."""

End = Literal["whole", "close", "reset", "stall", "garbage", "repeat"]
"""How an answer ends: as it should; the connection closed; the connection reset; nothing more ever comes, and the
connection stays; a chunk whose size is no number; its last piece again and again, for as long as somebody listens."""

_STOP_SECONDS = 30.0


class Received(NamedTuple):
    """A request, as it came."""

    method: str
    path: str
    """With its query."""
    headers: Mapping[str, str]
    """By their names in lower case."""
    body: bytes

    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """An answer, and how it is sent."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: str = "text/event-stream"
    cuts: Cuts = lambda body: [body]
    """Into which chunks the body is cut: `whole`, `each_byte`, `sized`, `at_random`."""
    framing: Literal["chunked", "length", "close"] = "chunked"
    """How the client learns where the body ends."""
    end: End = "whole"
    after: int | None = None
    """How many bytes of the body are sent before an `end` that is not whole; all of them by default."""
    headless: bool = False
    """Whether the `end` comes before anything at all is sent."""
    pause_seconds: float = 0.0
    """How long to wait before each chunk."""


def whole(body: bytes) -> list[bytes]:
    """Everything in one chunk."""
    return [body]


def each_byte(body: bytes) -> list[bytes]:
    """Every byte in a chunk of its own."""
    return [body[place : place + 1] for place in range(len(body))]


def sized(*sizes: int) -> Cuts:
    """Chunks of these sizes, and what is left in a last one."""

    def cut(body: bytes) -> Iterator[bytes]:
        place = 0
        for size in sizes:
            yield body[place : place + size]
            place += size
        yield body[place:]

    return cut


def at_random(seed: int, most: int = 200) -> Cuts:
    """Chunks of 1 to `most` bytes, the same ones for the same seed."""

    def cut(body: bytes) -> Iterator[bytes]:
        chance, place = random.Random(seed), 0
        while place < len(body):
            size = chance.randint(1, most)
            yield body[place : place + size]
            place += size

    return cut


def sse(*data: Any) -> bytes:
    """Events: text as it is, anything else as JSON."""
    texts = [each if isinstance(each, str) else json.dumps(each) for each in data]
    return "".join(f"data: {text}\n\n" for text in texts).encode()


def json_reply(value: Any, status: int = 200, **headers: str) -> Reply:
    """A whole answer in JSON; `retry_after="2"` is the header `retry-after`."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply(json.dumps(value).encode(), status, named, "application/json", framing="length")


def gzipped(body: bytes, status: int = 200, media_type: str = "application/json") -> Reply:
    """A compressed answer. A body of a million zeros takes a thousand bytes on the wire: that is a bomb."""
    return Reply(gzip.compress(body, 9), status, {"content-encoding": "gzip"}, media_type)


Answering = Callable[[Received], Reply | Awaitable[Reply]]


class Playback:
    """The server. It listens on a port of its own, on the loopback, while the block lasts."""

    def __init__(self, replies: Iterable[Reply] | Answering) -> None:
        self.received: list[Received] = []
        """All requests, in order."""
        self.connections = 0
        """How many connections were made: fewer than requests when they are used again."""
        self.hung_up = 0
        """How many connections the client has closed, or broken off, while it was being answered or after."""
        self.port = 0
        self._answering = replies if callable(replies) else _in_order(replies)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def base_url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def open_connections(self) -> int:
        """How many connections there are now."""
        return len(self._tasks)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="playback")
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.__aenter__(), self._loop).result(_STOP_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._thread is not None
        asyncio.run_coroutine_threadsafe(self.__aexit__(), self._loop).result(_STOP_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_SECONDS)
        self._loop.close()

    async def until(self, condition: Callable[["Playback"], bool], seconds: float = 5.0) -> None:
        """Wait until something holds of the server: that somebody has hung up, say. Fails when it does not."""
        ends = time.monotonic() + seconds
        while not condition(self):
            assert time.monotonic() < ends, f"waited {seconds:g} s in vain: {vars(self)}"
            await asyncio.sleep(0.001)

    # -- one connection ------------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while (request := await _read_request(reader)) is not None:
                self.received.append(request)
                answer = self._answering(request)
                reply = answer if isinstance(answer, Reply) else await answer
                if not await self._play(reply, reader, writer):
                    break
            else:
                self.hung_up += 1
        except ConnectionError:
            self.hung_up += 1
        except asyncio.CancelledError:
            pass  # the block was left; asyncio.streams would report a cancelled task as an error
        finally:
            writer.close()
            with suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()
            self._tasks.discard(task)

    async def _play(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Send an answer. Whether another request may follow on this connection."""
        if not reply.headless:
            body = reply.body if reply.after is None else reply.body[: reply.after]
            writer.write(_head(reply))
            for chunk in reply.cuts(body):
                if reply.pause_seconds:
                    await asyncio.sleep(reply.pause_seconds)
                await _send(writer, reply, chunk)
        match reply.end:
            case "whole":
                if reply.framing == "chunked":
                    writer.write(b"0\r\n\r\n")
                await writer.drain()
                return reply.framing != "close"
            case "reset":
                _reset(writer)
            case "stall":
                await reader.read()  # until the client hangs up
                self.hung_up += 1
            case "garbage":
                writer.write(b"not a number\r\nand no chunk\r\n")
                await writer.drain()
            case "repeat":
                last = list(reply.cuts(reply.body))[-1]
                while True:
                    await asyncio.sleep(reply.pause_seconds)
                    await _send(writer, reply, last)
            case _:
                await writer.drain()
        return False


def _in_order(replies: Iterable[Reply]) -> Answering:
    left = iter(list(replies))

    def answer(_: Received) -> Reply:
        return next(left, Reply(b"the list of replies is used up", 500, media_type="text/plain"))

    return answer


def _head(reply: Reply) -> bytes:
    headers = {"content-type": reply.media_type, **reply.headers}
    if reply.framing == "chunked":
        headers["transfer-encoding"] = "chunked"
    elif reply.framing == "length":
        headers["content-length"] = str(len(reply.body))
    else:
        headers["connection"] = "close"
    lines = "".join(f"{name}: {text}\r\n" for name, text in headers.items())
    return f"HTTP/1.1 {reply.status} Played Back\r\n{lines}\r\n".encode("latin-1")


async def _send(writer: asyncio.StreamWriter, reply: Reply, chunk: bytes) -> None:
    if chunk:
        writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if reply.framing == "chunked" else chunk)
        await writer.drain()
        await asyncio.sleep(0)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Break the connection off, as a crashed server or a firewall does."""
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _read_request(reader: asyncio.StreamReader) -> Received | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        line, *lines = head.decode("latin-1").split("\r\n")[:-2]
        method, path, _ = line.split(" ", 2)
        headers = {name.lower(): text.strip() for name, _, text in (each.partition(":") for each in lines)}
        return Received(method, path, headers, await reader.readexactly(int(headers.get("content-length", "0"))))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
