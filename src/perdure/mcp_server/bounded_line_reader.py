"""Read lines of standard input on a thread, each up to a size limit, for an MCP server on stdio.

The thread is a daemon: one that waits for a line that never arrives does not keep the process from ending.
"""

import asyncio
import os
import threading
from typing import BinaryIO, Final

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
