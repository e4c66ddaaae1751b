"""A session of 500 turns, with everything that changes what its model sees, killed and taken up again and again."""

import os
import random
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from perdure import Status
from perdure._core.values import faults
from perdure.engines import State, fold_entries
from perdure.events import (
    Compacted,
    Entry,
    ModelRequested,
    RunEnded,
    SkillLoaded,
    ToolFinished,
    ViewChanged,
)
from perdure.stores import open_store
from tests.architecture.source import ROOT
from tests.faults.marathon import SESSION, WINDOW, Note, Order
from tests.seeds import SEED
from tests.transcript import assert_valid

TURNS = 500
TASKS = 120
KILLS, LONG_KILLS = 12, 200
APPENDS = 2_400
"""About how many the conversation needs, counted low, so that there is still something to be killed at the end."""


def a_kill(chance: random.Random, kills: int) -> str:
    """At one of the points that this conversation passes, or at the latest after its share of the appends."""
    points = [name for name in faults.list_fault_points() if not name.startswith(("question.", "store."))]
    share = max(APPENDS // kills, 2)
    at_the_latest = f"store.append.{chance.choice(['before', 'after'])}_commit=kill@{chance.randint(share // 2, share)}"
    return f"{chance.choice(points)}=kill@{chance.randint(1, max(share // 4, 2))},{at_the_latest}"


def go_on(order: Order, kill: str) -> bool:
    """Let a process go on until it is killed; `False` when it came to the end."""
    environment = {
        **os.environ,
        faults.FAULTS_VARIABLE: kill,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
    }
    command = [sys.executable, "-m", "tests.faults.marathon", msgspec.json.encode(order).decode()]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, timeout=240, check=False)
    assert done.returncode in {0, -9}, done.stderr.decode()[-4000:]
    return done.returncode == -9


def noted(order: Order) -> list[Note]:
    decode = msgspec.json.Decoder(Note).decode
    return [decode(line) for line in Path(order.requests).read_bytes().splitlines()]


async def kept(order: Order) -> list[Entry]:
    store = open_store(f"sqlite:{order.database}")
    try:
        return await store.read(SESSION)
    finally:
        await store.aclose()


@pytest.mark.faults
@pytest.mark.timeout(1200)
async def test_a_session_of_500_turns_survives_every_kill_and_each_request_begins_with_the_one_before(
    tmp_path, long, report
):
    chance = random.Random(f"{SEED} marathon")
    database, ledger, requested = [str(tmp_path / name) for name in ("kept.db", "ledger", "requests")]
    order = Order(database, ledger, requested, TASKS)
    killed, wanted = 0, LONG_KILLS if long else KILLS
    while killed < wanted and go_on(order, a_kill(chance, wanted)):
        killed += 1
    assert not go_on(order, "")
    entries, requests = await kept(order), noted(order)
    state = fold_entries(entries)
    parked = sum(isinstance(each.event, RunEnded) and each.event.status == "parked" for each in entries)
    told = f"{_turns(entries)} turns, {killed} kills, {parked} parked, {len(requests)} requests"
    report.append(f"a long session: {told}")
    assert parked <= killed // 10
    assert killed == wanted
    assert (_turns(entries) >= TURNS, state.is_interrupted, len(state.runs_by_input_id)) == (True, False, TASKS)
    assert_everything_was_in_it(entries)
    assert_each_request_is_sound(requests)
    assert_prefixes_are_shared(entries, requests)
    assert_tools_of_skills_are_offered(entries, requests)
    assert_effects_happened_once(state, Path(order.ledger), entries)


def _turns(entries: list[Entry]) -> int:
    return sum(isinstance(each.event, ModelRequested) and each.event.attempt == 1 for each in entries)


def assert_everything_was_in_it(entries: list[Entry]) -> None:
    events = [each.event for each in entries]
    causes = Counter(each.cause for each in events if isinstance(each, ViewChanged))
    assert causes["compaction"] > 10
    assert causes["summaries"] > 3
    assert sum(isinstance(each, Compacted) for each in events) == causes["compaction"]
    assert any(isinstance(each, SkillLoaded) for each in events)
    assert len({each.path for each in events}) > 10, "subagents"
    assert any(isinstance(each, ToolFinished) and each.result.preview for each in events)
    messages = fold_entries(entries).messages
    assert {"steering", "skill"} <= {each.origin for each in messages}
    told = [each.role for each, after in pairwise(messages) if after.origin == "steering"]
    assert told.count("tool") > 10, "steering in the middle of a run"
    assert "I am lost." not in {each.text for each in messages}


def assert_each_request_is_sound(requests: list[Note]) -> None:
    """Each was valid and fitted the window."""
    assert [each.problem for each in requests if each.problem] == []
    assert max(each.tokens for each in requests) <= WINDOW
    assert {each.kind for each in requests} == {"root", "child", "summary"}


def assert_prefixes_are_shared(entries: list[Entry], requests: list[Note]) -> None:
    """Each request begins with the one before it, unless the log tells between the two that the view has changed.

    For the session's own agent, and for each of those that work for it.
    """
    shared = 0
    for path in {each.path for each in requests}:
        changed = [each.seq for each in entries if isinstance(each.event, ViewChanged) and each.event.path == path]
        asked = [each for each in requests if each.kind != "summary" and each.path == path]
        for before, after in pairwise(asked):
            if after.segments[: len(before.segments)] == before.segments:
                shared += 1
            else:
                assert [seq for seq in changed if before.seq <= seq <= after.seq], (path, before.seq, after.seq)
    assert shared > len(requests) // 2


def assert_tools_of_skills_are_offered(entries: list[Entry], requests: list[Note]) -> None:
    """From the first request after a skill was loaded, which is in the very run that was begun with it."""
    loaded: dict[str, int] = {}
    for each in entries:
        if isinstance(each.event, SkillLoaded):
            loaded.setdefault(each.event.name, each.seq)
    for skill, name in (("reporting", "publish"), ("signing", "sign")):
        later = [each for each in requests if each.kind == "root" and each.seq >= loaded[skill]]
        assert [each.seq for each in later if name not in each.tools] == []


def assert_effects_happened_once(state: State, ledger: Path, entries: list[Entry]) -> None:
    """An effect happened at most once; once, if its result says so; and all transcripts are valid."""
    for each in (state, *state.children.values()):
        assert_valid(each.messages)
        assert_valid(each.view)
    effects = Counter(line.split()[-1] for line in ledger.read_text().splitlines())
    assert set(effects.values()) == {1}
    finished = [each.event for each in entries if isinstance(each.event, ToolFinished) and each.event.name == "work"]
    assert Counter(each.call_id for each in finished).most_common(1)[0][1] == 1
    sure = {each.call_id for each in finished if each.result.status is Status.OK}
    assert sure <= set(effects)
    never = {each.call_id for each in finished if each.result.status is Status.CANCELLED_BEFORE_START}
    assert not never & set(effects)
