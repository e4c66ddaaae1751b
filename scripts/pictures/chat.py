"""Record a chat in tmux, with the coding tools and a scripted model, and draw its last screen.

The chat, the tools and the file are real. The session id in the picture is replaced by a fixed one, and the folder by
another.
"""

import json
import os
import re
import sys
import tempfile
from pathlib import Path

from scripts.pictures.terminal_screen import draw_screen
from tests.cli.chat.tmux_terminal import TmuxTerminal

COLUMNS, ROWS = 88, 60
FILE = 'SPEEDS = {"tern": 12, "gull": 9}\n\n\ndef crossing(miles, boat):\n    return miles * SPEEDS[boat]\n'
PROMPT = "A crossing takes 288 hours? Mend @harbour.py"
REPLIES = (
    {"text": "The hours are multiplied where they should be divided.", "calls": [["read", {"path": "harbour.py"}]]},
    {
        "calls": [
            [
                "edit",
                {
                    "path": "harbour.py",
                    "old_string": "return miles * SPEEDS[boat]",
                    "new_string": "return miles / SPEEDS[boat]",
                },
            ]
        ]
    },
    {
        "text": "**Mended.** `crossing(24, 'tern')` is 2 hours now:\n\n"
        "- the speed divides the distance\n- nothing else changed"
    },
)


def record_screen(folder: Path) -> str:
    """Return the screen of a short chat, with its styles."""
    project, script = folder / "srv", folder / "script.json"
    project.mkdir()
    (project / "harbour.py").write_text(FILE, encoding="utf-8")
    script.write_text(json.dumps(REPLIES), encoding="utf-8")
    root = Path(__file__).resolve().parent.parent.parent
    environment = {
        "PATH": os.environ["PATH"],
        "PERDURE_HOME": str(folder / "home"),
        "PERDURE_MODEL": "scripted:pilot",
        "HOME": str(folder),
        "SCRIPT": str(script),
        "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)]),
        "TERM": "xterm-256color",
        "LC_ALL": "C.UTF-8",
    }
    command = [sys.executable, "-m", "tests.cli.chat.scripted_chat", "--coding"]
    terminal = TmuxTerminal(folder / "s", command, project, environment)
    try:
        terminal.start(COLUMNS, ROWS)
        terminal.await_screen("ready")
        terminal.type(PROMPT)
        terminal.press("Enter")
        terminal.await_screen("[?] help:", "waiting for your answer")
        terminal.type("y")
        terminal.press("Enter")
        terminal.await_screen("nothing else changed", "ready |", gone="waiting")
        return terminal.screen("-e")
    finally:
        terminal.close()


def draw_picture() -> str:
    """Record the chat, and return the picture of its last screen as SVG."""
    with tempfile.TemporaryDirectory(prefix="t") as name:
        folder = Path(os.path.realpath(name))
        screen = record_screen(folder).replace(f"{folder}/srv", "/srv/harbour")
    screen = re.sub(r"\b[0-9a-f]{12}\b", "01a1e7fc0453", screen)
    description = "A chat in a terminal: a file is read, an edit is asked for and approved, its diff, and the answer."
    return draw_screen(screen, COLUMNS, "perdure --coding", description)
