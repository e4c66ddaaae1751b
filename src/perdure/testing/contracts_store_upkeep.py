"""The contract of stores that are looked after by hand: size, vacuum, backup. Above: `contracts.py`."""

import tempfile
from pathlib import Path

from perdure.core.error import PerdureError, Unsupported
from perdure.core.store import Maintained, Post

from .contracts_store_trial import Chapter, LeftOut, Trial, begun, expect, refused, said, survived


def _maintained(trial: Trial) -> Maintained:
    if not isinstance(trial.store, Maintained):
        raise LeftOut("the store is not `Maintained`")
    return trial.store


_BOOKKEEPING = 64 * 1024
"""What a store may write down about what is free, when it has looked."""


async def _it_tells_what_it_takes(trial: Trial) -> None:
    upkeep, store, name = _maintained(trial), trial.store, trial.name
    await begun(store, name + "large", *(f"{number} " + "lantern " * 200 for number in range(10)))
    await begun(store, name + "small", "one")
    await store.fork(name + "large", name + "fork")
    size = await upkeep.size()
    expect(min(size.total_bytes, 1), 1, "a store that holds something takes bytes")
    for what, part in (("free_bytes", size.free_bytes), ("search_bytes", size.search_bytes)):
        expect(0 <= part <= size.total_bytes, expected=True, promise=f"{what} is a part of total_bytes")
    small, large = size.sessions.get(name + "small", 0), size.sessions.get(name + "large", 0)
    expect(0 < small < large, expected=True, promise="a session that holds more takes more")
    shared = size.sessions.get(name + "fork", 0)
    expect(shared < large, expected=True, promise="what a fork shares does not count as its own")
    await store.delete(name + "small")
    expect(name + "small" in (await upkeep.size()).sessions, expected=False, promise="a deleted session takes nothing")


async def _a_vacuum_keeps_everything(trial: Trial) -> None:
    upkeep, store, name = _maintained(trial), trial.store, trial.name
    entries = await begun(store, name + "kept", "one", "two")
    await begun(store, name + "gone", *(f"{number} " + "lantern " * 2_000 for number in range(20)))
    await store.fork(name + "kept", name + "fork", at=1)
    await store.post(name + "kept", Post("p", "steer"))
    lease = await store.acquire(name + "kept")
    await store.delete(name + "gone")
    before = await upkeep.size()
    await survived(upkeep.vacuum(), "vacuum()")
    after = await upkeep.size()
    no_larger = after.total_bytes <= before.total_bytes + _BOOKKEEPING
    expect(no_larger, expected=True, promise="vacuum() makes a store no larger")
    expect(await store.read(name + "kept"), entries, "vacuum() keeps every entry")
    expect(await store.read(name + "fork"), entries[:1], "vacuum() keeps what forks share")
    expect(await store.posts(name + "kept"), [Post("p", "steer")], "vacuum() keeps posts")
    await survived(store.append(lease, said(3, "three"), sync=True), "append() after a vacuum()")


async def _a_backup_is_whole(trial: Trial) -> None:
    upkeep, store, name = _maintained(trial), trial.store, trial.name
    entries = await begun(store, name, "one", "two")
    await store.fork(name, name + "fork", at=1)
    await store.post(name, Post("p", "steer"))
    lease = await store.acquire(name)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "backup")
        try:
            await upkeep.backup(path)
        except Unsupported as reason:
            raise LeftOut(f"the store cannot be backed up in this way: {reason}") from None
        await store.append(lease, said(3, "after the backup"), sync=True)
        await refused(PerdureError, upkeep.backup(path), "backup() to a place where something is")
        if trial.restored is None:
            raise LeftOut("check_store was not told how to open a backup: pass `restored`")
        backup = trial.restored(path)
        try:
            expect(await backup.read(name), entries, "a backup holds every entry")
            expect(await backup.read(name + "fork"), entries[:1], "a backup holds forks")
            expect(await backup.posts(name), [Post("p", "steer")], "a backup holds posts")
            expect([each.session_id for each in await backup.list(prefix=name + "f")], [name + "fork"], "it lists them")
        finally:
            await backup.aclose()


CHAPTERS: tuple[Chapter, ...] = (
    _it_tells_what_it_takes,
    _a_vacuum_keeps_everything,
    _a_backup_is_whole,
)
