"""Where a trial takes place: a store, a ledger, and all the processes that have worked there. Above: `trials.py`.
Below: `zygote.py`, `children.py` and, when all is over, `auditor.py`.
"""

import asyncio
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from perdure.events import Entry
from perdure.stores import Post
from tests.faults.auditor import violations
from tests.faults.children import Order, Place, Tell, drive, post
from tests.faults.evidence import Effect, Evidence, Testimony
from tests.faults.plan import plan
from tests.faults.report import Report
from tests.faults.zygote import Child, Nursery


class Scene:
    """One trial's own."""

    def __init__(self, nursery: Nursery, folder: str, place: Place, seed: str, *, bug: str = "") -> None:
        Path(folder).mkdir(parents=True)
        self.nursery = nursery
        self._folder = folder
        self.ledger = f"{folder}/ledger"
        self.place = place
        self._seed = seed
        self._bug = bug
        self._children: list[Child] = []

    def fork(
        self, sessions: Sequence[str], *, faults: str = "", afresh: bool = False, take_over: bool = False
    ) -> Child:
        """A process that drives these sessions."""
        order = Order(self.place, self.ledger, self._seed, sessions, faults, afresh, take_over, self._bug)
        return self._forked(lambda tell: drive(order, tell))

    def fork_poster(self, sessions: Sequence[str]) -> Child:
        """A process that posts to these sessions."""
        order = Order(self.place, self.ledger, self._seed, sessions)
        return self._forked(lambda tell: post(order, tell))

    def _forked(self, work: Callable[[Tell], object]) -> Child:
        child = self.nursery.fork(work)
        self._children.append(child)
        return child

    def audit(self, sessions: Sequence[str], last: Child) -> list[str]:
        """What is wrong with these sessions, which `last` was the last to drive."""
        children = [*[child for child in self._children if child is not last], last]
        wrong = [line for child in children for line in child.lines if line.startswith(("CRASHED", "HUNG"))]
        wrong += [f"a process ended with {child.status}" for child in children if child.status and not child.was_killed]
        auditor = self.nursery.fork(lambda tell: self._audit(sessions, children, tell))
        self.nursery.end(auditor)
        return [*wrong, *auditor.lines]

    def closed(self, report: Report) -> Report:
        """The report, when all is over. What is left behind is kept only if there is something to find in it."""
        if not report.wrong:
            shutil.rmtree(self._folder)
        return report

    def _audit(self, sessions: Sequence[str], children: Sequence[Child], tell: Tell) -> None:
        effects = self._effects()
        for session_id, (entries, posts) in zip(sessions, asyncio.run(self._read(sessions)), strict=True):
            testimonies = [_testimony(child, f"{session_id} ") for child in children]
            own = [effect for effect in effects if effect.key.startswith(f"{session_id}/")]
            items = plan(self._seed, session_id)
            evidence = Evidence(items, entries, own, testimonies, children[-1].seconds, {post.id for post in posts})
            for wrong in violations(evidence):
                tell(f"{session_id}: {wrong}")

    def _effects(self) -> list[Effect]:
        ledger = Path(self.ledger)
        lines = ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else []
        return [Effect(*line.split(" ")) for line in lines]

    async def _read(self, sessions: Sequence[str]) -> list[tuple[list[Entry], list[Post]]]:
        store = self.place.opened()
        try:
            return [(await store.read(session_id), await store.posts(session_id)) for session_id in sessions]
        finally:
            await store.aclose()


def _testimony(child: Child, about: str) -> Testimony:
    return Testimony([line.removeprefix(about) for line in child.lines if line.startswith(about)], child.was_killed)
