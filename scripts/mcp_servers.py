"""MCP servers of others that tests speak to: from npm and PyPI, at these versions, in `.parts` of this checkout.

`make parts` installs them, each kind in a folder of its own. The package indexes come from the settings of npm, uv and
pip; no address is written here.
"""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / ".parts"
NODE_SERVERS = (
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
)
PYTHON_SERVERS = ("mcp-server-fetch==2026.10.24", "mcp-server-git==2026.10.19", "mcp-server-time==2026.10.19")
MOST_SECONDS = 300


def node_program(name: str) -> Path:
    """The program of a server from npm, such as `mcp-server-everything`."""
    return FOLDER / "node" / "node_modules" / ".bin" / name


def python_program(name: str) -> Path:
    """The program of a server from PyPI, such as `mcp-server-git`."""
    return FOLDER / "python" / "bin" / name


def has_node_servers() -> bool:
    """Whether the servers from npm are there, at these versions."""
    return shutil.which("node") is not None and is_current("node", NODE_SERVERS)


def has_python_servers() -> bool:
    """Whether the servers from PyPI are there, at these versions."""
    return is_current("python", PYTHON_SERVERS)


def is_current(kind: str, wanted: Sequence[str]) -> bool:
    """Whether what was installed last is what is wanted."""
    note = FOLDER / kind / "installed.txt"
    return note.is_file() and note.read_text("utf-8").split() == list(wanted)


def install_node_servers() -> None:
    """Install the servers from npm."""
    folder = FOLDER / "node"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    npm = shutil.which("npm")
    if npm is None:
        print("parts: npm is missing, so the MCP servers of npm are not installed")
        return
    quiet = ("--no-audit", "--no-fund", "--loglevel=error", "--ignore-scripts")
    if run([npm, "install", *quiet, "--prefix", str(folder), *NODE_SERVERS], folder):
        (folder / "installed.txt").write_text("\n".join(NODE_SERVERS), "utf-8")


def install_python_servers() -> None:
    """Install the servers from PyPI, in an environment of their own: they bring an SDK of their own version."""
    folder = FOLDER / "python"
    shutil.rmtree(folder, ignore_errors=True)
    FOLDER.mkdir(exist_ok=True)
    python, uv = str(folder / "bin" / "python"), shutil.which("uv")
    if uv is not None:
        made = run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)], FOLDER)
        done = made and run([uv, "pip", "install", "--quiet", "--python", python, *PYTHON_SERVERS], FOLDER)
    else:
        made = run([sys.executable, "-m", "venv", str(folder)], FOLDER)
        done = made and run([python, "-m", "pip", "install", "--quiet", *PYTHON_SERVERS], FOLDER)
    if done:
        (folder / "installed.txt").write_text("\n".join(PYTHON_SERVERS), "utf-8")


def run(command: Sequence[str], folder: Path) -> bool:
    """Run a command; say why it failed, and leave it to the tests to judge."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=MOST_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"parts: {Path(command[0]).name} failed: {error}")
        return False
    if done.returncode != 0:
        print(f"parts: {Path(command[0]).name} {command[1]} failed: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.returncode == 0
