"""Machines whose power is cut while a store is at work on them. For `test_power.py`.

A workload runs once, to its end, and at moments chosen beforehand somebody looks: what would there be, had the power
been cut now? That is a cut. The machine then starts again with what each cut has left, and nothing else.
"""

import itertools
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple, Protocol

import apsw

from perdure._stores.sqlite.format.pages import find_checksum_vfs
from perdure._stores.sqlite.write import jobs
from perdure.stores import SqliteStore, Store, open_store
from tests.faults.calls import Calls
from tests.faults.disk import Disk, Images
from tests.faults.power import NAME, Power
from tests.faults.witness import Record
from tests.seeds import chance

DATABASE = "sessions.db"

CHANGES = frozenset({"write", "sync", "truncate", "delete", "rename"})
"""Operations before which the power can be cut. Before others it would make no difference."""


class Cut(NamedTuple):
    """What there is when the power has been cut."""

    moment: int
    book: Sequence[Record]
    """What the store had been asked for, and had acknowledged."""
    effects: Sequence[tuple[str, str]]
    """What had happened in the outside world."""
    images: Images
    """What the disk holds."""


NEW = Cut(0, (), (), {})
"""An empty disk, before anything has happened."""


class World:
    """What outlives a machine: what was promised there, what was done there."""

    def __init__(self, book: Sequence[Record] = (), effects: Sequence[tuple[str, str]] = ()) -> None:
        self.book = [*book]
        self.effects = [*effects]
        """Tool and idempotency key of each effect, in order."""


class Machine(Protocol):
    """A computer on which one kind of store works."""

    def start(self, images: Images) -> Disk:
        """Its disk, with these files on it."""
        ...

    def open(self, disk: Disk) -> Store:
        """A store on that disk."""
        ...

    def damage(self, disk: Disk) -> list[str]:
        """What is wrong with the files, now that the store is closed."""
        ...

    def stop(self, disk: Disk) -> None:
        """Throw the disk away."""


class Room:
    """Where disks are put: in memory, if there is such a place, so that nothing waits for a real one."""

    def __init__(self) -> None:
        memory = Path("/dev/shm")
        self._folder = Path(tempfile.mkdtemp(prefix="perdure-outage-", dir=memory if memory.is_dir() else None))
        self._given = itertools.count(1)

    def folder(self) -> Path:
        """One that nobody has had."""
        return self._folder / str(next(self._given))

    def clear(self) -> None:
        """Throw everything away."""
        shutil.rmtree(self._folder)


class SqliteMachine:
    """Keeps sessions in SQLite, on a disk that each store finds quick at once, soon, or never."""

    QUICK_AFTER = (0, 2, 10**9)

    def __init__(self) -> None:
        self._power = Power.get()
        self._power.turn_on()
        self._room = Room()
        self._chance = chance("pace of the disk")
        self._pace = {"QUICK_SYNCS": jobs.QUICK_SYNCS, "QUICK_SECONDS": jobs.QUICK_SECONDS}
        vars(jobs).update(QUICK_SECONDS=60)

    def __str__(self) -> str:
        return "SQLite"

    def start(self, images: Images) -> Disk:
        return self._power.disk(self._room.folder(), images)

    def open(self, disk: Disk) -> Store:
        vars(jobs).update(QUICK_SYNCS=self._chance.choice(self.QUICK_AFTER))
        return SqliteStore(disk.folder / DATABASE, vfs=NAME)

    def damage(self, disk: Disk) -> list[str]:
        disk.check()
        connection = apsw.Connection(str(disk.folder / DATABASE), vfs=find_checksum_vfs(NAME))
        try:
            verdicts = [row[0] for row in connection.execute("PRAGMA integrity_check")]
            return [f"damaged: {verdict}" for verdict in verdicts if verdict != "ok"]
        except apsw.Error as error:
            return [f"damaged: {error}"]
        finally:
            connection.close()

    def stop(self, disk: Disk) -> None:
        self._power.forget(disk)
        shutil.rmtree(disk.folder)

    def close(self) -> None:
        """No store is left."""
        vars(jobs).update(self._pace)
        self._power.turn_off()
        self._room.clear()


class FileMachine:
    """Keeps sessions in files."""

    def __init__(self) -> None:
        self._calls = Calls()
        self._room = Room()

    def __str__(self) -> str:
        return "files"

    def start(self, images: Images) -> Disk:
        return self._calls.disk(self._room.folder(), images)

    def open(self, disk: Disk) -> Store:
        return open_store(f"file:{disk.folder}")

    def damage(self, disk: Disk) -> list[str]:
        disk.check()
        return []

    def stop(self, disk: Disk) -> None:
        self._calls.forget(disk)
        shutil.rmtree(disk.folder)

    def close(self) -> None:
        """No store is left."""
        self._calls.undo()
        self._room.clear()


@contextmanager
def watched(disk: Disk, world: World, chance: Random, often: float = 1.0) -> Iterator[list[Cut]]:
    """The cuts at moments that chance chooses: above all where something becomes certain, and where it just has."""
    cuts: list[Cut] = []
    changes = 0
    before = ""

    def look(kind: str) -> None:
        nonlocal changes, before
        if kind not in CHANGES:
            return
        changes += 1
        likely = 0.25 if {kind, before} != {"write"} else 0.03
        before = kind
        if chance.random() < likely * often:
            # The promises first: what was promised before this moment is what has to be there.
            promised = (tuple(world.book), tuple(world.effects))
            cuts.append(Cut(changes, *promised, disk.after_cut(chance)))

    disk.before_each = look
    try:
        yield cuts
    finally:
        disk.before_each = lambda _kind: None
