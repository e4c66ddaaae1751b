"""The servers of these tests: a scripted one that can be hostile, and a check that nothing of it is left."""

import asyncio
import os
import sys
from pathlib import Path

from perdure.mcp import McpServer, McpServers

SCRIPT = Path(__file__).with_name("scripted_server.py")


def scripted(behaviour: str, folder: object = "", name: str = "s", **settings) -> McpServer:
    """The settings of a scripted server."""
    words = ("-I", "-S", str(SCRIPT), behaviour, str(folder))
    return McpServer(name=name, command=sys.executable, args=words, **settings)


def connect(behaviour: str, folder: object = "", **settings) -> McpServers:
    """Servers of which there is one, scripted."""
    return McpServers(scripted(behaviour, folder, **settings))


def read_lines(folder: Path, name: str) -> list[str]:
    """The lines that a scripted server has written to a file."""
    path = folder / name
    return path.read_text("utf-8").splitlines() if path.exists() else []


def is_alive(pid: int) -> bool:
    """Whether a process is there, and has not ended."""
    try:
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False


async def wait_until(condition, seconds: float = 20.0) -> None:
    """Wait until something is true."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for is outside of this process
            await asyncio.sleep(0.01)


def count_descriptors() -> int:
    """The open file descriptors of this process, without databases: stores of other tests open files late."""
    return len([each for each in Path("/proc/self/fd").iterdir() if ".db" not in os.path.realpath(each)])
