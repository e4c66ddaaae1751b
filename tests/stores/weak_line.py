"""A line to a server that can be cut at the worst time."""

import asyncio
import contextlib
from typing import Self


class WeakLine:
    """Hands on what it gets, both ways, until it is told otherwise. Use it as an async context manager."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.port = 0
        """Where it listens."""
        self.lose_answers = 0
        """So many answers of the server are not handed on: the line is cut instead."""
        self.is_dead = False
        """Whether nothing is handed on any more, without anybody being told."""
        self.connections = 0
        """How many were made."""
        self._writers: list[asyncio.StreamWriter] = []
        self._ends: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()
        await asyncio.gather(*self._ends)

    def cut(self) -> None:
        """Break all connections."""
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers += [writer, server_writer]
        for work in (self._hand_on(reader, server_writer), self._hand_on(server_reader, writer, are_answers=True)):
            self._ends.add(asyncio.ensure_future(work))

    async def _hand_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, are_answers: bool = False
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if are_answers and self.lose_answers:
                    self.lose_answers -= 1
                    self.cut()
                    return
                if not self.is_dead:
                    writer.write(data)
                    await writer.drain()
        writer.close()
