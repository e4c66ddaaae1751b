"""Forks in an SQLite file, and what is left of what was deleted or redacted: nothing."""

from typing import Any

import pytest

from perdure import Agent, SessionBusy, SessionExists, SessionNotFound, user
from perdure._core.log.store import ForkListingStore
from perdure._stores.sqlite.format import merging as sqlite_merge
from perdure.events import Custom, Entry, MessageAdded, SessionConfigured
from perdure.stores import Conflict, Fenced, Lease, Post, SqliteStore, listened, namespaced
from perdure.testing import ScriptedModel
from tests.stores.material import another_connection, entries

SECRET = "kestrel-over-the-harbour"
CLEAN = MessageAdded(user("taken out"))


def bytes_of(path) -> bytes:
    """Everything that lies beside one another there."""
    return b"".join(place.read_bytes() for place in sorted(path.parent.iterdir()) if place.is_file())


def secret(number) -> str:
    return f"{SECRET}-{number:04}"


def said(seq, text):
    return Entry(seq, float(seq), MessageAdded(user(text)), f"w-{seq}")


async def session(store, session_id, texts, first=1):
    lease = await store.acquire(session_id)
    for seq, text in enumerate(texts, first):
        await store.append(lease, [said(seq, text)], sync=False)
    return lease


# -- forks -------------------------------------------------------------------------------------------------------------


async def test_a_hundred_forks_take_next_to_nothing(path, store):
    lease = await session(store, "s", [f"{number} " + "x" * 1000 for number in range(300)])
    await store.release(lease)
    await store.vacuum()
    before = path.stat().st_size
    for number in range(100):
        await store.fork("s", f"fork {number}")
    await store.vacuum()
    assert path.stat().st_size < before * 1.1
    assert await store.read("fork 99") == await store.read("s")


async def test_what_forks_share_is_freed_with_the_last_of_them(path, store):
    lease = await session(store, "s", [secret(number) for number in range(1, 11)])
    await store.release(lease)
    await store.fork("s", "a", at=8)
    await store.fork("a", "b", at=3)
    grown = await session(store, "b", [secret(40), secret(50)], first=4)
    await store.release(grown)
    await store.delete("s")
    assert [entry.seq for entry in await store.read("a")] == [*range(1, 9)]
    left = bytes_of(path)
    assert [secret(number).encode() in left for number in (1, 8, 9, 10)] == [True, True, False, False]
    await store.delete("a")
    left = bytes_of(path)
    assert [secret(number).encode() in left for number in (1, 3, 4, 8)] == [True, True, False, False]
    assert [entry.event.message.text for entry in await store.read("b")] == [
        *[secret(number) for number in (1, 2, 3)],
        secret(40),
        secret(50),
    ]
    await store.delete("b")
    assert SECRET.encode() not in bytes_of(path)
    with another_connection(path) as connection:
        for table in ("session", "pack", "label", "blob", "post"):
            assert connection.execute(f"SELECT count(*) FROM {table}").get == 0, table


# -- no byte is left ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("released", [True, False])
@pytest.mark.parametrize("size", [1, 100, 3000])
async def test_a_redacted_entry_leaves_no_byte(path, store, monkeypatch, released, size):
    monkeypatch.setattr(sqlite_merge, "MERGED_ROW_BYTES", 10_000)
    texts = [f"{secret(number)} " + "x" * 300 for number in range(1, 41)]
    texts[6] = texts[20] = "\n".join([secret(7)] * size)
    await store.post("s", Post("w-7", "steer", secret(7)))
    lease = await session(store, "s", texts)
    if released:
        await store.release(lease)
        lease = await store.acquire("s")
    await store.fork("s", "fork", at=30)
    await store.append(lease, [Entry(41, 1.0, SessionConfigured({"title": secret(7)}), "w-41")], sync=False)
    for seq in (7, 21, 41):
        await store.redact(lease, Entry(seq, 1.0, CLEAN, f"w-{seq}"))
    assert secret(7).encode() not in bytes_of(path)
    assert secret(8).encode() in bytes_of(path)
    texts[6] = texts[20] = "taken out"
    assert [entry.event.message.text for entry in await store.read("s")] == [*texts, "taken out"]
    assert [entry.event.message.text for entry in await store.read("fork")] == texts[:30]
    assert [entry.id for entry in await store.read("s")] == [f"w-{seq}" for seq in range(1, 42)]
    assert {info.title for info in await store.list()} == {texts[0][:80].rstrip()}
    await store.append(lease, [said(42, "more")], sync=True)
    assert len(await store.read("s")) == 42


async def test_a_fork_redacts_what_it_shares(path, store):
    lease = await session(store, "s", [secret(1), secret(2)])
    await store.fork("s", "fork")
    fork = await store.acquire("fork")
    await store.redact(fork, Entry(1, 1.0, CLEAN, "another id"))
    assert secret(1).encode() not in bytes_of(path)
    assert [entry.id for entry in await store.read("s")] == ["another id", "w-2"]
    await store.append(lease, [said(3, "goes on")], sync=False)
    assert await store.post("s", Post("w-1", "steer"))
    assert not await store.post("s", Post("another id", "steer"))


async def test_a_deleted_session_leaves_no_byte(path, store):
    kept = await session(store, "kept", [f"kept {number} " + "y" * 700 for number in range(30)])
    await store.post("s", Post("p", "steer", secret(1)))
    lease = await session(store, "s", [secret(number) * 40 for number in range(60)])
    await store.append(kept, [said(31, "kept too")], sync=False)
    await store.append(lease, [Entry(61, 1.0, Custom("long", "\n".join([secret(9)] * 3000)), "w-61")], sync=True)
    assert SECRET.encode() in bytes_of(path)
    await store.release(lease)
    await store.delete("s")
    assert SECRET.encode() not in bytes_of(path)
    assert len(await store.read("kept")) == 31


