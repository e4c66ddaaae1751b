"""A server program that exchanges lines over its standard input and output, such as an MCP server.

It runs below the supervisor: everything that it started ends with it, also when this process is killed.
"""

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from perdure._core.log.store import run_to_completion
from perdure._core.values.error import ConfigError

from . import supervisor
from .tree import kill_session

EXIT_SECONDS: Final = 2.0
"""Seconds in which the program may end by itself once its standard input is closed."""
END_SECONDS: Final = supervisor.GRACE_SECONDS + 3.0
"""Seconds after which the supervisor has ended everything."""
MOST_ERROR_BYTES: Final = 8 * 1024
"""Bytes at the end of the standard error that are kept for error messages."""


class StdioServerProcess:
    """A running server program: lines are written to it and read from it. Use it on one event loop only."""

    def __init__(self, process: asyncio.subprocess.Process, control: int) -> None:
        self._process = process
        self._control: int | None = control
        self._error_tail = b""
        self._draining = asyncio.ensure_future(self._drain_errors())

    @classmethod
    async def start(
        cls, words: Sequence[str], *, folder: str, env: Mapping[str, str], max_line_bytes: int
    ) -> "StdioServerProcess":
        """Start a program with exactly this environment, in a new process group, without a shell.

        Raises `ConfigError` where programs cannot be supervised, and `OSError` if the folder does not exist.
        """
        if os.name != "posix":
            raise ConfigError("server programs are started on Linux and macOS only: reach the server by its URL")
        started, cancelled = await run_to_completion(_start(words, folder, env, max_line_bytes))
        if cancelled:  # asyncio would leave pipes open if its part were cancelled
            await started.close()
            raise asyncio.CancelledError
        return started

    @property
    def pid(self) -> int:
        """The process id of the supervisor."""
        return self._process.pid

    @property
    def error_text(self) -> str:
        """The end of what the program has written to its standard error."""
        return self._error_tail.decode("utf-8", "replace").strip()

    async def read_line(self) -> bytes:
        """Return the next line that the program writes, empty at the end. Raises `ValueError` for one too long."""
        reader = self._process.stdout
        if reader is None:  # pragma: no cover - it is always a pipe
            return b""
        try:
            return await reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as end:
            return end.partial
        except asyncio.LimitOverrunError as error:
            raise ValueError(str(error)) from None

    async def write(self, data: bytes) -> None:
        """Write data, and wait until the program has taken most of it. Raises `ConnectionError` when it is gone."""
        writer = self._process.stdin
        if writer is None or writer.is_closing():
            raise BrokenPipeError("the program has ended")
        writer.write(data)
        await writer.drain()

    async def close(self) -> None:
        """End the program and all that it started, and wait until they are gone, also if the caller is cancelled."""
        _, cancelled = await run_to_completion(self._close())
        if cancelled:
            raise asyncio.CancelledError

    async def _close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        if not await self._has_exited(EXIT_SECONDS):
            if self._control is not None:
                with contextlib.suppress(BrokenPipeError):
                    os.write(self._control, b".")  # the supervisor does the rest
            await self._has_exited(END_SECONDS)
        control, self._control = self._control, None
        if control is not None:
            os.close(control)  # without an answer to the byte, this ends the supervisor's tree
        if (self._process.returncode or 0) < 0:
            kill_session(self._process.pid)  # the program has killed its supervisor, which could not end the rest
        self._draining.cancel()
        transport = getattr(self._process, "_transport", None)
        if transport is not None:  # a process outside of the tree may have the pipes open
            transport.close()

    async def _has_exited(self, seconds: float) -> bool:
        """Drain the output, which the program may be stuck in writing, until it has exited or the time is over."""
        draining = asyncio.ensure_future(self._drain_output())
        waiting = asyncio.ensure_future(self._process.wait())
        try:
            await asyncio.wait((waiting,), timeout=seconds)
            return self._process.returncode is not None
        finally:
            for task in (draining, waiting):
                task.cancel()
            await asyncio.wait((draining, waiting))

    async def _drain_output(self) -> None:
        while self._process.stdout is not None and await self._process.stdout.read(65536):
            pass

    async def _drain_errors(self) -> None:
        while self._process.stderr is not None and (data := await self._process.stderr.read(65536)):
            self._error_tail = (self._error_tail + data)[-MOST_ERROR_BYTES:]


async def _start(words: Sequence[str], folder: str, env: Mapping[str, str], max_line_bytes: int) -> StdioServerProcess:
    read, write = os.pipe()
    try:
        with tempfile.TemporaryFile() as variables:
            variables.write(b"".join([os.fsencode(f"{name}={value}\0") for name, value in env.items()]))
            variables.seek(0)
            fds = (read, variables.fileno())
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(Path(supervisor.__file__)), *map(str, fds), *words),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=max_line_bytes,
                cwd=folder or None,
                env={},
                pass_fds=fds,
                start_new_session=True,
            )
    except BaseException:  # the closed pipe ends a supervisor that was started nevertheless
        os.close(write)
        raise
    finally:
        os.close(read)
    return StdioServerProcess(process, write)
