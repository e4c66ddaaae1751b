"""Tests in `check_store`: the reported sizes are right, and vacuum and backup lose nothing."""

import tempfile
from pathlib import Path

from perdure._core.log.store import MaintainableStore, Post
from perdure._core.values.error import PerdureError, UnsupportedByStore

from .setup import (
    CheckSkipped,
    StoreCheck,
    StoreUnderTest,
    build_user_entries,
    expect_equal,
    expect_error,
    expect_no_error,
    store_session,
)


def _get_maintained_store(trial: StoreUnderTest) -> MaintainableStore:
    if not isinstance(trial.store, MaintainableStore):
        raise CheckSkipped("the store is not `MaintainableStore`")
    return trial.store


_BOOKKEEPING = 64 * 1024
"""Bytes that a store may write about free space when it is measured."""


async def _it_tells_what_it_takes(trial: StoreUnderTest) -> None:
    upkeep, store, name = _get_maintained_store(trial), trial.store, trial.name
    await store_session(store, name + "large", *(f"{number} " + "lantern " * 200 for number in range(10)))
    await store_session(store, name + "small", "one")
    await store.fork(name + "large", name + "fork")
    size = await upkeep.size()
    expect_equal(min(size.total_bytes, 1), 1, "a store that holds something takes bytes")
    for what, part in (("free_bytes", size.free_bytes), ("search_bytes", size.search_bytes)):
        expect_equal(0 <= part <= size.total_bytes, expected=True, promise=f"{what} is a part of total_bytes")
    small, large = size.sessions.get(name + "small", 0), size.sessions.get(name + "large", 0)
    expect_equal(0 < small < large, expected=True, promise="a session that holds more takes more")
    shared = size.sessions.get(name + "fork", 0)
    expect_equal(shared < large, expected=True, promise="what a fork shares does not count as its own")
    await store.delete(name + "small")
    expect_equal(
        name + "small" in (await upkeep.size()).sessions, expected=False, promise="a deleted session takes nothing"
    )


async def _a_vacuum_keeps_everything(trial: StoreUnderTest) -> None:
    upkeep, store, name = _get_maintained_store(trial), trial.store, trial.name
    await expect_no_error(upkeep.vacuum(), "vacuum()")  # what others have left in a shared database is done with
    entries = await store_session(store, name + "kept", "one", "two")
    await store_session(store, name + "gone", *(f"{number} " + "lantern " * 2_000 for number in range(20)))
    await store.fork(name + "kept", name + "fork", at=1)
    await store.post(name + "kept", Post("p", "steer"))
    lease = await store.acquire(name + "kept")
    await store.delete(name + "gone")
    before = await upkeep.size()
    await expect_no_error(upkeep.vacuum(), "vacuum()")
    after = await upkeep.size()
    no_larger = after.total_bytes <= before.total_bytes + _BOOKKEEPING
    expect_equal(no_larger, expected=True, promise="vacuum() makes a store no larger")
    expect_equal(await store.read(name + "kept"), entries, "vacuum() keeps every entry")
    expect_equal(await store.read(name + "fork"), entries[:1], "vacuum() keeps what forks share")
    expect_equal(await store.posts(name + "kept"), [Post("p", "steer")], "vacuum() keeps posts")
    await expect_no_error(store.append(lease, build_user_entries(3, "three"), sync=True), "append() after a vacuum()")


async def _a_backup_is_whole(trial: StoreUnderTest) -> None:
    upkeep, store, name = _get_maintained_store(trial), trial.store, trial.name
    entries = await store_session(store, name, "one", "two")
    await store.fork(name, name + "fork", at=1)
    await store.post(name, Post("p", "steer"))
    lease = await store.acquire(name)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "backup")
        try:
            await upkeep.backup(path)
        except UnsupportedByStore as reason:
            raise CheckSkipped(f"the store cannot be backed up in this way: {reason}") from None
        await store.append(lease, build_user_entries(3, "after the backup"), sync=True)
        await expect_error(PerdureError, upkeep.backup(path), "backup() to a place where something is")
        if trial.restored is None:
            raise CheckSkipped("check_store was not told how to open a backup: pass `restored`")
        backup = trial.restored(path)
        try:
            expect_equal(await backup.read(name), entries, "a backup holds every entry")
            expect_equal(await backup.read(name + "fork"), entries[:1], "a backup holds forks")
            expect_equal(await backup.posts(name), [Post("p", "steer")], "a backup holds posts")
            expect_equal(
                [each.session_id for each in await backup.list(prefix=name + "f")], [name + "fork"], "it lists them"
            )
        finally:
            await backup.aclose()


CHECKS: tuple[StoreCheck, ...] = (
    _it_tells_what_it_takes,
    _a_vacuum_keeps_everything,
    _a_backup_is_whole,
)
