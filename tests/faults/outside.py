"""Random signals for processes that use the same sessions: SIGKILL, SIGTERM, SIGSTOP and SIGCONT, at any time.

Above: `trials.py`. Below: `outside_people.py`, `outside_audit.py`, `zygote.py`. Nothing inside the processes is told
when: they are hit wherever they are, several in the same moment, and while they repair what the last signal has left.
"""

import asyncio
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from perdure._stores.postgres.store import LEASE_SECONDS
from tests.faults.children import Place, Tell
from tests.faults.outside_audit import audit
from tests.faults.outside_ledger import Ledger, Note
from tests.faults.outside_people import Part, drive, finish, meddle
from tests.faults.report import Report
from tests.faults.zygote import Child, Nursery

DRIVERS = 3
MEDDLERS = 2
MEAN_BYTES = 4000
"""That the ledger grows by between two signals: on a slow disk as much is done in a longer time."""
LONGEST_SECONDS = 0.5
"""Between two signals, however little is done."""
FIRST_SECONDS = 10.0
"""Before the first signal: the store is made meanwhile."""
FINISH_SECONDS = 90.0
"""How long everything may take to come to its end once nobody is disturbed any more."""
COUNTED = ("cancel here", "cancel caller", "cancelled", "driving", "posted", "answered", "resolved", "begin", "replied")
"""What is counted of the ledger, beside the signals."""


class OutsideTrial(msgspec.Struct, tag=True, frozen=True):
    """A series of signals for the processes that share a store; then all is finished, and audited."""

    folder: str
    place: Place
    seed: str
    signals: int
    sessions: int = 3
    pause_seconds: float = 0.12
    """The longest pause."""
    bug: str = ""

    def carry_out(self, children: Nursery) -> Report:
        """Disturb, finish, audit."""
        Path(self.folder).mkdir(parents=True)
        scene = Scene(self, children)
        seen = scene.disturb()
        wrong, seconds = scene.finish()
        wrong += scene.audit()
        seen.update(counted(scene.ledger.read()))
        if not wrong:
            shutil.rmtree(self.folder)
        done = seen["kill"] + seen["term"] + seen["stop"]
        return Report(done, wrong, list(seen.elements()), seconds)


