"""Runs whose events are drawn in docs/concepts/events.md, and the drawing.

    python -m tests.docs.event_order PATH

begins a run in the SQLite store at PATH; with PERDURE_FAULTS set, it dies on the way.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from perdure import Agent, Permissions, ProviderDown, Session, ToolContext, tool
from perdure.events import (
    CancelRequested,
    Entry,
    Event,
    MessageAdded,
    PermissionDecided,
    QuestionAnswered,
    QuestionAsked,
    ReplyDiscarded,
    ReplyFinished,
    RunEnded,
    RunResumed,
    RunStarted,
    RunWaiting,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from perdure.models import retried
from perdure.permissions import PermissionRequest, Verdict, later
from perdure.testing import FakeClock, Recorder, ScriptedModel, call, calls, pause
from tests.docs.pages import ROOT

# -- the runs ----------------------------------------------------------------------------------------------------------


@tool(effect="read")
async def weather(city: str) -> str:
    """Today's weather for a city."""
    return f"Rain in {city}."


@tool(permission=True)
async def delete(path: str) -> str:
    """Delete a file."""
    return f"{path} is gone"


@tool
async def charge(crowns: int) -> str:
    """Charge an amount."""
    return f"{crowns} charged"


@tool
async def order(what: str, context: ToolContext[None]) -> str:
    """Order something, which is delivered later."""
    return await context.add_to_inbox("delivery", what)


class Meeting:
    """Two tools that run at the same time, the second of which finishes first."""

    def __init__(self) -> None:
        self._second_is_done = asyncio.Event()

    @tool(effect="read")
    async def first(self) -> str:
        """Wait for the second."""
        await self._second_is_done.wait()
        return "one"

    @tool(effect="read")
    async def second(self) -> str:
        """Let the first go on."""
        self._second_is_done.set()
        return "two"


async def plain_answer() -> list[Entry]:
    return await _seen(ScriptedModel("Good morning.", chunk=5))


async def tool_turn() -> list[Entry]:
    return await _seen(ScriptedModel(call("weather", city="Oslo"), "Rain."), tools=[weather])


async def parallel_tools() -> list[Entry]:
    meeting = Meeting()
    model = ScriptedModel(calls(call("first"), call("second")), "Both are done.")
    return await _seen(model, tools=[meeting.first, meeting.second])


async def denied_call() -> list[Entry]:
    async def person(requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
        return [Verdict(allow=False, reason="not today")] * len(requests)

    model = ScriptedModel(call("delete", path="notes.txt"), "I may not.")
    return await _seen(model, tools=[delete], permission=Permissions(handler=person))


async def waiting() -> list[Entry]:
    recorder = Recorder()
    model = ScriptedModel(call("delete", path="notes.txt"), "It is gone.")
    agent = Agent(model, tools=[delete], permission=Permissions(handler=later), watchers=[recorder])
    session = agent.session()
    (question,) = (await session.run("Hello")).questions
    await session.answer(question.ask_id, answer=True)
    await session.resume()
    return recorder.entries


async def inbox() -> list[Entry]:
    recorder = Recorder()
    model = ScriptedModel(call("order", what="rope"), "Ordered.", "It is here.")
    session = Agent(model, tools=[order], watchers=[recorder]).session()
    await session.run("Hello")
    (item,) = await session.inbox()
    await session.resolve(item.item_id, "40 metres")
    await session.wake()
    return recorder.entries


async def retry() -> list[Entry]:
    model = ScriptedModel([TextDelta("Good mor"), ProviderDown("the line broke")], "Good morning.")
    return await _seen(retried(model, clock=FakeClock(auto=True)))


async def cancel() -> list[Entry]:
    held = pause()
    model = ScriptedModel([TextDelta("Once upon a"), held, ReplyFinished()])
    recorder = Recorder()
    session = Agent(model, watchers=[recorder]).session()
    running = asyncio.ensure_future(session.run("Tell me a story."))
    async with asyncio.timeout(30):
        await held.wait_reached()
        await session.cancel()
        await running
    return recorder.entries


async def crash(folder: Path) -> list[Entry]:
    """What the log holds when the process has died between the intent and the result."""
    session = await _crashed(folder)
    entries = await session.store.read(session.session_id)
    await session.store.aclose()
    return entries


async def resume(folder: Path) -> list[Entry]:
    recorder = Recorder()
    session = await _crashed(folder, watchers=[recorder])
    await session.resume()
    await session.store.aclose()
    return recorder.entries


async def repair(folder: Path) -> list[Entry]:
    """A new prompt to a session whose last run was cut off."""
    recorder = Recorder()
    session = await _crashed(folder, watchers=[recorder])
    await session.run("Never mind.")
    await session.store.aclose()
    return recorder.entries


RUNS = {"plain-answer": plain_answer, "tool-turn": tool_turn, "parallel-tools": parallel_tools}
RUNS |= {"denied-call": denied_call, "waiting": waiting, "inbox": inbox, "retry": retry, "cancel": cancel}
CRASHES = {"crash": crash, "resume": resume, "repair": repair}
"""These begin with a process that is killed, and need a folder for its store."""


async def _seen(model: Any, **options: Any) -> list[Entry]:
    recorder = Recorder()
    await Agent(model, watchers=[recorder], **options).run("Hello")
    return recorder.entries


async def _crashed(folder: Path, **options: Any) -> Session:
    """The session of a process that died when its intent was stored, opened by us."""
    place = folder / "sessions.db"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.docs.event_order",
        str(place),
        cwd=ROOT,
        env={**os.environ, "PERDURE_FAULTS": "loop.intent_stored=kill"},
        stderr=subprocess.PIPE,
    )
    _, complaint = await process.communicate()
    assert process.returncode == -9, complaint.decode()
    model = ScriptedModel("I cannot tell whether it happened.")
    return Agent(model, tools=[charge], store=f"sqlite:{place}", **options).session("payment")


