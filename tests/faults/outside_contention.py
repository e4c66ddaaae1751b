"""Cancels under contention: tasks and threads of one process run, cancel, steer and answer the same sessions at once.

Above: `trials.py`. Below: `outside_people.py`, `outside_audit.py`. Nobody dies here, so it works in memory too.
"""

import asyncio
import random
import shutil
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec

from perdure.background import Shutdown
from perdure.stores import Store
from tests.faults.children import Place, Tell
from tests.faults.outside import counted, wrong_with
from tests.faults.outside_audit import audit
from tests.faults.outside_ledger import Ledger
from tests.faults.outside_people import Part, User, finish_all, settle_in, witnessed
from tests.faults.report import Report
from tests.faults.zygote import Nursery

AT_ONCE = 4
"""Sessions that are run at the same time."""
THREADS = 2
"""Threads that meddle, each with an event loop of its own."""
CANCELS = ("cancel here", "cancel caller", "cancelled")
SECONDS = 60.0
"""How long a series may take."""


class ContentionTrial(msgspec.Struct, tag=True, frozen=True):
    """A series of cancels in one process; then all is finished, and audited."""

    folder: str
    place: Place
    seed: str
    cancels: int
    sessions: int = 3

    def carry_out(self, children: Nursery) -> Report:
        """Let one process do it all."""
        Path(self.folder).mkdir(parents=True)
        ledger = f"{self.folder}/ledger"
        part = Part(self.place, ledger, self.seed, self.seed, [f"s{number}" for number in range(self.sessions)])
        child = children.fork(partial(contend, part, self.cancels))
        if not children.wait(lambda: child.has_ended, SECONDS):
            children.kill(child)
            child.lines.append("HUNG")
        seen = counted(Ledger(ledger).read())
        if not child.lines and child.status == 0:
            shutil.rmtree(self.folder)
        wrong = [*wrong_with(child), *[line for line in child.lines if not line.startswith(("CRASHED", "HUNG"))]]
        return Report(sum(seen[each] for each in CANCELS), wrong, list(seen.elements()))


def contend(part: Part, cancels: int, tell: Tell) -> None:
    """Run and disturb sessions until there were enough cancels; finish them; tell what is wrong."""
    settle_in(part)
    for wrong in asyncio.run(_contend(part, cancels)):
        tell(wrong)


async def _contend(part: Part, cancels: int) -> list[str]:
    ledger = Ledger(part.ledger)
    store = witnessed(part.place.opened(), ledger)
    shutdown = Shutdown(signals=())
    users = [User(part, store, ledger, shutdown, session_id) for session_id in part.sessions]
    is_over = threading.Event()
    threads = [threading.Thread(target=_meddle, args=(part, store, shutdown, is_over)) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    enough = asyncio.ensure_future(_wait_for_cancels(ledger, cancels, is_over))
    try:
        await asyncio.gather(*[_drive(users, is_over) for _ in range(AT_ONCE)])
        await enough
    finally:
        is_over.set()
        for thread in threads:
            await asyncio.to_thread(thread.join)
    await finish_all(users)
    wrong = await audit(store, ledger)
    await store.aclose()
    return wrong


async def _drive(users: Sequence[User], is_over: threading.Event) -> None:
    while not is_over.is_set():
        await random.choice(users).drive(most_others=4)
        await asyncio.sleep(0)


async def _wait_for_cancels(ledger: Ledger, cancels: int, is_over: threading.Event) -> None:
    while not is_over.is_set():
        await asyncio.sleep(0.1)
        if sum(note.what in CANCELS for note in ledger.read()) >= cancels:
            is_over.set()


def _meddle(part: Part, store: Store, shutdown: Shutdown, is_over: threading.Event) -> None:
    async def meddle() -> None:
        users = [User(part, store, Ledger(part.ledger), shutdown, session_id) for session_id in part.sessions]
        while not is_over.is_set():
            await random.choice(users).meddle()
            await asyncio.sleep(random.uniform(0, 0.01))

    asyncio.run(meddle())