class Scene:
    """The processes of one series."""

    def __init__(self, trial: OutsideTrial, children: Nursery) -> None:
        self._trial = trial
        self._children = children
        self._chance = random.Random(trial.seed)
        self._names = [f"s{number}" for number in range(trial.sessions)]
        self._path = f"{trial.folder}/ledger"
        self.ledger = Ledger(self._path)
        self._forked = 0
        self._living: list[Child] = []
        self._is_meddler: dict[int, bool] = {}
        self._stopped: list[tuple[float, Child]] = []
        """Who sleeps, and when to wake it."""
        self._ended: list[Child] = []

    def disturb(self) -> Counter[str]:
        """Send the signals, and replace whoever is gone."""
        seen: Counter[str] = Counter()
        for is_meddler in [False] * DRIVERS + [True] * MEDDLERS:
            self._fork(is_meddler=is_meddler)
        self._let_work(MEAN_BYTES, FIRST_SECONDS)
        while sum(seen[each] for each in ("kill", "term", "stop")) < self._trial.signals:
            self._let_work(self._chance.expovariate(1 / MEAN_BYTES))
            self._wait(self._chance.uniform(0, 0.005))
            if any(line.startswith("CRASHED") for child in [*self._ended, *self._living] for line in child.lines):
                break
            if awake := [child for child in self._living if child not in [each for _, each in self._stopped]]:
                drivers = [child for child in awake if not self._is_meddler[child.pid]]
                self._strike(self._chance.choice(drivers * 3 + awake), seen)
        for _, child in self._stopped:
            child.send(signal.SIGCONT)
        self._children.kill(*self._living)
        self._ended += self._living
        return seen

    def _strike(self, child: Child, seen: Counter[str]) -> None:
        chosen = self._chance.random()
        if chosen < 0.5:
            child.send(signal.SIGKILL)
            seen["kill"] += 1
        elif chosen < 0.65:
            child.send(signal.SIGTERM)
            seen["term"] += 1
        else:
            child.send(signal.SIGSTOP)
            pause = self._chance.choice((0.005, 0.3, 1.0)) * self._trial.pause_seconds
            self._stopped.append((time.monotonic() + pause, child))
            seen["stop"] += 1

    def _let_work(self, growth: float, seconds: float = LONGEST_SECONDS) -> None:
        """Until so much has been noted."""
        wanted, until = _size(self._path) + growth, time.monotonic() + seconds
        while _size(self._path) < wanted and time.monotonic() < until:
            self._wait(0.003)

    def _wait(self, seconds: float) -> None:
        """Let time pass; wake those whose time has come, and replace the dead."""
        until = time.monotonic() + seconds
        while True:
            due = [each for each in self._stopped if each[0] <= time.monotonic()]
            for each in due:
                self._stopped.remove(each)
                each[1].send(signal.SIGCONT)
            for child in [child for child in self._living if child.has_ended]:
                self._living.remove(child)
                self._ended.append(child)
                self._fork(is_meddler=self._is_meddler[child.pid])
            left = min([until, *[at for at, _ in self._stopped]]) - time.monotonic()
            if time.monotonic() >= until:
                return
            self._children.wait(lambda: any(child.has_ended for child in self._living), max(left, 0.0005))

    def _fork(self, *, is_meddler: bool) -> None:
        work: Callable[[Part, Tell], None] = meddle if is_meddler else drive
        self._forked += 1
        child = self._children.fork(partial(work, self._part(f"{self._trial.seed} {self._forked}")))
        self._is_meddler[child.pid] = is_meddler
        self._living.append(child)

    def _part(self, own_seed: str) -> Part:
        trial = self._trial
        return Part(trial.place, self._path, trial.seed, own_seed, self._names, trial.bug)

    def finish(self) -> tuple[list[str], float]:
        """Let one process bring all to the end; return what was wrong with any process, and how long it took."""
        part = self._part(f"{self._trial.seed} last")
        patient = msgspec.structs.replace(part, place=msgspec.structs.replace(part.place, lease_seconds=LEASE_SECONDS))
        last = self._children.fork(partial(finish, patient))
        self._ended.append(last)
        if not self._children.wait(lambda: last.has_ended, FINISH_SECONDS):
            last.send(signal.SIGABRT)  # it says where it is
            self._children.wait(lambda: last.has_ended, 5)
            last.lines.append("HUNG")
        return [wrong for child in self._ended for wrong in wrong_with(child)], last.seconds

    def audit(self) -> list[str]:
        """What is wrong with what is left, as a process sees it that has never used it."""
        auditor = self._children.fork(self._audit)
        self._children.end(auditor)
        return auditor.lines

    def _audit(self, tell: Tell) -> None:
        for wrong in asyncio.run(_audit(self._trial.place, self.ledger)):
            tell(wrong)


async def _audit(place: Place, ledger: Ledger) -> list[str]:
    store = place.opened()
    try:
        return await audit(store, ledger)
    finally:
        await store.aclose()


def _size(path: str) -> int:
    return os.stat(path).st_size if os.path.exists(path) else 0  # noqa: PTH110, PTH116 - many times


def wrong_with(child: Child) -> Sequence[str]:
    """What a process has told of its own end."""
    told = [line for line in child.lines if line.startswith(("CRASHED", "HUNG"))]
    well = {0, -signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGTERM}
    return ["\n".join(told)] if told else [] if child.status in well else [f"a process ended with {child.status}"]


def counted(notes: Sequence[Note]) -> Counter[str]:
    """How often what has happened, of the things worth knowing."""
    return Counter("taken over" if note.words == "taken over" else note.what for note in notes if note.what in COUNTED)
