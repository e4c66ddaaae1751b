"""Workers that are killed at random: others take up their sessions, all are finished, and no effect happens twice."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from perdure import Status, user
from perdure.engines import fold_entries
from perdure.events import MessageAdded, RunStarted
from perdure.stores import open_store
from tests.architecture.source import ROOT
from tests.doubles import crashed
from tests.faults.worker_process import STEPS, build_worker_agent
from tests.seeds import chance

LONG = os.environ.get("PERDURE_SEARCH") == "long"
SESSIONS, WORKERS, KILLS = (60, 4, 40) if LONG else (9, 2, 3)
SECONDS = 600.0 if LONG else 120.0


def start_worker(spec: str, ledger: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tests.faults.worker_process", spec, str(ledger)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, env=dict(os.environ))


def wait_until_ready(worker: "subprocess.Popen[bytes]") -> None:
    assert worker.stdout is not None
    assert worker.stdout.readline() == b"ready\n"


def end_worker(worker: "subprocess.Popen[bytes]") -> None:
    worker.send_signal(signal.SIGKILL)
    worker.communicate()


@pytest.fixture(params=["sqlite", "files"])
def spec(request, tmp_path: Path) -> str:
    return f"sqlite:{tmp_path}/s.db" if request.param == "sqlite" else f"file:{tmp_path}/s"


@pytest.mark.faults
@pytest.mark.timeout(SECONDS + 30)
async def test_workers_that_are_killed_at_random_leave_their_sessions_to_others(spec: str, tmp_path: Path):
    dice, ledger, store = chance("workers", spec.partition(":")[0]), tmp_path / "ledger", open_store(spec)
    agent = build_worker_agent(store, str(ledger))
    names = [f"s{number}" for number in range(SESSIONS)]
    for number, name in enumerate(names):
        if number % 3:
            await crashed(store, name, RunStarted("agent", run_id="r"), MessageAdded(user("Go"), run_id="r"))
        else:
            await agent.session(name).follow_up("Go")
    workers = [start_worker(spec, ledger) for _ in range(WORKERS)]
    try:
        async with asyncio.timeout(SECONDS):
            await kill_some(workers, spec, ledger, dice)
            await until_all_are_over(agent, names)
    finally:
        for worker in workers:
            end_worker(worker)
    effects = Counter(ledger.read_text(encoding="utf-8").splitlines())
    assert max(effects.values()) == 1
    for name in names:
        state = fold_entries(await store.read(name))
        assert state.run_ended_event is not None
        assert (name, state.run_ended_event.status) == (name, "done")
        results = [each.tool_results[0] for each in state.messages if each.tool_results]
        assert len(results) == STEPS
        for step, result in enumerate(results, 1):
            assert result.status in {Status.OK, Status.UNKNOWN}
            assert effects[f"{name} {step}"] == 1 or result.status is Status.UNKNOWN
    assert await store.list_interrupted(include_posts=True) == []
    await store.aclose()


async def kill_some(workers: "list[subprocess.Popen[bytes]]", spec: str, ledger: Path, dice: random.Random) -> None:
    """Kill one worker after another, each once some more effects have happened, and start others in their place.

    A kill may keep up to three calls from having an effect.
    """
    for _ in range(KILLS):
        before, more = count_effects(ledger), dice.randint(1, 8)
        while count_effects(ledger) < min(before + more, SESSIONS * STEPS - 3 * KILLS):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)
        place = dice.randrange(len(workers))
        end_worker(workers[place])
        workers[place] = start_worker(spec, ledger)
        await asyncio.to_thread(wait_until_ready, workers[place])


def count_effects(ledger: Path) -> int:
    return len(ledger.read_bytes().splitlines()) if ledger.exists() else 0


async def until_all_are_over(agent: Any, names: list[str]) -> None:
    """Wait until every session has ended; one that was killed again and again is taken up once more."""
    left = set(names)
    while left:
        for name in sorted(left):
            state = await agent.session(name).read_state()
            if state.is_parked:
                await agent.session(name).resume(unpark=True)
            elif state.run_ended_event is not None:
                left.discard(name)
        await asyncio.sleep(0.05)
