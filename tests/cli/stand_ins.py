"""`perdure` with models and tools that misbehave, for tests that need them in a process of its own."""

import asyncio
import contextlib
import sys
import time
from typing import Any
from unittest import mock

from perdure import ProviderDown, Text, ToolContext, assistant, tool
from perdure._cli.main import main
from perdure._cli.run import assembly as equipment
from perdure._cli.terminal import signals
from perdure.events import ReplyFinished, TextDelta, ToolCallDelta
from perdure.models import register
from perdure.people import Choice, Confirm, Option, Table
from perdure.tools import basic_tools

LOADED_SECONDS = 5.0
"""What a loaded machine may need to store the end of a run, instead of half a second."""
HOSTILE = "\x1b]0;owned\x07a\x1b[2J\u202eb\rc\x9b1md\n"


@tool(effect="read")
async def wait() -> str:
    """Wait for ever."""
    await asyncio.Event().wait()
    return "never"


@tool(effect="read", abortable=False)
async def insist() -> str:
    """Wait for ever, and do not let anybody stop it."""
    return await wait()


@tool(effect="read")
async def fail() -> str:
    """Raise something that nobody foresaw."""
    raise ValueError(HOSTILE)


@tool(effect="read")
async def deaf() -> str:
    """Wait for ever, and ignore every cancel."""
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


@tool(effect="read")
async def sleep() -> str:
    """Wait for a thread that does not end."""
    await asyncio.to_thread(time.sleep, 3600)
    return "never"


@tool(effect="read")
async def block() -> str:
    """Let nobody else do anything."""
    print("blocking", file=sys.stderr, flush=True)  # noqa: T201 - nobody else could tell
    time.sleep(3600)  # noqa: ASYNC251 - what must not be done
    return "never"


@tool(asks_first=True)
async def book(context: ToolContext[Any]) -> str:
    """Ask before anything is done."""
    await context.display.push(Table(["berth", "free"], [["north", True], ["south", HOSTILE]]))
    berth = await context.ask(Choice(f"Which berth?{HOSTILE}", ["north", Option("south", "South", "sunny")]))
    return f"{berth}, {await context.ask(Confirm('Really?', yes='Of course'))}"


@tool
async def remark(context: ToolContext[Any]) -> str:
    """Ask when it is too late to begin again."""
    return await context.ask("Anything else?")


ODD = [wait, insist, fail, deaf, sleep, block, book, remark]


class Model:
    """Does what its name says."""

    def __init__(self, name: str) -> None:
        self._name = name
        if name != "block":  # it ends by the deadline; all others have to end by themselves, however long they take
            signals.SPARE_SECONDS = LOADED_SECONDS  # type: ignore[misc]

    async def stream(self, request):
        match self._name:
            case "stuck":
                yield TextDelta("thinking")
                await asyncio.Event().wait()
            case "endless":
                while True:
                    yield TextDelta("more and more\n")
                    await asyncio.sleep(0)
            case "down":
                raise ProviderDown("nobody answers at \x1b[31mexample")
            case "bug":
                raise ValueError("a mistake")
            case "json":
                yield TextDelta('{"sum": 42}')
                yield ReplyFinished()
            case "silent":
                await asyncio.Event().wait()
            case "at-once":
                yield ReplyFinished(message=assistant([Text("all at once")]))
            case "hostile":
                yield TextDelta(HOSTILE)
                yield ReplyFinished()
            case name if request.messages[-1].role == "user":
                yield ToolCallDelta("call-1", name, "{}")
                yield ReplyFinished()
            case _:
                yield TextDelta("over")
                yield ReplyFinished()


if __name__ == "__main__":
    register("odd", Model)
    with mock.patch.object(equipment, "basic_tools", return_value=[*basic_tools(), *ODD]):
        main()