async def test_nothing_of_it_is_left_when_rows_were_moved_before(path, store, monkeypatch):
    """A row that is merged, split and merged again leaves no older copy of itself anywhere."""
    monkeypatch.setattr(sqlite_merge, "MERGED_ROW_BYTES", 3000)
    for turn in range(6):
        for name in ("a", "b", "c"):
            head = len(await store.read(name))
            lease = await session(store, name, [f"{SECRET}-{name}-{turn} " + "z" * (50 * turn)] * 5, first=head + 1)
            await store.redact(lease, Entry(head + 2, 1.0, CLEAN, f"w-{head + 2}"))
            await store.release(lease)
    for name in ("a", "b", "c"):
        assert f"{SECRET}-{name}".encode() in bytes_of(path)
        await store.delete(name)
        assert f"{SECRET}-{name}".encode() not in bytes_of(path)


# -- which forks there are ---------------------------------------------------------------------------------------------


async def test_the_forks_of_a_session_are_found_by_an_index_and_not_in_a_list_of_all(store, monkeypatch):
    lease = await store.acquire("team/s")
    await store.append(lease, entries(1, 3), sync=True)
    await store.fork("team/s", "team/first", at=2)
    await store.fork("team/s", "elsewhere", at=3)
    await store.fork("team/first", "team/grandchild")
    agent = Agent(ScriptedModel("Hi."), store=store)
    monkeypatch.setattr(store, "list", None)
    assert {each.session_id for each in await agent.session("team/s").forks()} == {"team/first", "elsewhere"}
    assert await agent.session("unknown").forks() == []
    for wrapped in (namespaced(store, "team"), namespaced(listened(store, lambda *_: None), "team")):
        assert isinstance(wrapped, ForkListingStore)
        (info,) = await wrapped.forks("s")
        assert (info.session_id, info.parent, info.at) == ("first", "s", 2)


@pytest.mark.parametrize("seq", [1, 7, 20])
async def test_every_id_of_a_merged_row_is_known_after_one_of_its_entries_was_redacted(
    path: Any, store: SqliteStore, monkeypatch: pytest.MonkeyPatch, seq: int
) -> None:
    monkeypatch.setattr(sqlite_merge, "MERGED_ROW_BYTES", 200)
    await store.release(await session(store, "s", ["x"] * 20))
    lease = await store.acquire("s")
    await store.redact(lease, Entry(seq, 1.0, CLEAN, "another"))
    ids = [f"w-{each}" for each in range(1, 21) if each != seq]
    assert [await store.post("s", Post(each, "steer")) for each in ["another", *ids]] == [False] * 20
    with another_connection(path) as connection:
        firsts = [each for (each,) in connection.execute("SELECT first FROM pack ORDER BY last").fetchall()]
        labels = connection.execute("SELECT min(seq), sum(last - first + 1) FROM label").get
        sealed = connection.execute("SELECT sealed FROM session").get
    assert seq in firsts
    assert labels == (1, sealed)
    assert await store.post("s", Post(f"w-{seq}", "steer"))


async def test_entries_that_cannot_be_redacted_are_told_and_nothing_is_changed(store: SqliteStore) -> None:
    lease = await session(store, "s", ["one", "two"])
    for seq in (0, 3):
        with pytest.raises(Conflict) as refused:
            await store.redact(lease, Entry(seq, 1.0, CLEAN, "w-9"))
        assert str(refused.value) == (
            f"session 's' has 2 entries and none numbered {seq}: read it again, and redact one that it has"
        )
    for lost in (Lease("s", lease.fence + 1), Lease("none", 1)):
        with pytest.raises(Fenced) as fenced:
            await store.redact(lost, Entry(1, 1.0, CLEAN, "w-1"))
        assert str(fenced.value) == (
            f"session {lost.session_id!r} has changed hands since this driver got it: stop, and open it again"
        )
    assert await store.read("s") == [said(1, "one"), said(2, "two")]


async def test_a_fork_that_is_not_possible_is_told_and_makes_nothing(store: SqliteStore) -> None:
    await session(store, "s", ["one", "two"])
    await store.acquire("empty")
    for missing in ("none", "empty"):
        with pytest.raises(SessionNotFound) as unknown:
            await store.fork(missing, "new")
        assert str(unknown.value) == f"there is no session {missing!r} to fork: list() shows which there are"
    await store.fork("s", "first", at=1)
    with pytest.raises(SessionExists) as taken:
        await store.fork("s", "first")
    assert str(taken.value) == "there is a session 'first' already: fork 's' to another id"
    infos = {
        info.session_id: (info.entries, info.updated_at, info.title, info.parent, info.at)
        for info in await store.list()
    }
    assert infos == {"s": (2, 2.0, "one", "", 0), "first": (1, 1.0, "one", "s", 1)}


async def test_a_deleted_session_begins_anew_with_a_higher_fence_and_without_its_posts(store: SqliteStore) -> None:
    lease = await session(store, "s", ["one"])
    await store.post("s", Post("p", "steer"))
    await store.post("other", Post("p", "steer"))
    with pytest.raises(SessionBusy):
        await store.delete("s")
    await store.release(lease)
    await store.delete("s")
    await store.delete("s")  # which is not there any more
    assert (await store.posts("s"), await store.posts("other")) == ([], [Post("p", "steer")])
    assert await store.acquire("s") == Lease("s", lease.fence + 1)
    assert await store.read("s") == []
