"""Commands that are forked from a warm process, with the methods of `subprocess.Popen` that the tests use."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tests.architecture.source import ROOT


class WarmServer:
    """The warm process, started when it is first needed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None

    def request(self, message: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        """Ask for a command with these streams, and a pipe for its id and its exit code."""
        if self._requests is None:
            self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            command = [sys.executable, "-m", "tests.cli.warm_server", str(theirs.fileno())]
            self._process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
            theirs.close()
        socket.send_fds(self._requests, [json.dumps(message).encode()], list(descriptors))

    def close(self) -> None:
        """End it."""
        if self._requests is not None and self._process is not None:
            self._requests.close()
            self._process.wait(30)


class WarmProcess:
    """One command; `stdin` is a pipe, a descriptor, or nothing to read; the outputs are pipes, or a terminal."""

    def __init__(
        self,
        server: WarmServer,
        arguments: Sequence[str],
        *,
        script: str = "",
        folder: Path,
        environment: Mapping[str, str],
        terminal: int | None = None,
        has_input: bool = False,
    ) -> None:
        self.returncode: int | None = None
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None = None
        self.stderr: IO[bytes] | None = None
        result, theirs = os.pipe()
        message = {
            "arguments": list(arguments),
            "script": script,
            "folder": str(folder),
            "environment": dict(environment),
            "terminal": terminal is not None,
        }
        with contextlib.ExitStack() as streams:
            streams.callback(os.close, theirs)
            used = list(self._open_pipes(streams, has_input=has_input)) if terminal is None else [terminal] * 3
            server.request(message, [*used, theirs])
        self._result = open(result, "rb", buffering=0)  # noqa: PTH123, SIM115 - closed when it has told the exit code
        self.pid = int(self._read_number(30.0))

    def _open_pipes(self, theirs: contextlib.ExitStack, *, has_input: bool) -> Iterator[int]:
        if has_input:
            reader, writer = os.pipe()
            self.stdin = open(writer, "wb")  # noqa: PTH123, SIM115 - closed by whoever writes
        else:
            reader = os.open(os.devnull, os.O_RDONLY)
        theirs.callback(os.close, reader)
        yield reader
        for name in ("stdout", "stderr"):
            reader, writer = os.pipe()
            theirs.callback(os.close, writer)
            setattr(self, name, open(reader, "rb"))  # noqa: PTH123, SIM115 - closed in communicate()
            yield writer

    def _read_number(self, seconds: float | None) -> bytes:
        """Read a line of the server; raises `TimeoutExpired` when none has come in time."""
        ready, _, _ = select.select([self._result], [], [], seconds)
        if not ready:
            raise subprocess.TimeoutExpired("perdure", seconds or 0)
        line = b""
        while not line.endswith(b"\n"):
            piece = self._result.read(1)
            assert piece, "the warm process has died: its words are on stderr"
            line += piece
        return line

    def poll(self) -> int | None:
        """Return the exit code; `None` while the command goes on."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the command, and return its exit code."""
        if self.returncode is None:
            self.returncode = int(self._read_number(timeout))
            self._result.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the command has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the command, unless it has ended."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, given: bytes | None = None, timeout: float | None = None) -> tuple[bytes, bytes]:
        """Write the input, read both outputs to their ends, and wait for the command."""
        deadline = None if timeout is None else time.monotonic() + timeout
        outputs: dict[str, bytes] = {"stdout": b"", "stderr": b""}

        def read(name: str, stream: IO[bytes]) -> None:
            with stream:
                outputs[name] = stream.read()

        threads = [
            threading.Thread(target=read, args=(name, stream), daemon=True)
            for name, stream in (("stdout", self.stdout), ("stderr", self.stderr))
            if stream is not None and not stream.closed
        ]
        for thread in threads:
            thread.start()
        if self.stdin is not None and not self.stdin.closed:
            with contextlib.suppress(BrokenPipeError), self.stdin:
                self.stdin.write(given or b"")
        for thread in threads:
            thread.join(None if deadline is None else max(deadline - time.monotonic(), 0))
            if thread.is_alive():
                raise subprocess.TimeoutExpired("perdure", timeout or 0)
        self.wait(None if deadline is None else max(deadline - time.monotonic(), 0))
        return outputs["stdout"], outputs["stderr"]
