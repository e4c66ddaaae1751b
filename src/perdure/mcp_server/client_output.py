"""Write to the client of an MCP server on stdio, which may leave at any time: the server then ends, and says nothing.

Standard output is reserved for the messages of the protocol: what tools and their processes print goes to standard
error.
"""

import contextlib
import os
import sys
from collections.abc import Callable

import anyio


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
