"""A tool that asks first, in processes that are killed: its answers come from others, and are killed too.

Above: `trials.py`. Below: `kills.py`, Perdure. A booking asks two questions before it begins. Whoever dies wherever,
the tool gets the answers that were given, in the order in which it asked; each question is asked and answered once,
and what the tool does is done once: the receiver knows its key.
"""

import asyncio
import random
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from perdure import Agent, Session, ToolContext, tool
from perdure._core.values import faults
from perdure.engines import fold_entries
from perdure.events import Event, QuestionAnswered, QuestionAsked, ToolFinished
from perdure.people import Choice, Confirm
from perdure.testing import ScriptedModel, call
from tests.faults.children import Place, Tell
from tests.faults.kills import armed, die, kill_name
from tests.faults.report import Report
from tests.faults.zygote import Nursery

MOST_ROUNDS = 12
"""So often somebody goes on, and somebody answers; then it will never end."""
SEED_ANSWERS = ("north", "south", "west")


class QuestionTrial(msgspec.Struct, tag=True, frozen=True):
    """Processes drive a session whose tool asks, others answer, and some of both are killed."""

    folder: str
    place: Place
    seed: str
    kills: Sequence[str]

    def carry_out(self, children: Nursery) -> Report:
        """Drive, answer, drive, answer, until it is done; the first processes are killed."""
        chance = random.Random(self.seed)
        Path(self.folder).mkdir(parents=True)
        kills, seen, wrong = list(self.kills), list[str](), list[str]()
        berth = chance.choice(SEED_ANSWERS)
        for number in range(MOST_ROUNDS):
            kill = kills.pop(0) if kills else ""
            work = partial(drive if number % 2 == 0 else answer, self.place, self.folder, berth, armed(kill))
            child = children.fork(work)
            if kill and die(children, child, kill, chance):
                seen.append(kill_name(kill))
                continue
            children.end(child)
            wrong += [line for line in child.lines if line.startswith(("CRASHED", "HUNG"))]
            if "done" in child.lines or wrong:
                break
        judge = children.fork(partial(complain, self.place, self.folder, berth))
        children.end(judge)
        wrong += judge.lines
        if not wrong:
            shutil.rmtree(self.folder)
        return Report(len(seen), wrong, seen)


def drive(place: Place, folder: str, _berth: str, points: str, tell: Tell) -> None:
    """Go on with the session, from wherever it is."""
    faults.arm_from_text(points)
    asyncio.run(_drive(place, folder, tell))


def answer(place: Place, folder: str, berth: str, points: str, _tell: Tell) -> None:
    """Answer whatever is open."""
    faults.arm_from_text(points)
    asyncio.run(_answer(place, folder, berth))


def complain(place: Place, folder: str, berth: str, tell: Tell) -> None:
    """Tell everything that is wrong when all is over."""
    asyncio.run(_complain(place, folder, berth, tell))


def _session(place: Place, folder: str) -> Session:
    @tool(asks_first=True, effect="idempotent")
    async def book(context: ToolContext[Any]) -> str:
        """Book a berth."""
        berth = await context.ask(Choice("Which berth?", SEED_ANSWERS))
        really = await context.ask(Confirm(f"Really {berth}?"))
        await context.begin()
        _write(folder, f"{context.idempotency_key} {berth} {really}\n")
        return f"{berth} {really}"

    def reply(request: Any) -> Any:
        return "Booked." if request.messages[-1].tool_results else call("book")

    return Agent(ScriptedModel(reply, repeat_last=True), tools=[book], store=place.opened()).session("s")


async def _drive(place: Place, folder: str, tell: Tell) -> None:
    session = _session(place, folder)
    state = fold_entries(await session.store.read("s"))
    outcome = await (session.resume() if state.is_interrupted else session.run("A berth, please.", input_id="1"))
    tell(outcome.status)
    await session.store.aclose()


async def _answer(place: Place, folder: str, berth: str) -> None:
    session = _session(place, folder)
    for view in await session.display.slots():
        await session.display.resolve(view.slot_id, berth if view.renderer == "choice" else True)
    await session.store.aclose()


async def _complain(place: Place, folder: str, berth: str, tell: Tell) -> None:
    session = _session(place, folder)
    entries = await session.store.read("s")
    log: list[Event] = [entry.event for entry in entries]
    state = fold_entries(entries)
    asked = [event.text for event in log if isinstance(event, QuestionAsked)]
    if asked != ["Which berth?", f"Really {berth}?"]:
        tell(f"questions were not asked once each and in order: {asked}")
    answers = [event.answer for event in log if isinstance(event, QuestionAnswered)]
    if answers != [berth, True]:
        tell(f"questions were not answered once each: {answers}")
    results = [event.result.text for event in log if isinstance(event, ToolFinished)]
    if results != [f"{berth} True"]:
        tell(f"the result is not what was answered: {results}")
    if state.run_ended_event is None or state.run_ended_event.status != "done":
        tell(f"the run has not come to its end: {state.run_ended_event}")
    booked = _booked(folder)
    if len(booked) != 1 or not next(iter(booked)).endswith(f" {berth} True"):
        tell(f"it was not booked once: {booked}")
    if left := [post.id for post in await session.store.posts("s")]:
        tell(f"posts are left: {left}")
    await session.store.aclose()


def _write(folder: str, line: str) -> None:
    with Path(folder, "ledger").open("a", encoding="utf-8") as ledger:
        ledger.write(line)


def _booked(folder: str) -> set[str]:
    path = Path(folder, "ledger")
    return set(path.read_text(encoding="utf-8").splitlines()) if path.exists() else set()
