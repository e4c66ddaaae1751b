"""Processes that serve schedules, forked from one that has everything imported: `python -m … kill|race FOLDER`.

`kill` prints a line of JSON for each place at which a process was killed; `race` one for all rounds.
"""

import asyncio
import json
import os
import sys
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from perdure import Agent, Request, ToolContext, open_store, tool
from perdure.core import fault_injection as faults
from perdure.core.store import Store
from perdure.scheduling import Schedule, Scheduler, every
from perdure.testing import FakeClock, ScriptedModel, call
from tests.scheduling.scheduling_scene import START, serve_once

SCHEDULE = Schedule(name="job", when=every(hours=1), prompt="Act.", late_seconds=1e9, new_session=True)
ROUNDS = 8
"""Due times that two processes race for."""
MOST_APPENDS = 60


def say(request: Request) -> Any:
    """Two calls, then text. It needs no memory, so any process can go on with it."""
    replies = sum(each.role == "assistant" for each in request.messages)
    return call("act", step=replies) if replies < 2 else "Done."


def build_agent(store: Store, ledger: str, clock: FakeClock) -> Agent[Any]:
    """An agent whose calls are written down outside, each with a line of its own."""

    @tool(effect="at_most_once")
    def act(step: int, context: ToolContext[Any]) -> str:
        """Act."""
        descriptor = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{context.session_id} {step}\n".encode())
        os.close(descriptor)
        return "did it"

    return Agent(ScriptedModel(say, repeat_last=True), tools=[act], store=store, clock=clock)


async def serve(spec: str, ledger: str, *hours: float, meet: Any = None) -> None:
    """Serve the schedule at each of these hours, in one process."""
    clock, store = FakeClock(START), open_store(spec)
    scheduler = Scheduler(build_agent(store, ledger, clock), [SCHEDULE])
    for hour in hours:
        await clock.advance(START + hour * 3600 - clock.now())
        if meet is not None:
            meet.wait(60)
        await serve_once(scheduler)
    await store.aclose()


def run_process(spec: str, ledger: str, *hours: float, fault: str = "", meet: Any = None) -> Any:
    """Start a process that serves the schedule."""

    def work() -> None:
        faults.arm_from_text(fault)
        asyncio.run(serve(spec, ledger, *hours, meet=meet))
        os._exit(0)

    process = get_context("fork").Process(target=work, daemon=True)
    process.start()
    return process


def wait_for(process: Any) -> int:
    """Return the exit code of a process; negative for a signal."""
    process.join(120)
    assert process.exitcode is not None
    return int(process.exitcode)


def kill_everywhere(folder: str) -> None:
    """Kill a process that fires after each of its commits, and after each effect, and let another one go on."""
    places = [f"loop.effect_done=kill@{number}" for number in (1, 2)]
    places += [f"store.append.after_commit=kill@{number}" for number in range(1, MOST_APPENDS)]
    codes: dict[str, list[int]] = {}
    for number, place in enumerate(places):
        spec, ledger = name_files(folder, number)
        wait_for(run_process(spec, ledger, 0))
        killed = wait_for(run_process(spec, ledger, 1, fault=place))
        codes[place] = [killed, wait_for(run_process(spec, ledger, 1.5))]
        if killed == 0:  # it was over before that commit
            break
    for number, place in enumerate(codes):  # from here on there are threads, and nothing may be forked
        end = asyncio.run(read_end(*name_files(folder, number)))
        print(json.dumps({"place": place, "codes": codes[place], **end}))  # noqa: T201 - read by the test


def name_files(folder: str, number: int) -> tuple[str, str]:
    """The store and the ledger of one trial."""
    return f"sqlite:{folder}/{number}.db", f"{folder}/{number}.txt"


async def read_end(spec: str, ledger: str) -> dict[str, Any]:
    """What a store and the outside world have in the end."""
    store = open_store(spec)
    scheduler = Scheduler(build_agent(store, ledger, FakeClock(START)), [SCHEDULE])
    firings = [[each.firing_id, each.status, each.resumed, each.unknown_effects] for each in await scheduler.history()]
    await store.aclose()
    return {"firings": firings, "effects": read_lines(Path(ledger))}


def read_lines(path: Path) -> list[str]:
    """The lines of a file that may not be there."""
    return path.read_text("utf-8").splitlines() if path.exists() else []


def race(folder: str) -> None:
    """Let two processes serve the same due times at the same moments."""
    spec, ledger = f"sqlite:{folder}/race.db", f"{folder}/race.txt"
    wait_for(run_process(spec, ledger, 0))
    meet = get_context("fork").Barrier(2)
    both = [run_process(spec, ledger, *range(1, ROUNDS + 1), meet=meet) for _ in range(2)]
    codes = [wait_for(each) for each in both]
    print(json.dumps({"codes": codes, **asyncio.run(read_end(spec, ledger))}))  # noqa: T201 - read by the test


if __name__ == "__main__":
    {"kill": kill_everywhere, "race": race}[sys.argv[1]](sys.argv[2])
