"""A disk that fails: whichever operation it is, once or for good, nothing acknowledged is lost and nothing is torn.

The caller is told by a `StoreError`, no tool starts whose intent was not stored, and when the disk works again so does
the session. `power.py` and `calls.py` make the operations fail.
"""

import contextlib
import itertools
from collections.abc import Iterator, Sequence

import apsw
import pytest

from perdure import StoreError
from perdure.events import ToolStarted
from perdure.stores import Post, Store
from tests.faults import conversation
from tests.faults.account import violations
from tests.faults.conversation import SESSION, SHORT, converse
from tests.faults.disk import Broken, Disk
from tests.faults.outage import FileMachine, Machine, SqliteMachine, World
from tests.faults.witness import Appended, Record, Witness
from tests.seeds import chance
from tests.stores.material import entries

FORK = "fork"
POST = Post("post", "steer", "hello", 1.0)


@pytest.fixture(params=[SqliteMachine, FileMachine], ids=["sqlite", "files"])
def machine(request):
    machine = request.param()
    yield machine
    machine.close()


class Trial:
    """One machine, whose disk fails at its N-th operation, and works again later."""

    def __init__(self, machine: Machine, nth: int, *, full: bool, for_good: bool) -> None:
        self.failures = 0
        """How many operations have failed."""
        self.world = World()
        self._machine = machine
        self._disk: Disk = machine.start({})
        self.store = self.opened()
        self._nth = nth
        self._full = full
        self._for_good = for_good
        self._seen = 0
        self._disk.before_each = self._fail

    def _fail(self, kind: str) -> None:
        self._seen += 1
        if self._seen == self._nth or (self._for_good and self._seen > self._nth):
            self.failures += 1
            raise Broken(kind, full=self._full and kind == "write")

    def heal(self) -> None:
        """From now on the disk works."""
        self._disk.before_each = lambda _kind: None

    def opened(self) -> Witness:
        """A new store on the disk."""
        return Witness(self._machine.open(self._disk), self.world.book)

    async def close(self) -> None:
        """Let go of the files. What fails then is of no account to SQLite, but apsw passes on what a VFS has raised."""
        with contextlib.suppress(StoreError, apsw.Error):
            await self.store.aclose()

    async def audit(self) -> None:
        """Everything that was acknowledged is there, whole; and every effect had its intent stored before.

        The auditor's own operations do not count, and do not fail.
        """
        fault, self._disk.before_each = self._disk.before_each, lambda _kind: None
        assert await violations(self.store.store, self.world.book, after_cut=False) == []
        assert conversation.without_intent(await self.store.read(SESSION), self.world.effects) == []
        assert {key for _, key in self.world.effects} <= acknowledged_intents(self.world.book)
        self._disk.before_each = fault

    async def survives_a_power_cut(self) -> None:
        """Also after a sync has failed: the next one says that all is well, and what is lost stays lost."""
        await self.close()
        self.heal()
        self._disk.check()
        images = self._disk.after_cut(chance("cut", self._nth))
        self._machine.stop(self._disk)
        disk = self._machine.start(images)
        store = self._machine.open(disk)
        assert await violations(store, self.world.book, after_cut=True) == []
        await converse(store, self.world.effects, SHORT)  # it may end with what nobody has acknowledged
        log = await store.read(SESSION)
        assert conversation.unfinished(log, SHORT) == []
        assert conversation.without_intent(log, self.world.effects) == []
        await store.aclose()
        assert self._machine.damage(disk) == []
        self._machine.stop(disk)


def acknowledged_intents(book: Sequence[Record]) -> set[str]:
    """The keys of the calls whose intents the store says it has."""
    stored = [record.wish.entries for record in book if record.is_done and isinstance(record.wish, Appended)]
    events = [entry.event for entries in stored for entry in entries]
    return {event.idempotency_key for event in events if isinstance(event, ToolStarted)}