async def begin(place: str) -> None:
    """What the process does that dies."""
    model = ScriptedModel(call("charge", crowns=10))
    await Agent(model, tools=[charge], store=f"sqlite:{place}").session("payment").run("Charge ten crowns.")


# -- the drawing -------------------------------------------------------------------------------------------------------

DELTAS = (TextDelta, ThinkingDelta, ToolCallDelta)


class Node:
    """An event, and what happened between it and the one that closes it."""

    def __init__(self, text: str = "") -> None:
        self.text = text
        self.below: list[Node] = []

    def add(self, text: str) -> "Node":
        self.below.append(Node(text))
        return self.below[-1]

    def lines(self, margin: str = "") -> Iterable[str]:
        for place, node in enumerate(self.below, 1):
            last = place == len(self.below)
            yield f"{margin}{'└─ ' if last else '├─ '}{node.text}"
            yield from node.lines(margin + ("   " if last else "│  "))


def draw(entries: Iterable[Entry]) -> str:
    """The kinds of events as a tree: runs hold turns, turns hold what happens in them. `*` is what the log keeps."""
    top = Node()
    branch = [top]
    for event in [entry.event for entry in entries]:
        text = label(event)
        if isinstance(event, (RunEnded, RunWaiting)):
            del branch[2:]  # a turn that was cut off has no end of its own
        if isinstance(event, DELTAS) and branch[-1].below and branch[-1].below[-1].text == text:
            continue
        node = branch[-1].add(text)
        if isinstance(event, (RunStarted, RunResumed, TurnStarted)):
            branch.append(node)
        elif isinstance(event, (RunEnded, RunWaiting)):
            del branch[1:]
        elif isinstance(event, TurnEnded) and len(branch) > 2:
            branch.pop()
    return "\n".join([line for node in top.below for line in (node.text, *node.lines())])


def label(event: Event) -> str:
    """An event on its line: its kind, what tells it from others of its kind, and whether it is kept."""
    kind = str(event.__struct_config__.tag)
    many = " …" if isinstance(event, DELTAS) else ""
    detail = detail_of(event)
    return f"{kind}{many}{f' ({detail})' if detail else ''}{' *' if event.durable else ''}"


def detail_of(event: Event) -> str:
    """What tells an event from others of its kind."""
    match event:
        case MessageAdded(message=message):
            return message.origin or message.role
        case ToolStarted(name=name):
            return name
        case ToolFinished(name=name, result=result):
            return f"{name}: {result.status}"
        case PermissionDecided(tool=name, allow=allow):
            return f"{name}: {'allowed' if allow else 'denied'}"
        case QuestionAsked(about=word) | QuestionAnswered(source=word):
            return word
        case ReplyDiscarded(reason=word) | CancelRequested(mode=word):
            return word
        case RunEnded(status=status, reason=reason):
            return f"{status}: {reason}" if reason else status
        case _:
            return ""


if __name__ == "__main__":
    asyncio.run(begin(sys.argv[1]))
