"""A goal whose process is killed, at any checkpoint, goes on with the same checklist and no effect twice."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from perdure import SessionNotFound, StoreError
from perdure.background import pursue_goal, read_goal, resume_goal
from perdure.stores import open_store
from tests.doubles import FailingStore
from tests.faults.goal_session import GOAL_ID, TITLES, build_agent
from tests.seeds import chance

pytestmark = pytest.mark.faults

PATIENCE = 60.0
POINTS = ("store.append.before_commit", "store.append.after_commit", "loop.intent_stored", "loop.effect_done")
CHECKPOINTS = 70
"""More than the appends of a whole goal."""
CERTAIN = {
    "store.append.before_commit": 40,
    "store.append.after_commit": 40,
    "loop.intent_stored": 5,
    "loop.effect_done": 5,
}
"""How often a goal passes each point at least: a kill that is drawn from these meets it."""


def run_goal(folder: Path, command: str, faults: str = "") -> "subprocess.CompletedProcess[str]":
    folder.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "tests.faults.goal_session", str(folder), command],
        check=False,
        env={**os.environ, "PERDURE_FAULTS": faults},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


async def check_record(folder: Path) -> None:
    """The goal is achieved with the checklist that was planned first, and each part was mended once."""
    assert (folder / "ledger").read_text().split() == ["1", "2", "3"]
    record = await read_record(folder)
    assert record.status == "achieved"
    assert [(each.id, each.title, each.done) for each in record.items] == [
        (str(number), title, True) for number, title in enumerate(TITLES, 1)
    ]


async def kill_and_resume(folder: Path, fault: str) -> bool:
    """Kill the process of a goal at a fault point, and resume the goal; False if the point was not reached."""
    killed = run_goal(folder, "start", fault)
    assert killed.returncode in {-signal.SIGKILL, 0}, killed.stderr
    if killed.returncode == 0:
        await check_record(folder)
        return False
    try:
        before = await read_record(folder)
    except SessionNotFound:  # it was killed before the goal was stored, so nothing was promised
        before = None
    assert before is None or before.status in {"paused", "achieved"}, fault
    resumed = run_goal(folder, "start" if before is None else "resume")
    assert resumed.stdout.startswith("achieved "), (fault, resumed.stdout, resumed.stderr)
    await check_record(folder)
    if before is not None and before.items:
        after = await read_record(folder)
        assert [(each.id, each.title) for each in after.items] == [(each.id, each.title) for each in before.items]
    return True


async def read_record(folder: Path):
    store = open_store(f"sqlite:{folder}/sessions.db")
    try:
        return await read_goal(GOAL_ID, store)
    finally:
        await store.aclose()


@pytest.mark.parametrize("fault", ["loop.effect_done=kill@2"])
async def test_a_goal_whose_process_was_killed_goes_on_in_another(tmp_path, fault):
    assert await kill_and_resume(tmp_path / "trial", fault)


async def test_killed_at_every_checkpoint_in_turn_it_goes_on(tmp_path, long, report):
    drawn = chance("goals")
    if long:
        faults = [f"{point}=kill@{number}" for point in POINTS for number in range(1, CHECKPOINTS)]
    else:
        point = drawn.choice(POINTS)
        faults = [f"{point}=kill@{drawn.randint(1, CERTAIN[point])}"]
    reached, passed = 0, set[str]()
    for number, fault in enumerate(faults):
        point = fault.partition("=")[0]
        if point in passed:
            continue
        if await kill_and_resume(tmp_path / str(number), fault):
            reached += 1
        else:
            passed.add(point)  # it is passed less often than that
    report.append(f"goals, killed and resumed: {reached} of {len(faults)} places were reached")
    assert reached > CHECKPOINTS if long else reached == len(faults)


async def test_killed_again_and_again_it_still_ends(tmp_path, long):
    """Each process gets a little further, and is killed."""
    done = run_goal(tmp_path / "trial", "start", "store.append.after_commit=kill@12")
    kills = 0
    while done.returncode == -signal.SIGKILL and kills < (CHECKPOINTS if long else 1):
        kills += 1
        done = run_goal(tmp_path / "trial", "resume", "store.append.after_commit=kill@12")
    if done.returncode == -signal.SIGKILL:
        done = run_goal(tmp_path / "trial", "resume")
    assert done.stdout.startswith("achieved "), done.stderr
    await check_record(tmp_path / "trial")


async def test_a_store_that_fails_at_any_append_leaves_a_goal_that_can_be_resumed(tmp_path):
    """Every checkpoint in turn, in one process: the append fails as if the process had died before it."""
    for place in range(1, CHECKPOINTS):
        folder = tmp_path / str(place)
        folder.mkdir()
        store = FailingStore(open_store("memory:"), place)
        agent = build_agent(folder).replace(store=store)
        try:
            record = await pursue_goal("Make the boat ready.", agent, goal_id=GOAL_ID)
        except StoreError:
            record = await pursue_or_resume(agent)
        assert record.status == "achieved", place
        assert [(each.id, each.title) for each in record.items] == [
            (str(number), title) for number, title in enumerate(TITLES, 1)
        ]
        assert (folder / "ledger").read_text().split() == ["1", "2", "3"], place
        if not store.has_failed:
            break
    assert 20 < place < CHECKPOINTS - 1


async def pursue_or_resume(agent):
    if await agent.store.info(GOAL_ID) is None:
        return await pursue_goal("Make the boat ready.", agent, goal_id=GOAL_ID)
    return await resume_goal(GOAL_ID, agent)
