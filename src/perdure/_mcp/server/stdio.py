"""Standard input and output of an MCP server: read lines up to a size limit, and end when the client leaves."""

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Callable
from typing import BinaryIO, Final

import anyio

_MAX_WAITING: Final = 64
"""The most lines that wait to be handled; the client is not read from until there are fewer."""


class BoundedLineReader:
    """Asynchronous iterator over the lines of a file. A line that is too long is replaced by an invalid message."""

    def __init__(self, file: BinaryIO, max_bytes: int) -> None:
        self._file = file
        self._max_bytes = max_bytes
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._room = threading.Semaphore(_MAX_WAITING)
        threading.Thread(target=self._read_lines, name="perdure-mcp-stdin", daemon=True).start()

    def __aiter__(self) -> "BoundedLineReader":
        return self

    async def __anext__(self) -> str:
        line = await self._lines.get()
        if line is None:
            raise StopAsyncIteration
        self._room.release()
        return line

    def end(self) -> None:
        """End after the lines that were read: the client is gone."""
        self._lines.put_nowait(None)

    def _read_lines(self) -> None:
        """Read until the end of the file, and put each line into the queue; runs on the thread."""
        try:
            while line := self._file.readline(self._max_bytes + 1):
                if len(line) > self._max_bytes and not line.endswith(b"\n"):
                    self._skip_line()
                    line = b'"the message is too long"\n'
                self._room.acquire()
                self._put(line.decode("utf-8", "replace"))
        except (OSError, ValueError):  # the file was closed
            pass
        self._put(None)

    def _skip_line(self) -> None:
        while (rest := self._file.readline(65_536)) and not rest.endswith(b"\n"):
            pass

    def _put(self, line: str | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line)
        except RuntimeError:  # the event loop is closed
            return


def reserve_standard_input() -> tuple[BinaryIO, "OriginalStandardInput"]:
    """Reserve standard input for the MCP server: return a private copy; tools and their processes read an empty one."""
    private = os.dup(0)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    return os.fdopen(private, "rb", closefd=False), OriginalStandardInput(private)


class OriginalStandardInput:
    """Original standard input of the process, which `restore` puts back when the MCP server ends."""

    def __init__(self, private: int) -> None:
        self._private = private

    def restore(self) -> None:
        """Restore standard input. The thread may still wait for a line, so its descriptor stays open."""
        os.dup2(self._private, 0)


class ClientOutput:
    """The reserved standard output of the process. What is written after the client has left is dropped."""

    def __init__(self, on_gone: Callable[[], None]) -> None:
        """Reserve standard output; `on_gone` is called once the client reads no more."""
        self._on_gone = on_gone
        self._is_gone = False
        self._private = os.dup(1)
        os.dup2(2, 1)

    async def write(self, text: str) -> int:
        """Write a message. On a thread, since a client that is slow may not stop everything else."""
        if not self._is_gone:
            try:
                await anyio.to_thread.run_sync(self._write_all, text.encode(), abandon_on_cancel=True)
            except OSError:
                self._is_gone = True
                self._on_gone()
        return len(text)

    async def flush(self) -> None:
        """Do nothing: what was written has left the process."""

    def restore(self) -> None:
        """Restore standard output. A thread may still write, so the private descriptor stays open."""
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()  # what tools have printed
        os.dup2(self._private, 1)

    def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._private, view) :]
