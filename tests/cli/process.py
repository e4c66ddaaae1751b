"""The command as a process of its own: with pipes, and at a terminal. Every wait is bounded."""

import codecs
import contextlib
import os
import pty
import select
import subprocess
import sys
import termios
import time
from pathlib import Path

from tests.cli.warm_process import WarmProcess, WarmServer

PATIENCE = 30.0
"""Seconds after which a test that waits gives up."""

PERDURE = (sys.executable, "-m", "perdure")
STAND_INS = (sys.executable, str(Path(__file__).with_name("stand_ins.py")))
"""The same command with models and tools that misbehave."""

AT_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
"""Makes standard input the controlling terminal, so that Ctrl-C is a signal, and becomes the command."""


class Shell:
    """A folder to work in, a home for what is kept, and an environment without a trace of ours.

    With a warm server, commands are forked from it instead of started; those of other programs are started.
    """

    def __init__(self, folder: Path, server: WarmServer | None = None) -> None:
        self._server = server
        self.folder = folder / "folder"
        self.folder.mkdir()
        self.home = folder / "home"
        ours = ("PERDURE_", "COVERAGE", "XDG_CONFIG_HOME")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        self.environment = {
            **inherited,
            "PERDURE_HOME": str(self.home),
            "PERDURE_MODEL": "demo",
            "HOME": str(folder / "person"),
            "TERM": "xterm",
            "COLUMNS": "120",
        }

    def run(self, *arguments, program=PERDURE, stdin="", environment=None) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, with what it says on both streams."""
        if environment is None and (warm := self._fork(program, arguments, has_input=True)):
            try:
                outputs = warm.communicate(stdin.encode(), PATIENCE)
            finally:
                warm.kill()
            return subprocess.CompletedProcess(
                [*program, *arguments], warm.wait(PATIENCE), *[data.decode() for data in outputs]
            )
        return subprocess.run(
            [*program, *arguments],
            input=stdin,
            cwd=self.folder,
            env={**self.environment, **(environment or {})},
            capture_output=True,
            encoding="utf-8",
            errors="replace",  # a path of the machine, in the encoding that a test has set
            timeout=PATIENCE,
            check=False,
        )

    @contextlib.contextmanager
    def started(self, *arguments, program=PERDURE):
        """A command that goes on; `await_text` reads what it says."""
        process = self._fork(program, arguments) or subprocess.Popen(
            [*program, *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate(timeout=PATIENCE)

    @contextlib.contextmanager
    def terminal(self, *arguments, program=PERDURE, size=None):
        """A command at a terminal of its own, of so many columns and rows."""
        ours, theirs = pty.openpty()
        if size is not None:
            termios.tcsetwinsize(theirs, (size[1], size[0]))
        process = self._fork(program, arguments, terminal=theirs) or subprocess.Popen(
            [sys.executable, "-c", AT_TERMINAL, *program, *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        terminal = Terminal(process, ours)
        try:
            yield terminal
        finally:
            process.kill()
            process.wait(PATIENCE)
            terminal.close()

    def _fork(self, program, arguments, *, terminal=None, has_input=False) -> WarmProcess | None:
        """The command as a child of the warm server; `None` if that has not got this program loaded."""
        is_script = len(program) == 2 and program[0] == sys.executable
        if self._server is None or not (is_script or program == PERDURE):
            return None
        return WarmProcess(
            self._server,
            arguments,
            script=program[1] if is_script else "",
            folder=self.folder,
            environment=self.environment,
            terminal=terminal,
            has_input=has_input,
        )


class Terminal:
    """Both ends of a terminal: what is typed and what is seen."""

    def __init__(self, process: "subprocess.Popen[bytes] | WarmProcess", descriptor: int) -> None:
        self.process = process
        self.seen = ""
        self._descriptor = descriptor
        self._decoder = new_decoder()

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def await_text(self, text: str) -> None:
        """Read until this is on the screen."""
        self.seen = await_text(self._descriptor, text, self.seen, self._decoder)

    def hang_up(self) -> None:
        """Close the terminal, as by closing its window."""
        self.close()
        self._descriptor = os.open(os.devnull, os.O_RDONLY)

    def close(self) -> None:
        os.close(self._descriptor)

    def end(self) -> int:
        """Read the rest; returns the exit code."""
        with contextlib.suppress(OSError):  # how the end of a terminal is told
            while data := os.read(self._descriptor, 4096):
                self.seen += self._decoder.decode(data)
        return self.process.wait(PATIENCE)


def new_decoder() -> codecs.IncrementalDecoder:
    """A decoder of what is read in pieces: a piece may end in the middle of a letter."""
    return codecs.getincrementaldecoder("utf-8")("replace")


def await_text(descriptor: int, text: str, seen: str = "", decoder: codecs.IncrementalDecoder | None = None) -> str:
    """Read until this text has come; returns everything that has."""
    decoder = decoder or new_decoder()
    deadline = time.monotonic() + PATIENCE
    while text not in seen:
        ready, _, _ = select.select([descriptor], [], [], max(deadline - time.monotonic(), 0))
        data = os.read(descriptor, 4096) if ready else b""
        assert data, f"{text!r} did not come; this did: {seen!r}"
        seen += decoder.decode(data)
    return seen
