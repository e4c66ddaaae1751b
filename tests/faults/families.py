"""Agents that work for agents, in processes that are killed. Above: `trials.py`. Below: `kills.py`, Perdure.

A chief gives tasks to two scouts at once, each with a helper, to a clerk who remembers, and to a runner in the
background; all of them act on the world. Whoever dies wherever: each task is given once and ends once, nothing happens
twice, each transcript is valid, and what the runner found is told once.
"""

import asyncio
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from perdure import Agent, Tool, ToolContext, tool
from perdure._core.log.fold import fold_events
from perdure._core.values import faults
from perdure.engines import State
from perdure.events import Event, InboxResolved, RunEnded, RunStarted, SubagentFinished, SubagentStarted
from perdure.stores import Store
from perdure.testing import call, calls
from perdure.tools import delegation
from tests.faults.children import Place, Tell
from tests.faults.kills import armed, die, kill_name
from tests.faults.report import Report
from tests.faults.zygote import Nursery
from tests.runtime.subagents.family import following
from tests.transcript import assert_valid

TASKS = 7
"""Two scouts, their helpers, the clerk twice, and the runner."""
LAST = "All is done."


class FamilyTrial(msgspec.Struct, tag=True, frozen=True):
    """Processes drive a session whose agent has others work for it, and are killed; the last one comes to the end."""

    folder: str
    place: Place
    seed: str
    kills: Sequence[str]

    def carry_out(self, children: Nursery) -> Report:
        """Drive, be killed, drive again."""
        chance = random.Random(self.seed)
        Path(self.folder).mkdir(parents=True)
        seen, wrong = list[str](), list[str]()
        for kill in (*self.kills, ""):
            child = children.fork(partial(drive, self.place, self.folder, armed(kill)))
            if kill and die(children, child, kill, chance):
                seen.append(kill_name(kill))
                continue
            children.end(child)
            wrong += [line for line in child.lines if line.startswith(("CRASHED", "HUNG", "ended"))]
            if not kill and child.lines != ["done"]:
                wrong.append(f"the last process told {child.lines}")
        judge = children.fork(partial(complain, self.place, self.folder))
        children.end(judge)
        wrong += judge.lines
        if not wrong:
            shutil.rmtree(self.folder)
        return Report(len(seen), wrong, seen)


def drive(place: Place, folder: str, points: str, tell: Tell) -> None:
    """Begin, or go on from wherever it is."""
    faults.arm_from_text(points)
    asyncio.run(_drive(place, folder, tell))


async def _drive(place: Place, folder: str, tell: Tell) -> None:
    store = place.opened()
    outcome = await chief(folder, store).session("s").run("Go", input_id="go")
    tell("done" if outcome.text == LAST else f"ended {outcome.status} {outcome.reason} {outcome.error}")
    await store.aclose()


def chief(folder: str, store: Store) -> Agent[Any]:
    """The same family in every process; what it knows is in the store."""
    act = acting(f"{folder}/ledger")
    helper = Agent(following(call("act", what="help"), "Helped."), name="helper", tools=[act])
    both = calls(call("act", what="scout"), call("helper", task="Help me."))
    scout = Agent(following(both, "Scouted."), name="scout", tools=[act, helper.as_tool()])
    clerk = Agent(following(call("act", what="note"), "Noted."), name="clerk", tools=[act])
    runner = Agent(following(call("act", what="run"), "Ran."), name="runner", tools=[act])
    return Agent(
        following(
            calls(
                call("scout", task="Go north."),
                call("scout", task="Go south."),
                call("act", what="lead"),
                call("delegate", agent="runner", task="Run.", background=True),
            ),
            call("clerk", task="Write it down."),
            calls(call("clerk", task="Write more down."), call("wait_for_agents")),
            LAST,
        ),
        name="chief",
        tools=[act, scout.as_tool(), clerk.as_tool(durable=True)],
        extensions=[delegation([runner])],
        store=store,
    )


def acting(ledger: str) -> Tool[..., Any]:
    """An effect that must not happen twice, and a line outside for each time that it does."""

    @tool
    async def act(what: str, context: ToolContext[Any]) -> str:
        """Acts."""
        await asyncio.sleep(0)
        file = os.open(ledger, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
        os.write(file, f"{context.idempotency_key} {what}\n".encode())
        os.close(file)
        await asyncio.sleep(0)
        return f"did {what}"

    return act


def complain(place: Place, folder: str, tell: Tell) -> None:
    """Say what is wrong with what is left."""
    for wrong in asyncio.run(_complaints(place, folder)):
        tell(wrong)


async def _complaints(place: Place, folder: str) -> list[str]:
    store = place.opened()
    try:
        logs = {
            info.session_id: [entry.event for entry in await store.read(info.session_id)] for info in await store.list()
        }
    finally:
        await store.aclose()
    return [*_of_effects(folder), *_of_tasks(logs), *[each for log in logs.values() for each in _of_transcripts(log)]]


def _of_effects(folder: str) -> Iterator[str]:
    ledger = Path(folder, "ledger")
    lines = Counter(ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else ())
    for line, count in lines.items():
        if count > 1:
            yield f"{line} happened {count} times"
    allowed = {"lead": 1, "scout": 2, "help": 2, "note": 2, "run": 1}
    for what, count in Counter(line.rpartition(" ")[2] for line in lines).items():
        if count > allowed[what]:
            yield f"{what} happened {count} times, and was asked for {allowed[what]} times"


def _of_tasks(logs: dict[str, list[Event]]) -> Iterator[str]:
    """Each is given once and ends once; there is one session in the background, and its end is told once."""
    events = logs["s"]
    started = Counter((each.path, each.call_id) for each in events if isinstance(each, SubagentStarted))
    finished = Counter((each.path, each.call_id) for each in events if isinstance(each, SubagentFinished))
    if started != finished or started.total() != TASKS or max(started.values()) > 1:
        yield f"tasks were given {started} and ended {finished}"
    for kind in (RunStarted, RunEnded):
        twice = [
            name for name, count in Counter(each.run_id for each in events if type(each) is kind).items() if count > 1
        ]
        if twice:
            yield f"{kind.__name__} is there more than once for {twice}"
    told = [each for each in events if isinstance(each, InboxResolved)]
    if len(logs) != 2 or len(told) != 1:
        yield f"there are the sessions {list(logs)}, and the end of the runner was told {len(told)} times"
    results = [result.text for message in fold_events(events).messages for result in message.tool_results]
    if not any("Ran." in text for text in (*results, *_words(events))):
        yield "the chief was not told what the runner has found"


def _words(events: Sequence[Event]) -> list[str]:
    return [message.text for message in fold_events(events).messages if message.role == "user"]


def _of_transcripts(events: Sequence[Event]) -> Iterator[str]:
    state = fold_events(events)
    everybody: list[State] = [state, *state.children.values()]
    for each in everybody:
        try:
            assert_valid(each.messages)
        except AssertionError as error:
            yield f"{each.path or 'the chief'}: {error}"
        if each.is_interrupted or each.open_calls:
            yield f"{each.path or 'the chief'} is not at its end"