async def errands(store: Store, world: World) -> None:
    """A bit of everything, from wherever it stands to its end."""
    await converse(store, world.effects, SHORT)
    await store.post(SESSION, POST)
    await store.delete(FORK)  # what may be left of an earlier attempt
    await store.fork(SESSION, FORK, at=3)
    await store.delete(FORK)


def each(long: bool, *, for_good: bool) -> Iterator[tuple[int, bool]]:
    """The number of the operation that fails, and whether the disk is full then if it is a write.

    In the short form every operation fails in one of the four ways: once or for good, as an error or as a full disk.
    """
    if long:
        return ((nth, full) for nth in itertools.count(1) for full in (False, True))
    return ((nth, nth % 4 >= 2) for nth in itertools.count(2 if for_good else 1, 2))


@pytest.mark.faults
async def test_whichever_operation_fails_once_the_same_store_goes_on(machine, long, report):
    for nth, full in each(long, for_good=False):
        trial = Trial(machine, nth, full=full, for_good=False)
        for _ in range(3):
            try:
                await errands(trial.store, trial.world)
                break
            except StoreError:
                await trial.audit()
        else:
            pytest.fail(f"when operation {nth} had failed, it never came to its end")
        await trial.audit()
        await trial.survives_a_power_cut()
        if not trial.failures:
            report.append(f"disk errors, {machine}, once: up to operation {nth - 1}")
            return


@pytest.mark.faults
async def test_whichever_operation_fails_for_good_a_new_store_goes_on_later(machine, long, report):
    for nth, full in each(long, for_good=True):
        trial = Trial(machine, nth, full=full, for_good=True)
        with contextlib.suppress(StoreError):
            await errands(trial.store, trial.world)
        await trial.close()
        trial.heal()
        trial.store = trial.opened()
        await trial.audit()
        await errands(trial.store, trial.world)
        await trial.audit()
        await trial.survives_a_power_cut()
        if not trial.failures:
            report.append(f"disk errors, {machine}, for good: from one of {nth - 1} operations on")
            return


@pytest.mark.parametrize("broken", [("sync",), ("sync", "truncate")], ids=" and ".join)
async def test_a_post_whose_sync_failed_is_certain_when_it_is_acknowledged_later(machine, broken):
    for number in range(12):
        disk = machine.start({})
        store = machine.open(disk)
        assert await store.post(SESSION, Post("first", "steer", "hello", 1.0))
        disk.before_each = lambda kind: fail_if(kind, broken)
        with pytest.raises(StoreError):
            await store.post(SESSION, POST)
        disk.before_each = lambda _kind: None
        await store.post(SESSION, POST)  # whether it was new or not, it is acknowledged now
        images = disk.after_cut(chance("post", number))
        await store.aclose()
        machine.stop(disk)
        store = machine.open(again := machine.start(images))
        assert POST in await store.posts(SESSION)
        await store.aclose()
        machine.stop(again)


@pytest.mark.parametrize("broken", [("sync",), ("sync", "truncate")], ids=" and ".join)
async def test_a_barrier_whose_sync_failed_is_certain_when_it_is_acknowledged_later(machine, broken):
    for number in range(12):
        disk = machine.start({})
        store = machine.open(disk)
        lease = await store.acquire(SESSION)
        for seq in (1, 2):  # after the first, SQLite's log is synced apart from its commits
            await store.append(lease, entries(seq), sync=True)
        disk.before_each = lambda kind: fail_if(kind, broken)
        with pytest.raises(StoreError):
            await store.append(lease, entries(3), sync=True)
        disk.before_each = lambda _kind: None
        await store.append(lease, entries(3), sync=True)  # whether it was stored or not, it is acknowledged now
        images = disk.after_cut(chance("barrier", number))
        await store.aclose()
        machine.stop(disk)
        store = machine.open(again := machine.start(images))
        assert await store.read(SESSION) == entries(1, 3)
        await store.aclose()
        machine.stop(again)


def fail_if(kind: str, broken: Sequence[str]) -> None:
    if kind in broken:
        raise Broken(kind)
