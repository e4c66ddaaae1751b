"""A run whose model writes a program, in processes that are forked, killed at a fault point, and followed by others.

python -m tests.faults.program_session FOLDER STEP [POINT…] prints a line for each trial that went wrong, and a count.
"""

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from perdure import Agent, Permissions, Status, ToolContext, ask, deny, tool
from perdure._core.values import faults
from perdure.events import Event, MessageAdded, ToolFinished, ToolStarted
from perdure.models import Request
from perdure.permissions import later
from perdure.stores import open_store
from perdure.testing import ScriptedModel, call
from perdure.tools import code_mode

CODE = """
import asyncio, datetime, random

async def attempt(call):
    try:
        return await call
    except Exception as error:
        return 'failed: ' + str(error)

seen = [await attempt(note(text='one'))]
seen += await asyncio.gather(
    attempt(look(n=1)), attempt(note(text='two')), attempt(put(text='three')), attempt(look(n=2)), attempt(never())
)
stamp = str(datetime.datetime.now()) + str(random.random())
seen.append(await attempt(put(text='at ' + stamp)))
seen.append(await attempt(book(text='four')))
seen.append(await attempt(settle(text='five')))
seen.append(await attempt(note(text='last of ' + str(len(seen)))))
seen
"""
ONCE = ("one", "two", "four", "five", "last of 9")
MAX_PASSES = 60
PATIENCE_SECONDS = 60


def _reply(request: Request) -> Any:
    return "Done." if any(each.tool_results for each in request.messages) else call("run_program", code=CODE)


def build_agent(folder: Path) -> Agent[Any]:
    """Return the agent, whose effects are lines in a file: what was done, and the key of the call."""

    def write(text: str, context: ToolContext[Any]) -> str:
        with (folder / "ledger").open("a") as ledger:
            ledger.write(f"{text}\t{context.idempotency_key}\n")
        return f"did {text}"

    @tool(effect="at_most_once")
    async def note(text: str, context: ToolContext[Any]) -> str:
        """Do it, never twice."""
        return write(text, context)

    @tool(effect="idempotent")
    async def put(text: str, context: ToolContext[Any]) -> str:
        """Do it; the key makes twice once."""
        return write(text, context)

    @tool(effect="at_most_once", permission=True)
    async def book(text: str, context: ToolContext[Any]) -> str:
        """Do it, once a person has allowed it."""
        return write(text, context)

    @tool(effect="ask")
    async def settle(text: str, context: ToolContext[Any]) -> str:
        """Do it; a person says after a crash if it was done."""
        return write(text, context)

    @tool(effect="read")
    async def look(n: int) -> int:
        """Look."""
        return n

    @tool
    async def never() -> str:
        """Is always denied."""
        raise AssertionError

    return Agent(
        ScriptedModel(_reply, repeat_last=True),
        tools=[note, put, book, settle, look, never],
        permission=Permissions(deny("never"), ask("book"), handler=later),
        extensions=[code_mode()],
        store=open_store(f"sqlite:{folder / 'sessions.db'}"),
    )


async def drive(folder: Path) -> None:
    """Begin the run, or go on with it, and answer what it asks, until it is over."""
    agent = build_agent(folder)
    async with agent:
        session = agent.session("s")
        outcome = await session.run("Go", input_id="first")  # resumed, or the same outcome, if it was sent before
        while outcome.status == "waiting":
            for question in outcome.questions:
                await session.answer(question.ask_id, "skip" if question.about == "settlement" else True)
            outcome = await session.resume()
        if outcome.status != "done":
            raise RuntimeError(f"the run ended as {outcome.status}: {outcome.reason}, {outcome.error}")


async def audit(folder: Path) -> list[str]:
    """Return what is wrong with the effects and the log of a run that is over."""
    agent = build_agent(folder)
    events: list[Event] = [entry.event for entry in await agent.store.read("s")]
    path = folder / "ledger"
    lines = path.read_text().splitlines() if path.exists() else []
    done = Counter([line.partition("\t")[0] for line in dict.fromkeys(lines)])
    repeated = Counter([line.partition("\t")[0] for line in lines])
    wrong = [f"{text} was done {repeated[text]} times" for text in ONCE if repeated[text] > 1]
    wrong += [f"{text} was done under {count} keys" for text, count in done.items() if count > 1]
    ended = Counter([each.call_id for each in events if isinstance(each, ToolFinished)])
    wrong += [f"{call_id} has {count} results" for call_id, count in ended.items() if count > 1]
    wrong += [
        f"{each.call_id} has no result" for each in events if isinstance(each, ToolStarted) and not ended[each.call_id]
    ]
    results = [each.result for each in events if isinstance(each, ToolFinished)]
    for result in results:
        text = result.text.removeprefix("did ")
        if result.status is Status.OK and result.text.startswith("did ") and not done[text]:
            wrong.append(f"{text} is said to be done, and was not")
    unknown = [each for each in results if each.status is Status.UNKNOWN]
    if len(done) + len(unknown) < len(ONCE) + 2:
        wrong.append(f"too little was done: {sorted(done)}")
    replies = [each.message for each in events if isinstance(each, MessageAdded) and each.message.role == "assistant"]
    if [each.text for each in replies][-1:] != ["Done."]:
        wrong.append("the model has not answered")
    return wrong


def tell(line: str) -> None:
    """Write a line for the test."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def in_child(work: Callable[[], object]) -> int:
    """Do something in a forked process, and return its exit status: negative for the signal that killed it."""
    child = os.fork()
    if not child:
        signal.alarm(PATIENCE_SECONDS)
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the parent reports it
            tell(f"  {type(error).__name__}: {error}")
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_by(fault: str, drive: Callable[[], object]) -> bool:
    """Drive a run in a process that is killed at a fault point; return False if it came to the end before."""

    def work() -> None:
        faults.arm_from_text(fault)
        drive()

    return in_child(work) == -signal.SIGKILL


def try_kill(folder: Path, fault: str) -> bool:
    """Kill a run once, go on with it in another process, and print what is wrong then; return if it was killed."""

    def complain() -> None:
        for each in asyncio.run(audit(folder)):
            tell(f"{fault}: {each}")

    folder.mkdir()
    was_killed = killed_by(fault, lambda: asyncio.run(drive(folder)))
    if in_child(lambda: asyncio.run(drive(folder))) or in_child(complain):
        tell(f"{fault}: it could not be resumed")
    return was_killed


def sweep(folder: Path, step: int, points: Sequence[str]) -> None:
    """Kill a run at each fault point, at every `step`-th time that it is passed; print what went wrong."""
    kills = 0
    for point in points:
        for place in range(1, MAX_PASSES, step):
            if not try_kill(folder / f"{point}-{place}", f"{point}=kill@{place}"):
                break
            kills += 1
    tell(f"kills {kills}")


if __name__ == "__main__":
    sweep(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] or faults.list_fault_points())
