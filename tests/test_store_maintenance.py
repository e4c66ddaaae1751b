"""Retention by age, number and size; and bringing a store back."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, ConfigError, Permissions, StoreError, ToolContext, tool
from perdure._runtime.maintenance import delete_sessions, list_expendable_sessions, list_snapshot_digests
from perdure._tools.files.records import FileAccessRecord
from perdure.events import Custom, Entry
from perdure.hosts import SnapshotFolder
from perdure.permissions import allow_all, later
from perdure.stores import (
    MemoryStore,
    StoreSize,
    UnsupportedByStore,
    open_store,
    prune,
    prune_snapshots,
    require_maintainable_store,
    restore,
)
from perdure.testing import FakeClock, ScriptedModel, call
from perdure.tools import FileHistory, coding

DAY = 86_400.0


class MeasuredStore(MemoryStore):
    """A store in memory that counts a hundred bytes for each entry."""

    def __init__(self, **options) -> None:
        super().__init__(**options)
        self.vacuumed = 0

    async def size(self) -> StoreSize:
        sessions = {each.session_id: 100 * (each.entries - each.at) for each in await self.list(limit=1000)}
        return StoreSize(sum(sessions.values()) + 5000, 0, 5000, sessions)

    async def vacuum(self) -> None:
        self.vacuumed += 1

    async def backup(self, path: str) -> None:
        raise UnsupportedByStore(path)


@tool(permission=True)
async def pay() -> str:
    """Pay."""
    return "paid"


@tool
async def order(context: ToolContext[None]) -> str:
    """Order something."""
    return await context.add_to_inbox("delivery", "bread")


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
async def store(clock):
    """Sessions of 0, 1, … 4 days ago, called after their age, each with one entry more than the next older one."""
    store = MeasuredStore(clock=clock)
    for age in (4, 3, 2, 1, 0):
        await begin(store, clock, str(age), entries=5 - age)
        if age:
            await clock.advance(DAY)
    return store


async def begin(store, clock, session_id, entries=1) -> None:
    lease = await store.acquire(session_id)
    written = [Entry(seq, clock.now(), Custom("note", seq), f"{session_id}-{seq}") for seq in range(1, entries + 1)]
    await store.append(lease, written, sync=True)
    await store.release(lease)


async def names(store) -> list[str]:
    return sorted([each.session_id for each in await store.list()])


@pytest.mark.parametrize(
    ("criteria", "removed"),
    [
        ({"older_than_seconds": 2.5 * DAY}, ["4", "3"]),
        ({"older_than_seconds": 2 * DAY}, ["4", "3"]),
        ({"older_than_seconds": 10 * DAY}, []),
        ({"keep": 4}, ["4"]),
        ({"keep": 0}, ["4", "3", "2", "1", "0"]),
        ({"keep": 9}, []),
        ({"max_bytes": 1500}, []),
        ({"max_bytes": 1499}, ["4"]),
        ({"max_bytes": 900}, ["4", "3", "2"]),
        ({"max_bytes": 0}, ["4", "3", "2", "1", "0"]),
        ({"older_than_seconds": 3.5 * DAY, "keep": 3}, ["4", "3"]),
        ({"keep": 4, "max_bytes": 1200}, ["4", "3"]),
    ],
)
async def test_the_oldest_go_first_and_no_more_than_need_be(store, clock, criteria, removed):
    dry = await prune(store, **criteria, now=clock.now(), dry_run=True)
    assert [each.session_id for each in dry] == removed
    assert len(await names(store)) == 5
    assert store.vacuumed == 0
    done = await prune(store, **criteria, now=clock.now())
    assert [each.session_id for each in done] == removed
    assert await names(store) == sorted({"0", "1", "2", "3", "4"} - set(removed))
    assert store.vacuumed == bool(removed)


async def test_a_session_that_is_driven_stays_and_the_next_one_goes(store, clock):
    await store.acquire("4")
    assert [each.session_id for each in await prune(store, keep=3, now=clock.now())] == ["3", "2"]
    assert await names(store) == ["0", "1", "4"]


async def test_a_session_that_was_used_since_it_was_chosen_stays(store, clock):
    chosen = await list_expendable_sessions(store, keep=2, now=clock.now())
    assert [each.session_id for each in chosen] == ["4", "3", "2"]
    lease = await store.acquire("4")
    await clock.advance(1.0)
    await store.append(lease, [Entry(2, clock.now(), Custom("note"), "again")], sync=True)
    await store.release(lease)
    await store.acquire("3")
    assert [each.session_id for each in await delete_sessions(store, chosen)] == ["2"]
    assert await names(store) == ["0", "1", "3", "4"]


@pytest.mark.parametrize("waits", ["question", "inbox"])
async def test_a_session_that_waits_for_an_answer_stays_unless_it_is_asked_for(clock, waits):
    store = MeasuredStore(clock=clock)
    gate = Permissions(handler=later)
    replies = [call("pay")] if waits == "question" else [call("order"), "Ordered."]
    agent = Agent(ScriptedModel(*replies), tools=[pay, order], store=store, permission=gate, clock=clock)
    await agent.session("s").run("Go.")
    assert await prune(store, keep=0, now=clock.now()) == []
    assert [each.session_id for each in await prune(store, keep=0, waiting_too=True, now=clock.now())] == ["s"]


async def test_a_fork_is_as_young_as_the_fork_and_stays_whole(store, clock):
    await store.fork("4", "fork")
    assert [each.session_id for each in await prune(store, older_than_seconds=2.5 * DAY, now=clock.now())] == ["4", "3"]
    assert len(await store.read("fork")) == 1


async def test_a_store_that_cannot_be_measured_can_be_pruned_by_age_and_number(clock):
    store = MemoryStore(clock=clock)
    await begin(store, clock, "a")
    assert len(await prune(store, keep=0, now=clock.now())) == 1
    with pytest.raises(UnsupportedByStore, match="a MemoryStore has no size"):
        await prune(store, max_bytes=1, now=clock.now())


async def test_what_would_remove_everything_or_nothing_is_refused(store, clock):
    with pytest.raises(ConfigError, match="give one of older_than_seconds, keep, max_bytes"):
        await prune(store, now=clock.now())
    for criteria in ({"keep": -1}, {"max_bytes": 1.5}, {"older_than_seconds": -1}, {"older_than_seconds": "30d"}):
        with pytest.raises(ConfigError, match=next(iter(criteria))):
            await prune(store, **criteria, now=clock.now())


# -- real stores -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sqlite", "file"])
async def test_a_real_store_gets_smaller(tmp_path, kind):
    store = open_store(f"{kind}:{tmp_path}/sessions")
    agent = Agent(ScriptedModel("x" * 100_000, repeat_last=True), store=store)
    for number in range(5):
        await agent.session(f"s{number}").run("Write a lot.")
    before = await require_maintainable_store(store).size()
    now = agent.clock.now()
    removed = await prune(store, max_bytes=sum(before.sessions.values()) // 2, now=now)
    after = await require_maintainable_store(store).size()
    assert [each.session_id for each in removed] == ["s0", "s1", "s2"]
    assert set(after.sessions) == {"s3", "s4"}
    assert after.total_bytes < before.total_bytes
    await store.aclose()


@pytest.mark.parametrize("kind", ["sqlite", "file"])
async def test_a_backup_becomes_a_store_again_and_replaces_none(tmp_path, kind):
    spec, again, backup = f"{kind}:{tmp_path}/sessions", f"{kind}:{tmp_path}/deeper/again", str(tmp_path / "backup")
    async with Agent(ScriptedModel("Hello.", repeat_last=True), store=spec) as agent:
        await agent.session("s").run("Hello")
        entries = await agent.store.read("s")
        await require_maintainable_store(agent.store).backup(backup)
    await restore(backup, again)
    restored = open_store(again)
    assert await restored.read("s") == entries
    await restored.aclose()
    with pytest.raises(ConfigError):
        await restore(backup, again)
    with pytest.raises((ConfigError, StoreError)):
        await restore(str(tmp_path / "nothing"), f"{kind}:{tmp_path}/third")
    with pytest.raises((ConfigError, StoreError)):
        await restore(__file__, f"{kind}:{tmp_path}/third")


@pytest.mark.parametrize("spec", ["memory:", "postgresql://localhost/x", "sqlite:", "file://"])
async def test_a_store_without_a_path_cannot_be_restored_to(tmp_path, spec):
    with pytest.raises(UnsupportedByStore, match="cannot be restored from a backup here"):
        await restore(str(tmp_path / "backup"), spec)


# -- contents of files that sessions have changed ----------------------------------------------------------------------

HOUR = 3600.0


@pytest.fixture
def snapshots(tmp_path):
    return SnapshotFolder(tmp_path / "snapshots")


@pytest.fixture
async def change(tmp_path, snapshots):
    """Writes a file in a session of its own."""
    store = MemoryStore()
    (tmp_path / "root").mkdir()

    async def change(session_id: str, path: str, content: str):
        model = ScriptedModel(call("write", path=path, content=content), "Done.")
        extension = coding(tmp_path / "root", snapshots=snapshots, shell=False)
        session = Agent(model, extensions=[extension], permission=allow_all, store=store).session(session_id)
        assert (await session.run("Write.")).status == "done"
        return session

    return change


def stored(snapshots) -> set[bytes]:
    return {each.read_bytes() for each in Path(snapshots.folder).rglob("*") if each.is_file()}


def age(snapshots, seconds: float = 2 * HOUR) -> None:
    """Make everything in the folder older."""
    for each in Path(snapshots.folder).rglob("*"):
        if each.is_file():
            os.utime(each, (each.stat().st_atime, each.stat().st_mtime - seconds))


async def test_what_no_session_needs_for_an_undo_is_removed_with_the_last_that_did(change, snapshots, tmp_path):
    first, second = await change("first", "a", "one"), await change("second", "b", "two")
    third = await change("third", "c", "one")
    fork = await second.fork("fork")
    age(snapshots)
    assert (await prune_snapshots(snapshots, first.store, now=time.time())).count == 0
    await first.store.delete("first")
    await first.store.delete("second")
    assert (await prune_snapshots(snapshots, first.store, now=time.time())).count == 0  # others have the same contents
    await fork.store.delete("fork")
    removed = await prune_snapshots(snapshots, first.store, now=time.time())
    assert (removed.count, removed.size_bytes) == (1, 3)
    assert stored(snapshots) == {b"one"}
    history = FileHistory(third, snapshots)
    assert [each.status for each in await history.undo()] == ["restored"]
    assert [each.status for each in await history.redo()] == ["restored"]
    assert (tmp_path / "root" / "c").read_text() == "one"


async def test_the_digests_of_a_session_are_those_of_its_changes_and_not_of_what_was_read():
    session = Agent(ScriptedModel(), store=MemoryStore()).session("s")
    await session.keep("file:odd", 5)
    await session.keep("file:read", FileAccessRecord("d0"))
    await session.keep("file:changed", FileAccessRecord("d2", "d1", "call"))
    await session.keep("file:new", FileAccessRecord("d3", "", "call"))
    await session.keep("other", FileAccessRecord("d5", "d4", "call"))
    assert await list_snapshot_digests(session.store, "s") == {"d1", "d2", "d3", ""}


async def test_snapshots_are_not_pruned_without_a_store_or_with_a_time_that_is_no_number(snapshots):
    with pytest.raises(ConfigError, match="would remove everything: give the stores that use the folder"):
        await prune_snapshots(snapshots, now=time.time())
    with pytest.raises(ConfigError, match="grace_seconds"):
        await prune_snapshots(snapshots, MemoryStore(), now=time.time(), grace_seconds=-1)


async def test_prune_removes_them_with_the_sessions_and_a_dry_run_does_not(change, snapshots):
    session = await change("first", "a", "one")
    age(snapshots)
    assert len(await prune(session.store, keep=0, now=time.time(), dry_run=True, snapshots=snapshots)) == 1
    assert stored(snapshots) == {b"one"}
    assert len(await prune(session.store, keep=0, now=time.time(), snapshots=snapshots)) == 1
    assert stored(snapshots) == set()


async def test_what_was_stored_just_now_is_kept_because_a_log_may_name_it_soon(change, snapshots):
    session = await change("first", "a", "one")
    await session.store.delete("first")
    assert (await prune_snapshots(snapshots, session.store, now=time.time())).count == 0
    age(snapshots)
    snapshots.save(b"one")  # by a run that has not written its entry yet
    assert (await prune_snapshots(snapshots, session.store, now=time.time())).count == 0
    assert (await prune_snapshots(snapshots, session.store, now=time.time() + 1, grace_seconds=0)).count == 1


def test_what_another_process_stores_while_it_is_found_to_be_unused_is_kept(snapshots):
    digest = snapshots.save(b"one")
    age(snapshots)

    class Meanwhile(frozenset):
        def __contains__(self, each) -> bool:
            assert SnapshotFolder(snapshots.folder).save(b"one") == each
            return False

    assert snapshots.remove_unused(Meanwhile(), stored_before=time.time() - HOUR).count == 0
    assert snapshots.load(digest) == b"one"


async def test_a_session_that_is_used_while_the_sessions_are_listed_keeps_its_contents(change, snapshots, monkeypatch):
    session = await change("first", "a", "one")
    age(snapshots)
    monkeypatch.setattr("perdure._runtime.session.stored._PAGE_SIZE", 1)
    await change("second", "b", "two")
    read = session.store.read

    async def read_and_use(session_id, **more):
        if session_id == "second":  # on the first page; now the other session moves in front of it
            monkeypatch.setattr(session.store, "read", read)
            await session.keep("note", 1)
        return await read(session_id, **more)

    monkeypatch.setattr(session.store, "read", read_and_use)
    assert (await prune_snapshots(snapshots, session.store, now=time.time())).count == 0
    assert b"one" in stored(snapshots)


async def test_a_removal_that_was_cut_off_is_finished_by_the_next(change, snapshots, monkeypatch):
    session = await change("first", "a", "one")
    await change("second", "b", "two")
    kept = await change("third", "c", "three")
    for name in ("first", "second"):
        await session.store.delete(name)
    (Path(snapshots.folder) / "ab").mkdir(exist_ok=True)
    (Path(snapshots.folder) / "ab" / "half.written").write_bytes(b"half")  # by a process that died while it stored
    age(snapshots)
    unlink = os.unlink

    def die(place):
        monkeypatch.setattr(os, "unlink", unlink)
        unlink(place)
        raise KeyboardInterrupt

    monkeypatch.setattr("perdure._io.files.snapshots.os.unlink", die)
    with pytest.raises(KeyboardInterrupt):
        snapshots.remove_unused((), stored_before=time.time() - HOUR * 1.9)
    assert len(stored(snapshots)) == 3
    snapshots.save(b"three")  # in case it was the one that was removed
    await prune_snapshots(snapshots, session.store, now=time.time())
    assert stored(snapshots) == {b"three"}
    assert [each.status for each in await FileHistory(kept, snapshots).undo()] == ["restored"]


async def test_without_stores_or_with_a_damaged_log_nothing_is_removed(change, snapshots, monkeypatch):
    session = await change("first", "a", "one")
    age(snapshots)
    with pytest.raises(ConfigError, match="give the stores that use the folder"):
        await prune_snapshots(snapshots, now=time.time())

    async def fail(session_id, **_):
        raise StoreError(session_id)

    monkeypatch.setattr(session.store, "read", fail)
    with pytest.raises(StoreError):
        await prune_snapshots(snapshots, session.store, now=time.time())
    assert stored(snapshots) == {b"one"}


async def test_what_would_be_pruned_is_listed_without_sessions_that_wait(clock: FakeClock) -> None:
    store = MeasuredStore(clock=clock)
    gate = Permissions(handler=later)
    agent = Agent(ScriptedModel(call("pay")), tools=[pay], store=store, permission=gate, clock=clock)
    await agent.session("s").run("Go.")
    assert await list_expendable_sessions(store, keep=0, now=clock.now()) == []
    listed = await list_expendable_sessions(store, keep=0, waiting_too=True, now=clock.now())
    assert listed == await store.list()


@pytest.mark.parametrize("kind", ["sqlite", "file"])
@pytest.mark.parametrize("form", ["{name}", "./{name}", "{folder}/{name}", "//{folder}/{name}", "~/{name}"])
async def test_a_backup_is_restored_to_the_path_in_the_name_of_the_store(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, kind: str, form: str
) -> None:
    store = require_maintainable_store(open_store(f"{kind}:{tmp_path}/sessions"))
    await begin(store, FakeClock(), "s")
    await store.backup(str(tmp_path / "backup"))
    await store.aclose()  # type: ignore[attr-defined]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    await restore(Path("~/backup"), f"{kind}:{form.format(name='again', folder=tmp_path)}")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["again", "backup", "sessions"]


async def test_only_a_folder_is_the_backup_of_a_store_of_files(tmp_path: Path) -> None:
    (tmp_path / "backup").write_text("mine")
    with pytest.raises(ConfigError) as refused:
        await restore(tmp_path / "backup", f"file:{tmp_path}/again")
    path = str(tmp_path / "backup")
    text = f"{path!r} is no folder, as the backup of a 'file:DIR' store is: name another backup"
    assert str(refused.value) == text
