"""Processes that serve schedules, forked from one that has everything imported: `python -m … FOLDER`.

It prints a line of JSON for each trial: two processes that race, and processes that are killed at each place.
"""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from perdure import Agent, ToolContext, tool
from perdure._core.values import faults
from perdure.background import Schedule, Scheduler, every
from perdure.models import Request
from perdure.stores import Store, open_store
from perdure.testing import FakeClock, ScriptedModel, call
from tests.scheduling.scheduling_scene import START, serve_once

SCHEDULE = Schedule(name="job", when=every(hours=1), prompt="Act.", late_seconds=1e9, new_session=True)
ROUNDS = 5
"""Due times that two processes race for."""
MOST_APPENDS = 60


class Trial(NamedTuple):
    """A trial: its name, where the first process was killed, and the exit codes of both."""

    name: str
    place: str
    codes: list[int]


def say(request: Request) -> Any:
    """Two calls, then text. It needs no memory, so any process can go on with it."""
    replies = sum(each.role == "assistant" for each in request.messages)
    return call("act", step=replies) if replies < 2 else "Done."


def build_agent(store: Store, ledger: str, clock: FakeClock, effect: Any = "at_most_once") -> Agent[Any]:
    """An agent whose calls are written down outside, each with a line of its own."""

    @tool(effect=effect)
    def act(step: int, context: ToolContext[Any]) -> str:
        """Act."""
        descriptor = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{context.session_id} {step}\n".encode())
        os.close(descriptor)
        return "did it"

    return Agent(ScriptedModel(say, repeat_last=True), tools=[act], store=store, clock=clock)


async def serve(spec: str, ledger: str, *hours: float, meeting: Any = None, effect: str = "at_most_once") -> None:
    """Serve the schedule at each of these hours, in one process."""
    clock, store = FakeClock(START), open_store(spec)
    scheduler = Scheduler(build_agent(store, ledger, clock, effect), [SCHEDULE])
    for hour in hours:
        await clock.advance(START + hour * 3600 - clock.now())
        if meeting is not None:  # wait until the other one is as far
            os.write(meeting[1], b"!")
            os.read(meeting[0], 1)
        await serve_once(scheduler)
    await store.aclose()


def run_process(spec: str, ledger: str, *hours: float, fault: str = "", **options: Any) -> Any:
    """Start a process that serves the schedule."""

    def work() -> None:
        faults.arm_from_text(fault)
        asyncio.run(serve(spec, ledger, *hours, **options))
        os._exit(0)

    process = get_context("fork").Process(target=work, daemon=True)
    process.start()
    return process


def wait_for(process: Any) -> int:
    """Return the exit code of a process; negative for a signal."""
    process.join(120)
    assert process.exitcode is not None
    return int(process.exitcode)


def kill_everywhere(folder: str) -> Iterator[Trial]:
    """Kill a process that fires after each of its commits, and after each effect, and let another one go on."""
    places = [f"loop.effect_done=kill@{number}" for number in (1, 2)]
    places += [f"store.append.after_commit=kill@{number}" for number in range(1, MOST_APPENDS)]
    for number, place in enumerate(places):
        trial = kill_and_resume(folder, f"kill{number}", place)
        yield trial
        if trial.codes[0] == 0:  # it was over before that commit
            return


def kill_and_resume(folder: str, name: str, place: str, **options: Any) -> Trial:
    """Serve until the process is killed at a place, then in another process."""
    spec, ledger = name_files(folder, name)
    wait_for(run_process(spec, ledger, 0, **options))
    killed = wait_for(run_process(spec, ledger, 1, fault=place, **options))
    return Trial(name, place, [killed, wait_for(run_process(spec, ledger, 1.5, **options))])


def name_files(folder: str, name: str) -> tuple[str, str]:
    """The store and the ledger of one trial."""
    return f"sqlite:{folder}/{name}.db", f"{folder}/{name}.txt"


async def read_end(spec: str, ledger: str) -> dict[str, Any]:
    """What a store and the outside world have in the end."""
    store = open_store(spec)
    scheduler = Scheduler(build_agent(store, ledger, FakeClock(START)), [SCHEDULE])
    found = await scheduler.history()
    firings = [[each.firing_id, each.status, each.resumed, each.unknown_effects] for each in found]
    await store.aclose()
    return {"firings": firings, "denied": [list(each.denied) for each in found], "effects": read_lines(Path(ledger))}


def read_lines(path: Path) -> list[str]:
    """The lines of a file that may not be there."""
    return path.read_text("utf-8").splitlines() if path.exists() else []


def race(folder: str) -> Trial:
    """Let two processes serve the same due times at the same moments."""
    spec, ledger = name_files(folder, "race")
    wait_for(run_process(spec, ledger, 0))
    (read_one, write_one), (read_other, write_other) = os.pipe(), os.pipe()
    meetings = ((read_one, write_other), (read_other, write_one))
    both = [run_process(spec, ledger, *range(1, ROUNDS + 1), meeting=each) for each in meetings]
    return Trial("race", "", [wait_for(each) for each in both])


def main(folder: str) -> None:
    """Make all trials, and print how each has ended."""
    trials = [race(folder), kill_and_resume(folder, "ask", "loop.effect_done=kill@1", effect="ask")]
    trials += kill_everywhere(folder)
    for trial in trials:  # from here on there are threads, and nothing may be forked
        end = asyncio.run(read_end(*name_files(folder, trial.name)))
        print(json.dumps({**trial._asdict(), **end}))  # noqa: T201 - read by the test


if __name__ == "__main__":
    main(sys.argv[1])
