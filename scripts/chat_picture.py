"""Record a chat in tmux with the offline demonstration model, and draw its screen as `docs/how-to/chat.svg`.

    python -m scripts.chat_picture

It needs tmux, and the packages of `make env`. The session id in the picture is replaced by a fixed one.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "how-to" / "chat.svg"
COLUMNS, ROWS = 80, 27
PATIENCE_SECONDS = 60.0
STEPS = (
    ("Calculate 17 * 23", "says: 391"),
    ('Write the text "Left at six." to the path "log.md"', "[?] help:"),
    ("y", "wrote 12 bytes"),
)
"""What is typed, and what is waited for then."""


def run_tmux(socket: str, *arguments: str, **more: str) -> str:
    """Run a command of tmux in a server of its own, and return what it prints."""
    command = ["tmux", "-u", "-S", socket, "-f", os.devnull, *arguments]
    environment = {**os.environ, **more}
    return subprocess.run(command, env=environment, check=True, capture_output=True, encoding="utf-8").stdout


def await_text(socket: str, text: str) -> None:
    """Wait until a text is on the screen."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while text not in (seen := run_tmux(socket, "capture-pane", "-p")):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{text!r} did not appear; this did:\n{seen}")
        time.sleep(0.05)


def record_screen() -> str:
    """Return the screen of a short chat, with its styles."""
    with tempfile.TemporaryDirectory(prefix="t") as folder:
        socket = f"{folder}/s"
        (Path(folder) / "harbour").mkdir()
        command = f"cd {folder}/harbour && exec {sys.executable} -m perdure --model demo"
        size = ("-x", str(COLUMNS), "-y", str(ROWS))
        run_tmux(socket, "new-session", "-d", *size, command, PERDURE_HOME=f"{folder}/home", HOME=folder, TMUX="")
        try:
            await_text(socket, "ready")
            for typed, expected in STEPS:
                run_tmux(socket, "send-keys", "-l", typed)
                run_tmux(socket, "send-keys", "Enter")
                await_text(socket, expected)
            await_text(socket, "ready |")
            screen = run_tmux(socket, "capture-pane", "-p", "-e")
        finally:
            run_tmux(socket, "kill-server")
        return screen.replace(os.path.realpath(folder), "/srv").replace(folder, "/srv")


def main() -> None:
    """Record the chat and write the picture."""
    from rich.console import Console
    from rich.text import Text

    screen = re.sub(r"\b[0-9a-f]{12}\b", "01a1e7fc0453", record_screen())
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
    console.print(Text.from_ansi(screen.rstrip("\n")))
    svg = console.export_svg(title="perdure", unique_id="chat")
    svg = re.sub(r"\s*@font-face \{[^}]*\}", "", svg)  # a picture loads nothing from the network
    PICTURE.write_text(re.sub(r"\s*<!-- Generated.*?-->", "", svg), encoding="utf-8")
    print(PICTURE.relative_to(ROOT))


if __name__ == "__main__":
    main()
