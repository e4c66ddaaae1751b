"""Kill -9 at every fault point and at any time: nothing acknowledged is lost, and no effect happens twice.

Real processes drive one conversation, kept in a file, and are killed; another one goes on. `auditor.py` then holds the
log against the ledger that the tools have written and against what the processes told.
"""

import asyncio
import itertools
import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from tests.architecture.source import ROOT
from tests.faults.auditor import ONCE, Evidence, violations
from tests.faults.children import SESSION, Order, Report, kept
from windlass.core import faults
from windlass.core.event import Entry, ToolFinished
from windlass.core.fold import fold
from windlass.core.store import Store

KILLED = -signal.SIGKILL
COMMAND = (sys.executable, "-m", "tests.faults.children")


class Interpreters:
    """Starts each driver in an interpreter of its own."""

    def drive(self, order: Order) -> Report:
        """Let one driver run until it ends or is killed."""
        arguments = msgspec.json.encode(Order(order.folder, order.store)).decode()
        done = subprocess.run(
            [*COMMAND, "drive", arguments],
            cwd=ROOT,
            env={**os.environ, faults.VARIABLE: order.faults},
            stdout=subprocess.PIPE,
            text=True,
            timeout=50,
            check=False,
        )
        return Report(done.returncode, done.stdout.splitlines(), 0.0)


