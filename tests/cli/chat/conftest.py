"""What the tests of the chat share: a folder with a scripted model, and terminals in tmux."""

import json
import os
import sys
import tempfile
from pathlib import Path

import pytest

from tests.cli.chat.tmux_terminal import TmuxTerminal

ROOT = Path(__file__).parents[3]
SCREENS = Path(__file__).with_name("screens")


class ChatFolder:
    """A project with a scripted model, in which chats are started."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        self.project.mkdir()
        self.home = folder / "home"
        self._script = folder / "script.json"
        self._terminals: list[TmuxTerminal] = []
        self._sockets = tempfile.TemporaryDirectory(prefix="t")  # their paths must be short
        ours = ("PERDURE_", "COVERAGE", "XDG_CONFIG_HOME", "TMUX", "NO_COLOR", "COLORTERM")
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(ours)},
            "PERDURE_HOME": str(self.home),
            "PERDURE_MODEL": "scripted:x",
            "HOME": str(folder / "person"),
            "SCRIPT": str(self._script),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "TERM": "xterm-256color",
            "LC_ALL": "C.UTF-8",
        }

    def script(self, *replies: dict) -> None:
        """Let the model give these replies."""
        self._script.write_text(json.dumps(replies), encoding="utf-8")

    def start(self, *arguments, columns=80, rows=30, **environment) -> TmuxTerminal:
        """Start a chat, and wait until it can be typed into."""
        socket = Path(self._sockets.name) / str(len(self._terminals))
        command = [sys.executable, "-m", "tests.cli.chat.scripted_chat", *arguments]
        terminal = TmuxTerminal(socket, command, self.project, {**self.environment, **environment})
        self._terminals.append(terminal)
        terminal.start(columns, rows)
        return terminal

    def close(self) -> None:
        for terminal in self._terminals:
            terminal.close()
        self._sockets.cleanup()


@pytest.fixture
def chat(tmp_path):
    """A folder in which chats are started; they are ended after the test."""
    folder = ChatFolder(tmp_path)
    yield folder
    folder.close()


def check_screen(name: str, seen: str) -> None:
    """Compare a screen with its picture in `screens`; with PERDURE_DRAW=1, the picture is drawn anew."""
    picture = SCREENS / f"{name}.txt"
    if os.environ.get("PERDURE_DRAW"):
        picture.write_text(f"{seen}\n", encoding="utf-8")
    assert seen == picture.read_text(encoding="utf-8").rstrip("\n")
