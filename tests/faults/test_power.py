"""Cut the power at any moment: nothing acknowledged is lost, nothing is damaged, no effect happens twice.

`disk.py` says what a power cut does. Each cut is followed by a start with what it has left, an audit by `account.py`,
and, where a session was under way, by going on with it: perhaps until the next cut.
"""

import pytest

from perdure import StoreError
from tests.faults import conversation
from tests.faults.account import erased, violations
from tests.faults.conversation import LONG, SESSION, converse
from tests.faults.outage import NEW, Cut, FileMachine, Machine, SqliteMachine, World, watched
from tests.faults.witness import Appended, Record, Witness
from tests.faults.workload import mixed
from tests.seeds import chance

DEEPEST = 3
"""How many cuts a conversation gets one after the other, at most."""


@pytest.fixture
def sqlite(monkeypatch):
    """A machine on which the log of SQLite is moved into the database all the time."""
    monkeypatch.setattr("perdure._stores.sqlite.connections.CHECKPOINT_PAGES", 16)
    machine = SqliteMachine()
    yield machine
    machine.close()


@pytest.fixture
def files():
    machine = FileMachine()
    yield machine
    machine.close()


class Trial:
    """Lives of a machine, and the cuts that end them."""

    def __init__(self, machine: Machine, seed: str, *, weak: bool = False) -> None:
        self.cuts = 0
        """How many there were."""
        self.wrong: list[str] = []
        """What was found after them."""
        self._machine = machine
        self._seed = seed
        self._weak = weak
        self._chance = chance("power", seed)

    async def work(self) -> None:
        """Drive several sessions at random, from an empty disk on; then look at what each cut has left."""
        world, disk = World(), self._machine.start({})
        with watched(disk, world, self._chance) as cuts:
            store = Witness(self._machine.open(disk), world.book, weak=self._weak)
            await mixed(store, disk, chance("work", self._seed))
            await store.aclose()
        disk.check()
        self._machine.stop(disk)
        for cut in cuts:
            await self._look_at(cut)

    async def _look_at(self, cut: Cut) -> None:
        self.cuts += 1
        disk = self._machine.start(cut.images)
        store = self._machine.open(disk)
        found = await violations(store, cut.book, after_cut=True, search=self.cuts % 4 == 0)  # that takes its time
        await store.aclose()
        self._note(cut, [*found, *self._machine.damage(disk), *come_back(cut)])
        self._machine.stop(disk)

    async def talk(self, cut: Cut = NEW, depth: int = 0) -> None:
        """Go on with a conversation to its end; and then again from the cuts on the way."""
        disk = self._machine.start(cut.images)
        store = self._machine.open(disk)
        log = await store.read(SESSION)
        self._note(cut, await violations(store, cut.book, after_cut=True))
        self._note(cut, conversation.without_intent(log, cut.effects))
        # What is there now has survived one cut, and will survive the next.
        found = [Record(Appended(SESSION, tuple(log), sync=True), is_done=True)] if log else []
        world = World(found, cut.effects)
        with watched(disk, world, self._chance, often=0.5**depth) as cuts:
            await converse(Witness(store, world.book, weak=self._weak), world.effects, LONG)
            await store.aclose()
        log = await store.read(SESSION)
        await store.aclose()
        self._note(cut, [*conversation.without_intent(log, world.effects), *conversation.unfinished(log, LONG)])
        self._note(cut, self._machine.damage(disk))
        self._machine.stop(disk)
        if depth < DEEPEST:
            await self._go_on_from(cuts, depth + 1)

    async def _go_on_from(self, cuts: list[Cut], depth: int) -> None:
        for cut in cuts if depth == 1 else self._chance.sample(cuts, min(1, len(cuts))):
            self.cuts += 1
            await self.talk(cut, depth)

    def _note(self, cut: Cut, found: list[str]) -> None:
        self.wrong += [f"{self._seed}, cut {self.cuts} at change {cut.moment}: {each}" for each in found]


def come_back(cut: Cut) -> list[str]:
    """What was erased, and can be read on the disk all the same."""
    texts = [text.encode() for text in erased(cut.book)]
    return [f"erased, and back in {name}" for name, data in cut.images.items() if any(text in data for text in texts)]


@pytest.mark.faults
async def test_what_was_acknowledged_survives_a_power_cut_at_any_moment(sqlite, long, report):
    made = number = 0
    while made < (3000 if long else 150):
        trial = Trial(sqlite, f"work {number}")
        await trial.work()
        assert trial.wrong == []
        made, number = made + trial.cuts, number + 1
    report.append(f"power cuts, SQLite, mixed work: {made}")


@pytest.mark.faults
async def test_a_conversation_goes_on_after_power_cuts_and_no_effect_happens_twice(sqlite, long, report):
    made = number = 0
    while made < (2000 if long else 100):
        trial = Trial(sqlite, f"talk {number}")
        await trial.talk()
        assert trial.wrong == []
        made, number = made + trial.cuts, number + 1
    report.append(f"power cuts, SQLite, conversations: {made}")


@pytest.mark.faults
async def test_sessions_in_files_survive_power_cuts_too(files, long, report):
    made = number = 0
    while made < (1000 if long else 60):
        trial = Trial(files, f"files {number}")
        await trial.work()
        await trial.talk()
        assert trial.wrong == []
        made, number = made + trial.cuts, number + 1
    report.append(f"power cuts, files: {made}")


# -- the test of the test ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sqlite", "files"])
async def test_barriers_that_are_not_synced_are_found(request, kind):
    machine = request.getfixturevalue(kind)
    working, talking = Trial(machine, "weak", weak=True), Trial(machine, "weak", weak=True)
    while not any("has lost" in each for each in working.wrong):
        await working.work()
        assert working.cuts < 600
    while not any("no intent" in each for each in talking.wrong):
        await talking.talk()
        assert talking.cuts < 600


async def test_commits_that_are_not_followed_by_their_sync_are_found(sqlite, monkeypatch):
    monkeypatch.setattr("perdure._stores.sqlite.write.jobs.WalSync.sync", lambda _wal: None)
    cuts, wrong = 0, list[str]()
    while not any("has lost" in each for each in wrong):
        trial = Trial(sqlite, f"unsynced {cuts}")  # other work each time: some work has few moments that lose anything
        await trial.work()
        cuts, wrong = cuts + trial.cuts, trial.wrong
        assert cuts < 2000


async def test_a_disk_that_lies_about_syncs_is_found(sqlite, monkeypatch):
    """Without them SQLite cannot keep a database whole: the audit sees that too."""
    monkeypatch.setattr("tests.faults.disk.File.sync", lambda _file: None)
    trial = Trial(sqlite, "lies")
    while not any("damaged" in each for each in trial.wrong):
        try:
            await trial.work()
        except StoreError:  # it is damaged so much that it cannot even be opened
            break
        assert trial.cuts < 600