class Server:
    """Forks the drivers, which takes a tenth of the time that an interpreter takes to start."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [*COMMAND, "serve"],
            cwd=ROOT,
            env={**os.environ, faults.VARIABLE: ""},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def drive(self, order: Order) -> Report:
        """Let one driver run until it ends or is killed."""
        orders, reports = self._process.stdin, self._process.stdout
        assert orders is not None
        assert reports is not None
        orders.write(f"{msgspec.json.encode(order).decode()}\n")
        orders.flush()
        return msgspec.json.decode(reports.readline(), type=Report)

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=30)


@pytest.fixture(scope="module")
def server():
    server = Server()
    yield server
    server.close()


class Trial:
    """One conversation, driven by as many processes as it takes."""

    def __init__(self, server: Server | Interpreters, folder: Path, store: str = "sqlite") -> None:
        folder.mkdir()
        self.folder = folder
        self.store = store
        self.kills = 0
        self.seconds = 0.0
        """How long the last driver took."""
        self._server = server
        self._told: list[str] = []
        self._in_doubt: set[str] = set()

    def drive(self, **order) -> bool:
        """Let one driver run; says whether it was killed."""
        report = self._server.drive(Order(str(self.folder), self.store, **order))
        self._told += report.told
        self.seconds = report.seconds
        assert report.status in {0, KILLED}, f"{report} (its traceback is on stderr)"
        if report.status == KILLED:
            self.kills += 1
            self._look_for_doubts()
        return report.status == KILLED

    def go_on(self, **order) -> list[str]:
        """Let a driver come to the end; says what is wrong then."""
        assert not self.drive(**order)
        return violations(Evidence(self.log(), self.effects(), self._told, self._in_doubt))

    def log(self) -> Sequence[Entry]:
        """What is stored."""
        return asyncio.run(read(kept(str(self.folder), self.store)))

    def effects(self) -> list[tuple[str, str]]:
        """What has really happened."""
        ledger = self.folder / "ledger"
        lines = ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else []
        return [(name, key) for name, _, key in [line.partition(" ") for line in lines]]

    def results(self) -> list[ToolFinished]:
        """What is stored about the ends of calls."""
        return [entry.event for entry in self.log() if isinstance(entry.event, ToolFinished)]

    def _look_for_doubts(self) -> None:
        started = fold(self.log()).started
        self._in_doubt |= {call_id for call_id, event in started.items() if event.name in ONCE}


async def read(store: Store) -> list[Entry]:
    try:
        return await store.read(SESSION)
    finally:
        await store.aclose()


@pytest.fixture(scope="module")
def tally(report):
    """How many kills there were."""
    kills: list[int] = []
    yield kills
    report.append(f"kill -9: {sum(kills)} processes")


@pytest.fixture
def trials(server, tmp_path, tally):
    """Makes trials, each in a folder of its own."""
    made: list[Trial] = []

    def make(store: str = "sqlite") -> Trial:
        made.append(Trial(server, tmp_path / str(len(made)), store))
        return made[-1]

    yield make
    tally.append(sum(trial.kills for trial in made))


# -- the tests ---------------------------------------------------------------------------------------------------------


def test_a_conversation_that_nobody_kills_passes_every_point_twice(trials):
    """Otherwise the sweep below would have nothing to kill."""
    trial = trials()
    assert trial.go_on() == []
    assert sorted(path.name for path in trial.folder.iterdir()) == ["ledger", "sessions"]
    for point in faults.names():
        assert trials().drive(faults=f"{point}=kill@2"), f"{point} is passed once at most"


@pytest.mark.faults
@pytest.mark.parametrize("point", faults.names())
def test_after_a_kill_at_a_fault_point_another_process_goes_on(trials, point, long):
    for passing in itertools.count(1) if long else range(1, 7):
        trial = trials()
        killed = trial.drive(faults=f"{point}=kill@{passing}")
        assert trial.go_on() == [], f"killed at {point}, passing {passing}"
        if not killed:
            break


@pytest.mark.faults
def test_after_several_kills_another_process_goes_on(trials, long):
    """Also while it is being repaired, and while the repair is repaired."""
    chance = random.Random("several kills")
    for number in range(500 if long else 12):
        trial = trials()
        points = [f"{chance.choice(faults.names())}=kill@{chance.randint(1, 6)}" for _ in range(chance.randint(2, 4))]
        for armed in points:
            trial.drive(faults=armed)
        assert trial.go_on() == [], f"trial {number}, killed at {points}"


@pytest.mark.faults
def test_after_kills_at_any_time_another_process_goes_on(trials, long):
    chance = random.Random("any time")
    plain = trials()
    assert plain.go_on() == []
    for number in range(3000 if long else 24):
        trial = trials()
        times = [chance.uniform(0.0, plain.seconds) for _ in range(chance.randint(1, 2))]
        for seconds in times:
            trial.drive(kill_after_seconds=seconds)
        assert trial.go_on() == [], f"trial {number}, killed after {times}"


@pytest.mark.faults
def test_a_store_of_files_survives_the_same(trials, long):
    chance = random.Random("files")
    plain = trials("file")
    assert plain.go_on() == []
    for number in range(1000 if long else 12):
        trial = trials("file")
        point = f"{chance.choice(faults.names())}=kill@{chance.randint(1, 6)}"
        seconds = chance.uniform(0.0, plain.seconds)
        trial.drive(faults=point)
        trial.drive(kill_after_seconds=seconds)
        assert trial.go_on() == [], f"trial {number}, killed at {point} and after {seconds}"


@pytest.mark.parametrize("point", ["loop.intent_stored", "loop.effect_done"])
def test_run_tool_kill_resume(tmp_path, point):
    """The whole of it in interpreters of their own, armed by the environment."""
    trial = Trial(Interpreters(), tmp_path / "trial")
    assert trial.drive(faults=f"{point}=kill")
    assert trial.go_on() == []
    assert "unknown" in [event.result.status for event in trial.results()]


# -- the test of the test ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bug", "found"), [("rerun unknown calls", "doubled: pay"), ("store no intents", "no intent: pay")]
)
def test_a_bug_is_found(trials, bug, found):
    """The auditor can fail: two mistakes that would double effects do not get past it."""
    wrong: list[str] = []
    for passing in range(1, 5):
        trial = trials()
        trial.drive(faults=f"loop.effect_done=kill@{passing}", bug=bug)
        wrong += trial.go_on(bug=bug)
    assert any(violation.startswith(found) for violation in wrong), wrong
