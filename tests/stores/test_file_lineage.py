"""Forks in a store of files: what they share, what stays for them, and what goes with the last of them."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure import SessionBusy, SessionExists, SessionNotFound, StoreError, user
from perdure._stores.file import folder as sessions_folder
from perdure._stores.file.catalogue import SessionCatalogue
from perdure._stores.file.forks import is_parent_alive
from perdure._stores.file.layout import encode_line
from perdure._stores.file.lock import take_lock
from perdure._stores.file.scan import Header, encode_header
from perdure.events import Custom, Entry, MessageAdded, SessionConfigured
from perdure.stores import Conflict, FileStore
from tests.seeds import SEED
from tests.stores.material import child, entries


async def keep(store, session_id, count=4, first=1):
    lease = await store.acquire(session_id)
    await store.append(lease, entries(first, count), sync=True)
    await store.release(lease)


def names(folder) -> list[str]:
    """The files in a folder, without locks."""
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def trunks(folder) -> list:
    return list(folder.glob("=*.shared"))


def clean(seq: int) -> Entry:
    return Entry(seq, 1.0, Custom("clean"), f"e-{seq}")


# -- what is shared ----------------------------------------------------------------------------------------------------


async def test_the_file_of_a_fork_names_its_parent_and_holds_nothing_else(folder, files):
    await keep(files, "s")
    await files.fork("s", "t", at=3)
    header, rest = (folder / "t.session").read_bytes().split(b"\n")
    assert rest == b""
    assert b'"format":1,"id":"t"' in header
    assert b'"parent":"s"' in header
    assert b'"at":3}' in header
    assert names(folder) == ["s.forked", "s.session", "t.session"]


async def test_a_hundred_forks_take_little_more_than_one_session(folder, files, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)
    lease = await files.acquire("s")
    await files.append(lease, [Entry(seq, 1.0, Custom("x" * 500), f"e-{seq}") for seq in range(1, 1001)], sync=True)
    for number in range(100):
        await files.fork("s", f"t{number}")
    one = (folder / "s.session").stat().st_size
    assert sum(path.stat().st_size for path in folder.glob("*.session")) < 1.2 * one


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to see what is open")
async def test_what_a_fork_relies_on_is_on_the_disk_before_it(folder, files, monkeypatch):
    lease = await files.acquire("s")
    await files.append(lease, entries(1), sync=False)
    synced: list[str] = []

    def sync(descriptor):
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    monkeypatch.setattr(os, "fdatasync", sync)
    await files.fork("s", "t")
    assert synced[:2] == ["s.session", "s.forked"]
    assert synced[2].startswith("t.session.")


async def test_a_fork_that_was_read_before_is_read_again_through_its_parent(folder, files, files_at):
    await keep(files, "s")
    await files.fork("s", "t", at=2)
    lease = await files.acquire("t")
    assert await files.read("t") == entries(1, 2)
    assert await files.read("t", after=1) == entries(2)
    await files.append(lease, entries(3), sync=False)
    await files.release(lease)
    lease = await files.acquire("t")
    await files.append(lease, entries(4), sync=False)
    assert await files_at(folder).read("t") == entries(1, 4)


async def test_a_session_that_is_open_and_empty_is_not_forked_into(files):
    await keep(files, "s")
    await files.acquire("t")
    with pytest.raises(SessionExists, match=r"there is a session 't' already.*is being driven by process"):
        await files.fork("s", "t")


@pytest.mark.parametrize("is_opened_again", [False, True])
async def test_a_session_that_is_deleted_while_it_is_forked_is_not_found(folder, files, monkeypatch, is_opened_again):
    await keep(files, "s")
    lock = take_lock

    async def delete() -> None:
        other = FileStore(folder)
        await other.delete("s")
        if is_opened_again:
            await other.acquire("s")
        await other.aclose()

    def delete_and_lock(place):
        monkeypatch.setattr(sessions_folder, "take_lock", lock)
        asyncio.run(delete())
        return lock(place)

    monkeypatch.setattr(sessions_folder, "take_lock", delete_and_lock)
    with pytest.raises(SessionNotFound, match="there is no session 's' to fork"):
        await files.fork("s", "t")
    assert await files.list() == []
    assert not (folder / "t.session").exists()
    await keep(files, "t")  # the id is free


async def test_a_title_comes_from_what_is_shared_unless_the_fork_has_its_own(files):
    lease = await files.acquire("s")
    said = [Entry(1, 1.0, MessageAdded(user("hello")), "e-1"), Entry(2, 2.0, SessionConfigured({"title": "A"}), "e-2")]
    await files.append(lease, said, sync=True)
    await files.fork("s", "one", at=1)
    await files.fork("s", "two")
    await files.append(lease, [Entry(3, 3.0, SessionConfigured({"title": "B"}), "e-3")], sync=True)
    infos = {info.session_id: (info.title, info.entries, info.updated_at) for info in await files.list()}
    assert infos == {"s": ("B", 3, 3.0), "one": ("hello", 1, 1.0), "two": ("A", 2, 2.0)}


async def test_a_name_in_the_middle_of_a_large_session_is_found(files):
    lease = await files.acquire("s")
    large = [Entry(seq, 1.0, Custom("x" * 400_000), f"e-{seq}") for seq in range(1, 7)]
    large[3] = Entry(4, 1.0, SessionConfigured({"title": "the name"}), "e-4")
    await files.append(lease, large, sync=False)
    assert (await files.info("s")).title == "the name"


async def test_forks_that_name_each_other_are_read_to_an_end(folder, files):
    folder.mkdir()
    for name, other in (("a", "b"), ("b", "a")):
        header = Header("session-file", 1, name, "", "", 1.0, name * 32, other, other * 32, 5)
        (folder / f"{name}.session").write_bytes(encode_header(header))
    assert await files.read("a") == []
    assert await files.list() == []


# -- what stays --------------------------------------------------------------------------------------------------------


async def test_a_deleted_parent_leaves_what_its_forks_need_and_no_more(folder, files, files_at):
    await keep(files, "s", 4)
    await files.fork("s", "one", at=1)
    await files.fork("s", "three", at=3)
    await files.delete("s")
    (trunk,) = trunks(folder)
    assert [number in trunk.read_bytes() for number in (b'"e-3"', b'"e-4"')] == [True, False]
    assert await files_at(folder).read("three") == entries(1, 3)
    await files.delete("three")
    assert [number in trunk.read_bytes() for number in (b'"e-1"', b'"e-2"')] == [True, False]
    assert await files.read("one") == entries(1)
    await files.delete("one")
    assert list(folder.iterdir()) == []


async def test_what_is_left_of_a_chain_goes_with_its_last_fork(folder, files):
    await keep(files, "a", 4)
    await files.fork("a", "b", at=3)
    await keep(files, "b", 2, first=4)
    await files.fork("b", "c", at=2)
    await files.delete("a")
    await files.delete("b")
    assert await files.read("c") == entries(1, 2)
    assert not any(b'"e-3"' in path.read_bytes() for path in folder.iterdir())
    await files.delete("c")
    assert list(folder.iterdir()) == []


async def test_a_fork_can_be_driven_while_its_parent_is_deleted(files):
    await keep(files, "s")
    await files.fork("s", "t", at=2)
    lease = await files.acquire("t")
    await files.delete("s")
    await files.append(lease, entries(3), sync=True)
    assert await files.read("t") == entries(1, 3)


async def test_a_new_session_of_the_same_id_is_not_the_parent(folder, files):
    await keep(files, "s")
    await files.fork("s", "t", at=2)
    await files.delete("s")
    await keep(files, "s", 1)
    assert await files.read("t") == entries(1, 2)
    assert (await files.info("t")).parent == ""
    await files.fork("s", "u")
    await files.delete("s")
    assert len(trunks(folder)) == 2
    assert [len(await files.read(name)) for name in ("t", "u")] == [2, 1]


async def test_a_parent_whose_header_was_damaged_is_still_known_by_its_forks(folder, files, files_at, caplog):
    await keep(files, "s")
    await files.fork("s", "t", at=2)
    content = (folder / "s.session").read_bytes()
    (folder / "s.session").write_bytes(b"x" + content[1:])
    assert await files_at(folder).read("t") == entries(1, 2)
    other = files_at(folder)
    await other.release(await other.acquire("s"))
    assert await other.read("t") == entries(1, 2)
    await other.delete("s")
    assert await other.read("t") == entries(1, 2)
    assert "was damaged" in caplog.text


async def test_nothing_is_thrown_away_while_a_file_cannot_say_what_it_shares(folder, files, caplog):
    await keep(files, "s")
    for name in ("t", "u"):
        await files.fork("s", name, at=2)
    content = (folder / "u.session").read_bytes()
    (folder / "u.session").write_bytes(b"x" + content[1:])
    await files.delete("s")
    await files.delete("t")
    assert len(trunks(folder)) == 1
    assert "is kept as it is" in caplog.text
    (folder / "u.session").write_bytes(content)
    assert await files.read("u") == entries(1, 2)


async def test_a_parent_that_has_lost_what_is_shared_is_told(folder, files, files_at, caplog):
    await keep(files, "s", 4)
    await files.fork("s", "t")
    os.truncate(folder / "s.session", (folder / "s.session").stat().st_size - 5)
    assert await files_at(folder).read("t") == entries(1, 3)
    assert "s.session' was damaged" in caplog.text
    assert "entries are missing: 4" in caplog.text
    caplog.clear()
    (folder / "s.session").unlink()
    assert await files_at(folder).read("t") == []
    assert "entries are missing: 1 to 4" in caplog.text


async def test_a_file_of_a_newer_version_keeps_what_it_may_share(folder, files):
    await keep(files, "s")
    await files.fork("s", "t")
    (folder / "new.session").write_bytes(encode_line(b'{"perdure":"session-file","format":9}', 0))
    await files.delete("s")
    await files.delete("t")
    assert len(trunks(folder)) == 1
    with pytest.raises(StoreError, match="upgrade perdure"):
        await files.delete("new")


async def test_a_second_name_that_was_left_of_a_parent_costs_its_forks_nothing(folder, files):
    """Somebody was killed while redacting it, before anything had changed."""
    await keep(files, "s", 3)
    await files.fork("s", "t", at=3)
    (folder / "s.session.00.erase").hardlink_to(folder / "s.session")
    await files.delete("s")
    assert await files.read("t") == entries(1, 3)
    assert not list(folder.glob("*.erase"))


# -- redaction ---------------------------------------------------------------------------------------------------------


async def test_what_is_shared_is_redacted_where_it_lies(folder, files):
    await keep(files, "a", 3)
    await files.fork("a", "b", at=3)
    await keep(files, "b", 1, first=4)
    await files.fork("b", "c")
    lease = await files.acquire("c")
    await files.redact(lease, clean(2))
    await files.redact(lease, clean(4))
    assert await files.read("c") == [*entries(1), clean(2), *entries(3), clean(4)]
    assert await files.read("a") == [*entries(1), clean(2), *entries(3)]
    assert not any(b'"data":2' in path.read_bytes() for path in folder.iterdir())
    await files.acquire("a")  # nothing has been left held


async def test_what_a_deleted_session_has_left_is_redacted_however_far_up(folder, files):
    await keep(files, "a", 3)
    await files.fork("a", "b")
    await files.fork("b", "c")
    await files.delete("a")
    await files.delete("b")
    lease = await files.acquire("c")
    await files.redact(lease, clean(2))
    assert await files.read("c") == [*entries(1), clean(2), *entries(3)]
    assert not any(b'"data":2' in path.read_bytes() for path in folder.iterdir())


async def test_what_is_shared_with_a_session_that_others_drive_is_not_redacted(folder, files, files_at):
    await keep(files, "s")
    await files.fork("s", "t")
    await files_at(folder).acquire("s")
    lease = await files.acquire("t")
    with pytest.raises(SessionBusy, match="session 's' is being driven by process"):
        await files.redact(lease, clean(1))
    assert await files.read("t") == entries(1, 4)


def test_whoever_is_killed_while_redacting_forking_or_deleting_leaves_all_in_order(folder):
    async def begin():
        store = FileStore(folder)
        await keep(store, "s", 5)
        await store.fork("s", "kept", at=4)
        await store.aclose()

    async def check():
        store = FileStore(folder)
        lease = await store.acquire("s")
        for name, count in (("s", 5), ("kept", 4)):
            found = await store.read(name)
            assert [entry.id for entry in found] == [f"e-{seq}" for seq in range(1, count + 1)]
        for info in await store.list(prefix="fork-"):
            assert len(await store.read(info.session_id)) == 3
        for seq in (2, 4):
            await store.redact(lease, clean(seq))
        await store.release(lease)
        for seq in (2, 4):
            assert not any(b'"name":"data","data":%d}' % seq in path.read_bytes() for path in folder.iterdir())
        for info in [*await store.list()]:
            await store.delete(info.session_id)
        await store.aclose()

    asyncio.run(begin())
    rounds = 25
    with child("kill_redactions", folder, rounds, SEED, programs="file_children") as process:
        output, errors = process.communicate(timeout=50)
    assert output.split() == [str(number) for number in range(rounds)], errors
    asyncio.run(check())
    left = [path for path in folder.iterdir() if path.suffix in {".session", ".shared", ".posts"}]
    assert left == []


async def test_a_fork_keeps_its_beginning_when_another_file_lies_in_its_parents_place(folder, files):
    await keep(files, "s")
    await files.fork("s", "t", at=3)
    await files.delete("s")
    (folder / "s.session").write_bytes(b"no header at all")
    assert await files.read("t") == entries(1, 3)
    info = await files.info("t")
    assert info is not None
    assert info.parent == ""


async def test_the_damage_of_a_parent_is_told_once_and_as_what_it_is_when_its_fork_is_read(
    folder, files, files_at, caplog
):
    await keep(files, "s")
    await files.fork("s", "t", at=3)
    content = (folder / "s.session").read_bytes()
    (folder / "s.session").write_bytes(content.replace(b'"e-2"', b'"e-?"'))
    other = files_at(folder)
    for _ in range(2):
        assert [entry.seq for entry in await other.read("t")] == [1, 3]
    (warning,) = caplog.messages
    assert "s.session' was damaged: " in warning
    assert "stay there until the session is driven again; entries are missing: 2" in warning


async def test_a_fork_whose_parent_is_gone_without_a_trace_misses_what_it_shared(folder, files, caplog):
    await keep(files, "s")
    await files.fork("s", "t", at=3)
    (folder / "s.session").unlink()
    assert (await files.info("t"), await files.read("t")) == (None, [])
    assert ".shared' was damaged: entries are missing: 1 to 3" in caplog.text


@pytest.mark.parametrize("fate", ["damaged", "gone"])
async def test_a_shared_entry_that_is_lost_cannot_be_redacted(folder: Any, files: FileStore, fate: str) -> None:
    await keep(files, "s", 3)
    await files.fork("s", "t")
    await files.delete("s")
    (trunk,) = trunks(folder)
    content = trunk.read_bytes()
    lines = content.splitlines(keepends=True)
    lease = await files.acquire("t")
    if fate == "damaged":
        trunk.write_bytes(b"".join([*lines[:2], lines[2].replace(b"data", b"dada"), *lines[3:]]))
        head = 3
    else:
        trunk.unlink()
        head = 0
    with pytest.raises(Conflict) as refused:
        await files.redact(lease, clean(2))
    text = f"session 't' has {head} entries and none numbered 2: read it again, and redact one it has"
    assert str(refused.value) == text


async def test_a_session_that_another_process_makes_meanwhile_is_not_replaced_by_a_fork(
    files: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keep(files, "s", 3)
    await keep(files, "new", 1)
    info = SessionCatalogue.info
    monkeypatch.setattr(SessionCatalogue, "info", lambda self, name: None if name == "new" else info(self, name))
    with pytest.raises(SessionExists) as refused:
        await files.fork("s", "new")
    assert str(refused.value) == "there is a session 'new' already: fork 's' to another id"
    assert await files.read("new") == entries(1)
    await files.release(await files.acquire("new"))  # its lock was given back


def test_a_session_without_a_parent_has_none_that_lives(folder: Any) -> None:
    assert not is_parent_alive(str(folder), Header("session-file", 1, "s", "", "", 0.0))
