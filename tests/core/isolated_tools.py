"""Tools that run in a worker process, where it finds them by name."""

import asyncio
import os
import subprocess
import time
from pathlib import Path

from perdure import ToolError, tool


@tool(isolate=True, effect="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    print("printed by a tool")  # noqa: T201 - it is no reply
    return a + b


@tool(isolate=True, effect="read")
async def find_process() -> int:
    """Return the id of the process, from an async function."""
    await asyncio.sleep(0)
    return os.getpid()


@tool(isolate=True, effect="read")
def fail(kind: str) -> str:
    """Fail in some way."""
    if kind == "tool":
        raise ToolError("no such city")
    if kind == "exit":
        os._exit(3)
    if kind == "system exit":
        raise SystemExit(4)
    return lambda: kind  # type: ignore[return-value]


class UnpicklableError(Exception):
    def __reduce__(self):
        raise TypeError("no")


@tool(isolate=True, effect="read")
def fail_oddly() -> str:
    """Raise what cannot be pickled."""
    raise UnpicklableError("odd")


@tool(isolate=True, effect="read")
def compute(path: str) -> str:
    """Compute for ever, with a child that sleeps."""
    child = subprocess.Popen(["sleep", "600"])
    Path(path).write_text(f"{os.getpid()} {child.pid}")
    while True:
        time.monotonic()
