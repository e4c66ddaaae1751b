"""Runs of every engine, in processes that are forked, killed at a fault point, and followed by others.

python -m tests.faults.engine_session FOLDER STEP ENGINES [POINT…] prints a line for each trial that went wrong, and the
number of kills for each of the engines, whose names are parted by commas.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perdure import Agent, Permissions, Status, ToolContext, ask, tool
from perdure._core.values import faults
from perdure.events import Event, MessageAdded, RunEnded, RunStarted, ToolFinished, ToolStarted
from perdure.models import Request
from perdure.permissions import later
from perdure.stores import open_store
from perdure.testing import call, calls
from tests.engines.roles import find_task, play
from tests.faults.program_session import in_child, killed_by, tell

MAX_PASSES = 80
ANSWERS = {"planner": "Both are noted.", "reflect": "A better answer.", "autonomous": "All is done."}
"""The answer of each engine; of all others it is a draft."""


def _work(request: Request) -> Any:
    """Note two things, one of which a person has to allow, and answer."""
    made = [each for message in request.messages for each in message.tool_results]
    if not made and request.tools:
        return calls(call("note", text="one"), call("book", text="two"))
    if any(each.name == "finish" for each in request.tools):
        return calls(call("note", text="last"), call("finish", result="All is done."))
    return "A draft."


def _do_task(request: Request) -> Any:
    """Note the task, with permission if it is the second one, and report."""
    if request.messages[-1].role == "tool":
        return f"result of {find_task(request)}"
    return call("book" if find_task(request) == "note two" else "note", text=find_task(request))


def build_agent(folder: Path, engine: str) -> Agent[Any]:
    """Return the agent, whose effects are lines in a file: what was done, and the key of the call."""

    def write(text: str, context: ToolContext[Any]) -> str:
        with (folder / "ledger").open("a") as ledger:
            ledger.write(f"{text}\t{context.idempotency_key}\n")
        return f"did {text}"

    @tool(effect="at_most_once")
    async def note(text: str, context: ToolContext[Any]) -> str:
        """Do it, never twice."""
        return write(text, context)

    @tool(effect="at_most_once", permission=True)
    async def book(text: str, context: ToolContext[Any]) -> str:
        """Do it, once a person has allowed it."""
        return write(text, context)

    return Agent(
        play(answer=_work, task=_do_task),
        tools=[note, book],
        engine=engine,
        permission=Permissions(ask("book"), handler=later),
        store=open_store(f"sqlite:{folder / 'sessions.db'}"),
    )


async def drive(folder: Path, engine: str) -> None:
    """Begin the run, or go on with it, and allow what it asks for, until it is over."""
    agent = build_agent(folder, engine)
    async with agent:
        session = agent.session("s")
        outcome = await session.run("Go", input_id="first")  # resumed, or the same outcome, if it was sent before
        while outcome.status == "waiting":
            for question in outcome.questions:
                await session.answer(question.ask_id, True)
            outcome = await session.resume()
        if (outcome.status, outcome.text) != ("done", ANSWERS.get(engine, "A draft.")):
            raise RuntimeError(
                f"the run ended as {outcome.status}: {outcome.reason}, {outcome.text!r}, {outcome.error}"
            )


async def audit(folder: Path, engine: str) -> list[str]:
    """Return what is wrong with the effects and the log of a run that is over."""
    agent = build_agent(folder, engine)
    events: list[Event] = [entry.event for entry in await agent.store.read("s")]
    path = folder / "ledger"
    lines = path.read_text().splitlines() if path.exists() else []
    done = Counter([line.partition("\t")[0] for line in lines])
    wrong = [f"{text} was done {count} times" for text, count in done.items() if count > 1]
    results = [each for each in events if isinstance(each, ToolFinished)]
    ended = Counter([each.call_id for each in results])
    wrong += [f"{call_id} has {count} results" for call_id, count in ended.items() if count > 1]
    begun = [each.call_id for each in events if isinstance(each, ToolStarted)]
    wrong += [f"{call_id} has no result" for call_id in begun if not ended[call_id]]
    for each in results:
        text = each.result.text.removeprefix("did ")
        if each.result.status is Status.OK and each.result.text.startswith("did ") and not done[text]:
            wrong.append(f"{text} is said to be done, and was not")
    runs = Counter([each.run_id for each in events if isinstance(each, RunStarted)])
    wrong += [f"{run_id} was begun {count} times" for run_id, count in runs.items() if count > 1]
    over = {each.run_id for each in events if isinstance(each, RunEnded)}
    wrong += [f"{run_id} has not ended" for run_id in runs if run_id not in over]
    replies = [each.message for each in events if isinstance(each, MessageAdded) and not each.path]
    if replies[-1].text != ANSWERS.get(engine, "A draft."):
        wrong.append("the answer is not in the conversation")
    return wrong


def try_kill(folder: Path, engine: str, fault: str) -> bool:
    """Kill a run once, go on with it in another process, and print what is wrong then; return if it was killed."""

    def go_on() -> None:
        asyncio.run(drive(folder, engine))
        for each in asyncio.run(audit(folder, engine)):
            tell(f"{engine}, {fault}: {each}")

    folder.mkdir()
    was_killed = killed_by(fault, lambda: asyncio.run(drive(folder, engine)))
    if in_child(go_on):
        tell(f"{engine}, {fault}: it could not be resumed")
    return was_killed


def sweep(folder: Path, step: int, engine: str, points: Sequence[str]) -> None:
    """Kill a run at each fault point, at every `step`-th time that it is passed; print what went wrong."""
    kills = 0
    for point in points:
        for place in range(1, MAX_PASSES, step):
            if not try_kill(folder / f"{engine}-{point}-{place}", engine, f"{point}=kill@{place}"):
                break
            kills += 1
    tell(f"kills {engine} {kills}")


if __name__ == "__main__":
    for name in sys.argv[3].split(","):
        sweep(Path(sys.argv[1]), int(sys.argv[2]), name, sys.argv[4:] or faults.list_fault_points())
