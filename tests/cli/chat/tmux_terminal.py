"""A terminal in tmux: a program runs in it, keys are sent to it, and its screen is read. Every wait is bounded."""

import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

PATIENCE = 45.0
"""Seconds after which a test that waits for the screen gives up."""
POLL_SECONDS = 0.05


class TmuxTerminal:
    """One program in a tmux server of its own."""

    def __init__(self, socket: Path, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self._socket = socket
        self._environment = environment
        self._folder = folder
        self._command = command

    def start(self, columns: int, rows: int) -> None:
        """Start the program; its last screen stays when it ends."""
        term = self._environment["TERM"]  # tmux sets another one in the terminal
        command = shlex.join([*(["env", "TERM=dumb"] if term == "dumb" else []), *self._command])
        quoted = f"{command}; echo exit $?; exec cat"
        self._tmux(
            "new-session", "-d", "-x", str(columns), "-y", str(rows), quoted,
            ";", "set-option", "-g", "set-clipboard", "on",
        )  # fmt: skip

    def screen(self, *options: str) -> str:
        """Return what is on the screen, without blanks at the ends of rows, and without empty rows below."""
        rows = self._tmux("capture-pane", "-p", *options).split("\n")
        return "\n".join([row.rstrip() for row in rows]).rstrip("\n")

    def history(self) -> str:
        """Return the scrollback and the screen."""
        return self.screen("-S", "-")

    def await_screen(self, *texts: str, gone: str = "") -> str:
        """Wait until all of these texts are on the screen, and `gone` is not; return the screen."""
        deadline = time.monotonic() + PATIENCE
        while True:
            seen = self.screen()
            if all(text in seen for text in texts) and not (gone and gone in seen):
                return seen
            assert time.monotonic() < deadline, f"{texts} did not appear; this did:\n{seen}"
            time.sleep(POLL_SECONDS)

    def type(self, text: str) -> None:
        """Type a text, letter by letter."""
        self._tmux("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        """Press keys by their tmux names, such as `Enter`."""
        self._tmux("send-keys", *keys)

    def paste(self, text: str) -> None:
        """Paste a text, bracketed if the program asked for that."""
        self._tmux("set-buffer", text, ";", "paste-buffer", "-p")

    def clipboard(self) -> str:
        """Return what the program has copied to the clipboard of the terminal."""
        return self._tmux("show-buffer")

    def kill_program(self) -> None:
        """Kill the program as by a power cut, and wait until it is gone."""
        shell = self._tmux("display-message", "-p", "#{pane_pid}").strip()
        (program,) = Path(f"/proc/{shell}/task/{shell}/children").read_text(encoding="ascii").split()
        os.kill(int(program), signal.SIGKILL)
        assert self.await_end() == 128 + signal.SIGKILL

    def await_end(self) -> int:
        """Wait until the program has ended, and return its exit code, which the shell around it prints."""
        found = re.search(r"(?m)^exit (\d+)$", self.await_screen("\nexit "))
        assert found is not None
        return int(found[1])

    def close(self) -> None:
        """End the server and the program in it."""
        subprocess.run(["tmux", "-S", self._socket, "kill-server"], capture_output=True, check=False, timeout=PATIENCE)

    def _tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-u", "-S", self._socket, "-f", os.devnull, *arguments],
            cwd=self._folder, env=self._environment, capture_output=True, encoding="utf-8", timeout=PATIENCE,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout
